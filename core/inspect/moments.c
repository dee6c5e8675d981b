#include "core/inspect/moments.h"

#include <math.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/inspect/stats_fast.h"
#include "core/tensor/cast.h"
#include "core/tensor/unpack.h"

typedef unsigned __int128 u128;

#define BLOCK TC_STATS_BLOCK

static const struct tc_stats_table *fast_table(void) {
#if defined(__x86_64__)
    if (tc_cpu_avx2())
        return &tc_stats_avx2;
#endif
    return &tc_stats_plain;
}

static struct tc_value of_real(double real) {
    return (struct tc_value){.real = real};
}

static struct tc_value of_integer(uint64_t magnitude, bool negative) {
    return (struct tc_value){.integer = true, .negative = negative, .magnitude = magnitude};
}

static struct tc_value of_signed(int64_t value) {
    return of_integer(value < 0 ? -(uint64_t)value : (uint64_t)value, value < 0);
}

static bool is_less(const struct tc_value *a, const struct tc_value *b) {
    if (!a->integer)
        return a->real < b->real || (a->real == b->real && signbit(a->real) > signbit(b->real));
    if (a->negative != b->negative)
        return a->negative;
    return a->negative ? a->magnitude > b->magnitude : a->magnitude < b->magnitude;
}

static void widen_range(struct tc_moments *moments, struct tc_value min, struct tc_value max) {
    if (!moments->any || is_less(&min, &moments->min))
        moments->min = min;
    if (!moments->any || is_less(&moments->max, &max))
        moments->max = max;
    moments->any = true;
}

/*
 * Sums of doubles by exponent: mantissas of the same exponent are added as integers.
 * 2^10 of 53 bits fit 64 bits, and so do the halves of their squares; where values
 * have only 24 bits, so do 2^15 squares of 48 bits.
 */
#define FEW (1u << 10)
#define MANY (1u << 15)
#define SPARE 29 /* 53 bits less 24 */

struct bucket {
    int64_t sum;
    uint64_t low, high; /* squares: low + 2^53 high */
};

struct buckets {
    struct bucket of[2048];
    size_t held;          /* values in them */
    unsigned first, last; /* the lowest and highest exponent in use */
    bool ready;           /* `of` was zeroed */
    bool narrow;          /* values have at most 24 bits */
};

static void empty_buckets(struct tc_moments *moments, struct buckets *buckets) {
    for (unsigned exponent = buckets->first; buckets->held && exponent <= buckets->last;
         exponent++) {
        struct bucket *bucket = &buckets->of[exponent];
        int place = (int)(exponent ? exponent : 1) - 1075 + (buckets->narrow ? SPARE : 0);
        if (!(bucket->low | bucket->high))
            continue;
        tc_exact_add(&moments->sum,
                     bucket->sum < 0 ? -(uint64_t)bucket->sum : (uint64_t)bucket->sum,
                     bucket->sum < 0, place);
        tc_exact_add(&moments->squares, bucket->low, false, 2 * place);
        tc_exact_add(&moments->squares, bucket->high, false, 2 * place + 53);
        *bucket = (struct bucket){0};
    }
    buckets->held = 0;
    buckets->first = 2047;
    buckets->last = 0;
}

static void sum_by_exponent(struct tc_moments *moments, struct buckets *buckets,
                            const double *values, size_t count) {
    const uint64_t mask = (UINT64_C(1) << 53) - 1;
    const unsigned spare = buckets->narrow ? SPARE : 0;
    if (!buckets->ready)
        memset(buckets->of, 0, sizeof buckets->of);
    buckets->ready = true;
    if (buckets->held + count > (buckets->narrow ? MANY : FEW))
        empty_buckets(moments, buckets);
    unsigned first = buckets->first, last = buckets->last;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        unsigned exponent = (unsigned)(bits >> 52) & 0x7FF;
        uint64_t mantissa = ((bits & (mask >> 1)) | (uint64_t)(exponent != 0) << 52) >> spare;
        u128 square = (u128)mantissa * mantissa;
        struct bucket *bucket = &buckets->of[exponent];
        bucket->sum += bits >> 63 ? -(int64_t)mantissa : (int64_t)mantissa;
        bucket->low += (uint64_t)square & mask;
        bucket->high += (uint64_t)(square >> 53);
        first = exponent < first ? exponent : first;
        last = exponent > last ? exponent : last;
    }
    buckets->held += count;
    buckets->first = first;
    buckets->last = last;
}

/* Adds a block's values and what the scan of them found. */
static void add_scanned(struct tc_moments *moments, struct buckets *buckets, double *values,
                        size_t count, const struct tc_scan *scan) {
    double sums[3];
    moments->zeros += scan->zeros;
    moments->nan += scan->nan;
    moments->inf += scan->inf;
    if (scan->nan + scan->inf == count)
        return;
    widen_range(moments, of_real(scan->min), of_real(scan->max));
    if (scan->top == 0)
        return;
    memset(values + count, 0, (BLOCK - count) * sizeof *values);
    if (!buckets->narrow || !fast_table()->sum_f32(values, count, scan->top, sums)) {
        sum_by_exponent(moments, buckets, values, count);
        return;
    }
    tc_exact_add_double(&moments->sum, sums[0]);
    tc_exact_add_double(&moments->squares, sums[1]);
    tc_exact_add_double(&moments->squares, sums[2]);
}

double tc_magnitude(const unsigned char *bytes, unsigned component) {
    double wide[2];
    float narrow[2];
    if (component == sizeof(double)) {
        memcpy(wide, bytes, sizeof wide);
    } else {
        memcpy(narrow, bytes, sizeof narrow);
        wide[0] = (double)narrow[0];
        wide[1] = (double)narrow[1];
    }
    return hypot(wide[0], wide[1]);
}

static void add_complex(struct tc_moments *moments, struct buckets *buckets, enum tc_dtype dtype,
                        const unsigned char *bytes, size_t count) {
    double values[BLOCK], sizes[BLOCK];
    float widened[2 * BLOCK];
    struct tc_scan scan;
    unsigned component = dtype == TC_C128 ? 8 : 4;
    if (dtype == TC_C32) {
        tc_cast(TC_C32, TC_C64, bytes, widened, count, NULL);
        bytes = (const unsigned char *)widened;
    }
    for (size_t i = 0; i < count; i++)
        sizes[i] = tc_magnitude(bytes + 2 * i * component, component);
    fast_table()->scan_f64(sizes, count, values, &scan);
    add_scanned(moments, buckets, values, count, &scan);
}

/* All dtypes but F64 are widened to F32 first, those of 8 bits by a table. */
static void add_float(struct tc_moments *moments, struct buckets *buckets, enum tc_dtype dtype,
                      const unsigned char *bytes, size_t count, const float *table) {
    double values[BLOCK];
    float widened[BLOCK];
    struct tc_scan scan;
    if (dtype == TC_F64) {
        fast_table()->scan_f64(bytes, count, values, &scan);
        add_scanned(moments, buckets, values, count, &scan);
        return;
    }
    const void *source = dtype == TC_F32 ? (const void *)bytes : widened;
    if (tc_dtype_bits(dtype) == 8)
        for (size_t i = 0; i < count; i++)
            widened[i] = table[bytes[i]];
    else if (dtype != TC_F32)
        tc_cast(dtype, TC_F32, bytes, widened, count, NULL);
    fast_table()->scan_f32(source, count, values, &scan);
    add_scanned(moments, buckets, values, count, &scan);
}

/* Integers of at most 32 bits. */
static void widen_integers(enum tc_dtype dtype, const unsigned char *bytes, int64_t *values,
                           size_t count) {
    const struct { int16_t v; } __attribute__((packed, may_alias)) *i16 = (const void *)bytes;
    const struct { int32_t v; } __attribute__((packed, may_alias)) *i32 = (const void *)bytes;
    switch (dtype) {
    case TC_BOOL:
        for (size_t i = 0; i < count; i++)
            values[i] = bytes[i] != 0;
        break;
    case TC_U8:
        for (size_t i = 0; i < count; i++)
            values[i] = bytes[i];
        break;
    case TC_I8:
        for (size_t i = 0; i < count; i++)
            values[i] = (int8_t)bytes[i];
        break;
    case TC_U16:
        for (size_t i = 0; i < count; i++)
            values[i] = (uint16_t)i16[i].v;
        break;
    case TC_I16:
        for (size_t i = 0; i < count; i++)
            values[i] = i16[i].v;
        break;
    case TC_U32:
        for (size_t i = 0; i < count; i++)
            values[i] = (uint32_t)i32[i].v;
        break;
    default:
        for (size_t i = 0; i < count; i++)
            values[i] = i32[i].v;
    }
}

static void add_integers(struct tc_moments *moments, enum tc_dtype dtype,
                         const unsigned char *bytes, size_t count) {
    int64_t values[BLOCK];
    struct tc_integers found;
    widen_integers(dtype, bytes, values, count);
    fast_table()->sum_integers(values, count, &found);
    moments->zeros += found.zeros;
    widen_range(moments, of_signed(found.min), of_signed(found.max));
    tc_exact_add(&moments->sum, found.sum < 0 ? -(uint64_t)found.sum : (uint64_t)found.sum,
                 found.sum < 0, 0);
    tc_exact_add(&moments->squares, found.low, false, 0);
    tc_exact_add(&moments->squares, found.high, false, 32);
}

/* Integers of 64 bits: sums magnitudes by sign in 128 bits, and the low and high
 * halves of squares apart. */
static void add_long_integers(struct tc_moments *moments, bool is_signed,
                              const unsigned char *bytes, size_t count) {
    u128 sums[2] = {0}, low = 0, high = 0;
    struct tc_value min = {0}, max = {0};
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, bytes + 8 * i, sizeof bits);
        bool negative = is_signed && bits >> 63;
        struct tc_value value = of_integer(negative ? -bits : bits, negative);
        u128 square = (u128)value.magnitude * value.magnitude;
        min = i == 0 || is_less(&value, &min) ? value : min;
        max = i == 0 || is_less(&max, &value) ? value : max;
        moments->zeros += bits == 0;
        sums[negative] += value.magnitude;
        low += (uint64_t)square;
        high += (uint64_t)(square >> 64);
    }
    widen_range(moments, min, max);
    for (int half = 0; half < 2; half++) {
        tc_exact_add(&moments->sum, (uint64_t)(sums[0] >> 64 * half), false, 64 * half);
        tc_exact_add(&moments->sum, (uint64_t)(sums[1] >> 64 * half), true, 64 * half);
        tc_exact_add(&moments->squares, (uint64_t)(low >> 64 * half), false, 64 * half);
        tc_exact_add(&moments->squares, (uint64_t)(high >> 64 * half), false, 64 + 64 * half);
    }
}

static void add_block(struct tc_moments *moments, struct buckets *buckets, enum tc_dtype dtype,
                      const unsigned char *bytes, size_t count, const float *table) {
    float unpacked[BLOCK];
    if (tc_dtype_packed(dtype)) {
        tc_unpack(dtype, bytes, unpacked, count);
        bytes = (const unsigned char *)unpacked;
        dtype = tc_unpacked(dtype);
    }
    if (dtype == TC_U64 || dtype == TC_I64)
        add_long_integers(moments, dtype == TC_I64, bytes, count);
    else if (dtype == TC_BOOL || tc_dtype_is_integer(dtype))
        add_integers(moments, dtype, bytes, count);
    else if (tc_dtype_is_complex(dtype))
        add_complex(moments, buckets, dtype, bytes, count);
    else
        add_float(moments, buckets, dtype, bytes, count, table);
    moments->count += count;
}

void tc_moments_add(struct tc_moments *moments, enum tc_dtype dtype, const void *bytes,
                    size_t length) {
    struct buckets buckets;
    float table[256];
    const unsigned char *at = bytes;
    size_t left = length / tc_dtype_block_bytes(dtype) * tc_dtype_block_elements(dtype);
    buckets.ready = false;
    buckets.narrow = dtype != TC_F64 && !tc_dtype_is_complex(dtype);
    buckets.held = 0;
    buckets.first = 2047;
    buckets.last = 0;
    if (tc_dtype_bits(dtype) == 8 && tc_dtype_is_float(dtype)) {
        unsigned char codes[256];
        for (unsigned code = 0; code < 256; code++)
            codes[code] = (unsigned char)code;
        tc_cast(dtype, TC_F32, codes, table, 256, NULL);
    }
    while (left) {
        size_t step = left < BLOCK ? left : BLOCK;
        add_block(moments, &buckets, dtype, at, step, table);
        at += tc_dtype_span(dtype, step);
        left -= step;
    }
    empty_buckets(moments, &buckets);
}

void tc_moments_merge(struct tc_moments *into, const struct tc_moments *from) {
    into->count += from->count;
    into->zeros += from->zeros;
    into->nan += from->nan;
    into->inf += from->inf;
    if (from->any)
        widen_range(into, from->min, from->max);
    tc_exact_merge(&into->sum, &from->sum);
    tc_exact_merge(&into->squares, &from->squares);
}

void tc_moments_finish(struct tc_moments *moments, struct tc_stats *stats) {
    uint64_t finite = moments->count - moments->nan - moments->inf;
    *stats = (struct tc_stats){
        .count = moments->count,
        .zeros = moments->zeros,
        .nonzeros = finite - moments->zeros,
        .nan = moments->nan,
        .inf = moments->inf,
        .min = finite ? moments->min : of_real((double)NAN),
        .max = finite ? moments->max : of_real((double)NAN),
        .mean = finite ? tc_exact_mean(&moments->sum, finite) : (double)NAN,
        .stddev =
            finite ? tc_exact_deviation(&moments->sum, &moments->squares, finite) : (double)NAN,
    };
}
