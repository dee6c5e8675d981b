#include "core/tensor/cast.h"

#include <math.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/tensor/block.h"
#include "core/tensor/cast_fast.h"
#include "core/tensor/cast_narrow.h"
#include "core/tensor/cast_number.h"
#include "core/tensor/cast_table.h"
#include "core/tensor/cast_wide.h"

static const struct tc_cast_table *fast_table(void) {
#if defined(__x86_64__)
    if (tc_cpu_avx2())
        return &tc_cast_avx2;
#endif
    return &tc_cast_plain;
}

/* The fast loop for a pair of dtypes and, where that narrows, the loop that widens
 * again and the comparison with the original; false where there is none. */
static bool find_fast(enum tc_dtype from, enum tc_dtype to, tc_cast_loop **loop,
                      tc_cast_loop **back, tc_cast_compare **check) {
    const struct tc_cast_table *table = fast_table();
    *back = NULL;
    *check = NULL;
    if (from == TC_BF16 && to == TC_F32)
        *loop = table->bf16_f32;
    else if (from == TC_F16 && to == TC_F32)
        *loop = table->f16_f32;
    else if (from == TC_F32 && to == TC_F64)
        *loop = table->f32_f64;
    else if (from == TC_F32 && to == TC_BF16)
        *loop = table->f32_bf16, *back = table->bf16_f32, *check = table->compare_f32;
    else if (from == TC_F32 && to == TC_F16)
        *loop = table->f32_f16, *back = table->f16_f32, *check = table->compare_f32;
    else if (from == TC_F64 && to == TC_F32)
        *loop = table->f64_f32, *back = table->f32_f64, *check = table->compare_f64;
    else
        return false;
    return true;
}

/* The dtype of a complex number's components; any other dtype is itself. */
static enum tc_dtype component_of(enum tc_dtype dtype) {
    return dtype == TC_C32 ? TC_F16 : dtype == TC_C64 ? TC_F32 : dtype == TC_C128 ? TC_F64 : dtype;
}

#define BLOCK TC_NARROW_MOST
/* So few elements are converted one by one. */
#define FEW 16u

static const struct tc_wide_table *wide_table(void) {
#if defined(__x86_64__)
    if (tc_cpu_avx2())
        return &tc_wide_avx2;
#endif
    return &tc_wide_plain;
}

/* The results of a block as F64; false where that can't hold them. */
static bool widen(enum tc_dtype dtype, const unsigned char *bytes, uint64_t *doubles,
                  size_t count) {
    if (count <= BLOCK && (dtype == TC_F16 || dtype == TC_BF16)) {
        /* Computed, since a table for each value of 16 bits fills a cache. */
        uint32_t singles[BLOCK];
        const struct tc_cast_table *fast = fast_table();
        (dtype == TC_F16 ? fast->f16_f32 : fast->bf16_f32)(bytes, singles, count);
        return wide_table()->decode[TC_F32](singles, doubles, count);
    }
    if (tc_dtype_bits(dtype) <= 16) {
        const unsigned char *table = tc_cast_results(dtype, TC_F64);
        if (table)
            tc_look_up(bytes, tc_dtype_bits(dtype) / 8, table, 8, (unsigned char *)doubles, count);
        return table != NULL;
    }
    if (dtype == TC_F64)
        memcpy(doubles, bytes, count * sizeof *doubles);
    /* cppcheck-suppress assignBoolToPointer ; it takes the type of a function for its result */
    tc_wide_decode *to_wide = wide_table()->decode[dtype];
    return dtype == TC_F64 || (to_wide && to_wide(bytes, doubles, count));
}

/* One block by way of F64; false where that does not do for it. */
static bool cast_block(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                       unsigned char *target, size_t count, struct tc_cast_report *report) {
    const struct tc_layout *out = &tc_layouts[to];
    const struct tc_wide_table *table = wide_table();
    uint64_t doubles[BLOCK];
    uint64_t made[BLOCK];
    if (!widen(from, source, doubles, count))
        return false;
    table->encode[to](doubles, target, count);
    if (!report)
        return true;
    if (!widen(to, target, made, count))
        return false;
    bool integers = out->family == TC_FAMILY_INTEGER;
    double high = integers ? ldexp(1, out->mantissa) - 1 : 0;
    double low = integers && out->exponent ? -high - 1 : 0;
    tc_wide_compare *add = integers                         ? table->compare_integers
                           : out->family == TC_FAMILY_POWER ? table->compare_powers
                                                            : table->compare_floats;
    add(doubles, made, count, low, high, report);
    return true;
}

/* The largest errors of a block whose values and results are there as F64, and the value with the
 * largest relative one: also where an earlier chunk had one as large, of which only the size is
 * known, since else each block that has such a value would come here. */
static void find_largest(const uint64_t *doubles, const uint64_t *made, size_t count,
                         struct tc_narrow_bounds *bounds) {
    for (size_t i = 0; i < count; i++) {
        double value, result;
        memcpy(&value, &doubles[i], sizeof value);
        memcpy(&result, &made[i], sizeof result);
        if (!isfinite(value) || !isfinite(result) || value == result)
            continue;
        double error = fabs(value - result);
        bounds->max_abs = error > bounds->max_abs ? error : bounds->max_abs;
        if (value != 0 && error / fabs(value) >= bounds->max_rel) {
            bounds->max_rel = error / fabs(value);
            bounds->mantissa = doubles[i] & ((UINT64_C(1) << 52) - 1);
            bounds->value = doubles[i];
        }
    }
}

/* The loop that casts a block and says what is lost in one pass; NULL where there is none. The
 * values that it takes are at *reals: in `room`, or the source itself. */
static tc_narrow_loop *find_narrow(enum tc_dtype from, enum tc_dtype to,
                                   const unsigned char *source, uint64_t *room, size_t count,
                                   const void **reals) {
    const struct tc_narrow_table *table = tc_narrow_table();
    const struct tc_cast_table *fast = fast_table();
    tc_cast_loop *to_f32 = from == TC_BF16  ? fast->bf16_f32
                           : from == TC_F16 ? fast->f16_f32
                           : from == TC_U16 ? fast->u16_f32
                           : from == TC_I16 ? fast->i16_f32
                                            : NULL;
    /* The relative errors of large numbers that become 1 lie closer together than F32 can tell. */
    if (to == TC_BOOL)
        to_f32 = NULL;
    *reals = from == TC_F32 || from == TC_F64 ? (const void *)source : room;
    if (from == TC_F32 || (to_f32 && table->of_f32[to])) {
        if (to_f32)
            to_f32(source, room, count);
        /* cppcheck-suppress CastIntegerToAddressAtReturn ; it takes the type of a function for its
         * result */
        return table->of_f32[to];
    }
    bool held = from == TC_F64 || (table->of_f64[to] && widen(from, source, room, count));
    return held ? table->of_f64[to] : NULL;
}

/* One block, where find_narrow knows a loop for it, and all of its values are usual ones. */
static bool cast_narrow(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                        unsigned char *target, size_t count, struct tc_narrow_bounds *bounds,
                        struct tc_cast_report *report) {
    uint64_t doubles[BLOCK];
    uint64_t made[BLOCK];
    const void *reals;
    struct tc_narrow_found found;
    tc_narrow_loop *loop = find_narrow(from, to, source, doubles, count, &reals);
    if (!loop)
        return false;
    bounds->max_abs = report->max_abs;
    bounds->max_rel = report->max_rel;
    loop(reals, target, count, bounds, &found);
    if (found.special)
        return false;
    if (found.larger) {
        if (!widen(from, source, doubles, count) || !widen(to, target, made, count))
            return false;
        find_largest(doubles, made, count, bounds);
    }
    report->overflow += found.overflow;
    report->underflow += found.underflow;
    report->nan_made += found.nan_made;
    report->inexact += found.inexact;
    report->max_abs = bounds->max_abs;
    report->max_rel = bounds->max_rel;
    return true;
}

/* By way of F64, where that holds the values of both; any other block one element at a time. */
static void cast_wide(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                      unsigned char *target, size_t count, struct tc_cast_report *report) {
    struct tc_narrow_bounds bounds = {.mantissa = UINT64_MAX};
    while (count) {
        size_t step = count < BLOCK ? count : BLOCK;
        if (!(report && cast_narrow(from, to, source, target, step, &bounds, report)) &&
            !cast_block(from, to, source, target, step, report))
            tc_cast_singly(from, to, source, target, step, report);
        source += step * tc_layouts[from].bytes;
        target += step * tc_layouts[to].bytes;
        count -= step;
    }
}

/* Adds the imaginary parts that a real dtype leaves out; a zero is no loss. */
static void add_lost(enum tc_dtype part, const unsigned char *lost, size_t count,
                     struct tc_cast_report *report) {
    uint64_t doubles[BLOCK];
    const uint64_t infinite = UINT64_C(0x7FF) << 52;
    uint64_t most = 0;
    uint64_t inexact = 0;
    if (!widen(part, lost, doubles, count)) {
        tc_cast_lose(part, lost, count, report);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t size = doubles[i] & INT64_MAX;
        inexact += size != 0;
        most = size < infinite && size > most ? size : most;
    }
    double error;
    memcpy(&error, &most, sizeof error);
    report->inexact += inexact;
    report->max_abs = error > report->max_abs ? error : report->max_abs;
    report->max_rel = most && report->max_rel < 1 ? 1 : report->max_rel;
}

/* With constant sizes the compiler makes each part one load and one store. */
static inline void split_sized(const unsigned char *source, size_t size, unsigned char *real,
                               unsigned char *imaginary, size_t count) {
    for (size_t i = 0; i < count; i++) {
        memcpy(real + i * size, source + 2 * i * size, size);
        memcpy(imaginary + i * size, source + (2 * i + 1) * size, size);
    }
}

static inline void join_sized(const unsigned char *real, size_t size, unsigned char *target,
                              size_t count) {
    for (size_t i = 0; i < count; i++) {
        memcpy(target + 2 * i * size, real + i * size, size);
        memset(target + (2 * i + 1) * size, 0, size);
    }
}

static void split(const unsigned char *source, size_t size, unsigned char *real,
                  unsigned char *imaginary, size_t count) {
    if (size == 2)
        split_sized(source, 2, real, imaginary, count);
    else if (size == 4)
        split_sized(source, 4, real, imaginary, count);
    else
        split_sized(source, 8, real, imaginary, count);
}

static void join(const unsigned char *real, size_t size, unsigned char *target, size_t count) {
    if (size == 2)
        join_sized(real, 2, target, count);
    else if (size == 4)
        join_sized(real, 4, target, count);
    else
        join_sized(real, 8, target, count);
}

/* Between a complex and a real dtype, by way of the real parts. */
static void cast_parts(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                       unsigned char *target, size_t count, struct tc_cast_report *report) {
    bool to_real = tc_layouts[to].components == 1;
    enum tc_dtype part = component_of(to_real ? from : to);
    size_t size = tc_layouts[part].bytes;
    unsigned char real[8 * BLOCK];
    unsigned char imaginary[8 * BLOCK];
    while (count) {
        size_t step = count < BLOCK ? count : BLOCK;
        if (to_real) {
            split(source, size, real, imaginary, step);
            tc_cast(part, to, real, target, step, report);
            if (report)
                add_lost(part, imaginary, step, report);
        } else {
            tc_cast(from, part, source, real, step, report);
            join(real, size, target, step);
        }
        source += tc_dtype_span(from, step);
        target += tc_dtype_span(to, step);
        count -= step;
    }
}

/* By way of F32, which is what a block dtype's values are. */
static void cast_blocks(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                        unsigned char *target, size_t count, struct tc_cast_report *report) {
    float values[4 * BLOCK];
    while (count) {
        size_t step = count < 4 * BLOCK ? count : 4 * BLOCK;
        tc_block_dequantise(from, source, values, step);
        if (to == TC_F32)
            memcpy(target, values, step * sizeof *values);
        else
            tc_cast(TC_F32, to, values, target, step, report);
        source += tc_dtype_span(from, step);
        target += tc_dtype_span(to, step);
        count -= step;
    }
}

/* A pair without a loop of its own. */
static void cast_other(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                       unsigned char *target, size_t count, struct tc_cast_report *report) {
    unsigned bits = tc_layouts[from].components == 1 ? tc_dtype_bits(from) : 64;
    bool mixed = tc_layouts[from].components != tc_layouts[to].components;
    bool table = bits <= 16 && tc_cast_table_pays(from, to, count);
    if (table && (!report || bits == 8) &&
        tc_cast_by_table(from, to, source, target, count, report))
        return;
    if (count < FEW)
        tc_cast_singly(from, to, source, target, count, report);
    else if (mixed)
        cast_parts(from, to, source, target, count, report);
    else
        cast_wide(from, to, source, target, count, report);
}

void tc_cast(enum tc_dtype from, enum tc_dtype to, const void *source, void *target, size_t count,
             struct tc_cast_report *report) {
    tc_cast_loop *loop;
    tc_cast_loop *back;
    tc_cast_compare *check;
    if (tc_dtype_is_block(from)) {
        cast_blocks(from, to, source, target, count, report);
        return;
    }
    if (tc_layouts[from].components == 2 && tc_layouts[to].components == 2) {
        from = component_of(from);
        to = component_of(to);
        count *= 2;
    }
    if (from == to) {
        memcpy(target, source, count * tc_layouts[to].bytes * tc_layouts[to].components);
        return;
    }
    if (!find_fast(from, to, &loop, &back, &check)) {
        cast_other(from, to, source, target, count, report);
        return;
    }
    if (!report || !check) {
        loop(source, target, count);
        return;
    }
    uint64_t widened[BLOCK];
    const unsigned char *in = source;
    unsigned char *out = target;
    while (count) {
        size_t step = count < BLOCK ? count : BLOCK;
        loop(in, out, step);
        back(out, widened, step);
        check(in, widened, step, report);
        in += step * tc_layouts[from].bytes;
        out += step * tc_layouts[to].bytes;
        count -= step;
    }
}
