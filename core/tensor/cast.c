#include "core/tensor/cast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/block.h"
#include "core/tensor/cast_fast.h"
#include "core/tensor/cpu.h"

/*
 * Any value, exactly: ±significand × 2^(exponent - 63) with the leading bit of
 * the significand set; a NaN has its payload in the significand's top bits.
 */
struct number {
    enum { ZERO, FINITE, INFINITE, NOT_A_NUMBER } kind;
    bool negative;
    int exponent;
    uint64_t significand;
};

enum family { INTEGER, IEEE, FINITE_ONLY, UNSIGNED_ZERO, POWER, TRUTH };

/* How a component of each dtype represents its values. FINITE_ONLY (E4M3) has no
 * Inf, and NaN where all bits are set; UNSIGNED_ZERO (FNUZ) has NaN in place of
 * -0; POWER (E8M0) is an exponent alone. */
static const struct layout {
    enum family family;
    uint8_t bytes;
    uint8_t exponent; /* bits; of an integer: 1 where it has a sign */
    uint8_t mantissa; /* bits; of an integer: those of its magnitude */
    int16_t bias;
    uint8_t components;
} layouts[TC_DTYPES] = {
    [TC_BOOL] = {TRUTH, 1, 0, 1, 0, 1},
    [TC_U8] = {INTEGER, 1, 0, 8, 0, 1},
    [TC_I8] = {INTEGER, 1, 1, 7, 0, 1},
    [TC_U16] = {INTEGER, 2, 0, 16, 0, 1},
    [TC_I16] = {INTEGER, 2, 1, 15, 0, 1},
    [TC_U32] = {INTEGER, 4, 0, 32, 0, 1},
    [TC_I32] = {INTEGER, 4, 1, 31, 0, 1},
    [TC_U64] = {INTEGER, 8, 0, 64, 0, 1},
    [TC_I64] = {INTEGER, 8, 1, 63, 0, 1},
    [TC_F16] = {IEEE, 2, 5, 10, 15, 1},
    [TC_BF16] = {IEEE, 2, 8, 7, 127, 1},
    [TC_F32] = {IEEE, 4, 8, 23, 127, 1},
    [TC_F64] = {IEEE, 8, 11, 52, 1023, 1},
    [TC_C32] = {IEEE, 2, 5, 10, 15, 2},
    [TC_C64] = {IEEE, 4, 8, 23, 127, 2},
    [TC_C128] = {IEEE, 8, 11, 52, 1023, 2},
    [TC_F8_E4M3] = {FINITE_ONLY, 1, 4, 3, 7, 1},
    [TC_F8_E5M2] = {IEEE, 1, 5, 2, 15, 1},
    [TC_F8_E4M3FNUZ] = {UNSIGNED_ZERO, 1, 4, 3, 8, 1},
    [TC_F8_E5M2FNUZ] = {UNSIGNED_ZERO, 1, 5, 2, 16, 1},
    [TC_F8_E8M0] = {POWER, 1, 8, 0, 127, 1},
};

static uint64_t ones(unsigned bits) {
    return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

static uint64_t load(const unsigned char *from, unsigned bytes) {
    uint64_t bits = 0;
    memcpy(&bits, from, bytes); /* little-endian, as files and machines are */
    return bits;
}

static struct number of_magnitude(uint64_t magnitude, bool negative) {
    if (magnitude == 0)
        return (struct number){.kind = ZERO, .negative = negative};
    int shift = __builtin_clzll(magnitude);
    return (struct number){FINITE, negative, 63 - shift, magnitude << shift};
}

static struct number decode_integer(uint64_t bits, const struct layout *layout) {
    bool negative = layout->exponent && bits >> (8 * layout->bytes - 1);
    uint64_t width = ones(8u * layout->bytes);
    return of_magnitude(negative ? (~bits + 1) & width : bits, negative);
}

static struct number decode_float(uint64_t bits, const struct layout *layout) {
    bool negative = bits >> (layout->exponent + layout->mantissa) & 1;
    uint64_t exponent = bits >> layout->mantissa & ones(layout->exponent);
    uint64_t mantissa = bits & ones(layout->mantissa);
    bool top = exponent == ones(layout->exponent);
    struct number nan = {NOT_A_NUMBER, negative, 0, mantissa << (64 - layout->mantissa)};
    if (layout->family == IEEE && top)
        return mantissa ? nan : (struct number){.kind = INFINITE, .negative = negative};
    if (layout->family == FINITE_ONLY && top && mantissa == ones(layout->mantissa))
        return nan;
    if (layout->family == UNSIGNED_ZERO && negative && !exponent && !mantissa)
        return (struct number){NOT_A_NUMBER, true, 0, UINT64_C(1) << 63};
    uint64_t significand = exponent ? mantissa | UINT64_C(1) << layout->mantissa : mantissa;
    struct number number = of_magnitude(significand, negative);
    number.exponent += (exponent ? (int)exponent : 1) - layout->bias - (int)layout->mantissa;
    return number;
}

static struct number decode(uint64_t bits, const struct layout *layout) {
    switch (layout->family) {
    case TRUTH:
        return of_magnitude(bits != 0, false);
    case INTEGER:
        return decode_integer(bits, layout);
    case POWER:
        if (bits == 255)
            return (struct number){NOT_A_NUMBER, false, 0, UINT64_C(1) << 63};
        return (struct number){FINITE, false, (int)bits - 127, UINT64_C(1) << 63};
    default:
        return decode_float(bits, layout);
    }
}

static uint64_t encode_integer(struct number number, const struct layout *layout,
                               struct tc_cast_report *report) {
    uint64_t largest = ones(layout->mantissa) + (layout->exponent && number.negative);
    uint64_t magnitude = 0;
    if (number.kind == NOT_A_NUMBER) {
        report->nan_made++;
        return 0;
    }
    bool outside = number.kind == INFINITE || (number.kind == FINITE && number.exponent > 63);
    if (number.kind == FINITE && number.exponent >= 0 && !outside)
        magnitude = number.significand >> (63 - number.exponent);
    if (!layout->exponent && number.negative)
        largest = 0;
    if (outside || magnitude > largest) {
        magnitude = largest;
        report->overflow++;
    } else if (number.kind == FINITE && magnitude == 0) {
        report->underflow++;
    }
    return (number.negative ? ~magnitude + 1 : magnitude) & ones(8u * layout->bytes);
}

/* The bits for a value that is too large: Inf, or NaN where there is no Inf. */
static uint64_t overflow_bits(const struct layout *layout, bool negative) {
    uint64_t sign = (uint64_t)negative << (layout->exponent + layout->mantissa);
    switch (layout->family) {
    case IEEE:
        return sign | ones(layout->exponent) << layout->mantissa;
    case FINITE_ONLY:
        return sign | ones(layout->exponent + layout->mantissa);
    default:
        return UINT64_C(1) << (layout->exponent + layout->mantissa);
    }
}

static uint64_t encode_nan(struct number number, const struct layout *layout) {
    if (layout->family != IEEE)
        return overflow_bits(layout, number.negative);
    uint64_t payload = number.significand >> (64 - layout->mantissa);
    if (payload == 0)
        payload = UINT64_C(1) << (layout->mantissa - 1);
    return overflow_bits(layout, number.negative) | payload;
}

/* The largest finite pattern, without its sign. */
static uint64_t largest_finite(const struct layout *layout) {
    uint64_t all = ones(layout->exponent + layout->mantissa);
    if (layout->family == IEEE)
        return all - ones(layout->mantissa) - 1;
    return layout->family == FINITE_ONLY ? all - 1 : all;
}

static uint64_t encode_float(struct number number, const struct layout *layout,
                             struct tc_cast_report *report) {
    uint64_t sign = (uint64_t)number.negative << (layout->exponent + layout->mantissa);
    if (number.kind == NOT_A_NUMBER)
        return encode_nan(number, layout);
    if (number.kind == INFINITE) {
        report->nan_made += layout->family != IEEE;
        return overflow_bits(layout, number.negative);
    }
    if (number.kind == ZERO)
        return layout->family == UNSIGNED_ZERO ? 0 : sign;
    /* Keep mantissa + 1 bits, fewer below the smallest normal number, and
     * round the rest to nearest, ties to even. A carry moves on into the
     * exponent by itself. */
    int place = number.exponent + layout->bias;
    unsigned drop = 63u - layout->mantissa;
    uint64_t bits;
    if (place < 1) {
        drop += (unsigned)(1 - place) < 64 ? (unsigned)(1 - place) : 64;
        place = 1;
    }
    if (drop >= 64) {
        /* Below the smallest subnormal: only more than half of it rounds up. */
        bits = drop == 64 && number.significand > UINT64_C(1) << 63;
    } else {
        uint64_t rest = number.significand & ones(drop);
        uint64_t half = UINT64_C(1) << (drop - 1);
        bits = number.significand >> drop;
        bits += rest > half || (rest == half && bits & 1);
    }
    bits += (uint64_t)(place - 1) << layout->mantissa;
    if (bits > largest_finite(layout)) {
        report->overflow++;
        return overflow_bits(layout, number.negative);
    }
    if (bits == 0) {
        report->underflow++;
        return layout->family == UNSIGNED_ZERO ? 0 : sign;
    }
    return sign | bits;
}

/* The nearest power of two, ties upwards as in ml_dtypes; zero, negative and too
 * large values become NaN. */
static uint64_t encode_power(struct number number, struct tc_cast_report *report) {
    if (number.kind == NOT_A_NUMBER)
        return 255;
    if (number.kind == INFINITE || number.kind == ZERO || number.negative) {
        report->nan_made++;
        return 255;
    }
    uint64_t half = UINT64_C(3) << 62; /* 1.5 */
    int exponent = number.exponent + 127;
    exponent += number.significand >= half;
    if (exponent > 254) {
        report->overflow++;
        return 255;
    }
    return exponent < 0 ? 0 : (uint64_t)exponent;
}

static uint64_t encode(struct number number, const struct layout *layout,
                       struct tc_cast_report *report) {
    switch (layout->family) {
    case TRUTH:
        return number.kind != ZERO;
    case INTEGER:
        return encode_integer(number, layout, report);
    case POWER:
        return encode_power(number, report);
    default:
        return encode_float(number, layout, report);
    }
}

static long double value_of(struct number number) {
    long double value = ldexpl((long double)number.significand, number.exponent - 63);
    return number.kind == ZERO ? 0 : number.negative ? -value : value;
}

static bool same(struct number a, struct number b) {
    if (a.kind != b.kind || a.negative != b.negative)
        return false;
    return a.kind == ZERO || a.kind == INFINITE ||
           (a.significand == b.significand && (a.kind == NOT_A_NUMBER || a.exponent == b.exponent));
}

/* Adds the error of one value to the report. */
static void compare(struct number before, struct number after, struct tc_cast_report *report) {
    if (same(before, after))
        return;
    report->inexact++;
    if (before.kind > FINITE || after.kind > FINITE)
        return;
    long double exact = value_of(before);
    long double error = fabsl(exact - value_of(after));
    if ((double)error > report->max_abs)
        report->max_abs = (double)error;
    double relative = exact != 0 ? (double)(error / fabsl(exact)) : 0;
    if (relative > report->max_rel)
        report->max_rel = relative;
}

/* Any pair, one element at a time. */
static void cast_general(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                         unsigned char *target, size_t count, struct tc_cast_report *report) {
    const struct layout *in = &layouts[from];
    const struct layout *out = &layouts[to];
    struct tc_cast_report ignored = {0};
    struct tc_cast_report *counts = report ? report : &ignored;
    for (size_t i = 0; i < count; i++) {
        for (unsigned part = 0; part < out->components; part++) {
            struct number number = {.kind = ZERO}; /* the imaginary part of a real one */
            if (part < in->components)
                number = decode(load(source + part * in->bytes, in->bytes), in);
            uint64_t bits = encode(number, out, counts);
            memcpy(target + part * out->bytes, &bits, out->bytes);
            if (report)
                compare(number, decode(bits, out), report);
        }
        /* An imaginary part that is left out counts, unless it is zero. */
        if (report && in->components > out->components) {
            struct number lost = decode(load(source + in->bytes, in->bytes), in);
            if (lost.kind != ZERO)
                compare(lost, (struct number){.kind = ZERO}, report);
        }
        source += (size_t)in->bytes * in->components;
        target += (size_t)out->bytes * out->components;
    }
}

static void add_report(struct tc_cast_report *sum, const struct tc_cast_report *one,
                       uint64_t times) {
    sum->overflow += one->overflow * times;
    sum->underflow += one->underflow * times;
    sum->nan_made += one->nan_made * times;
    sum->inexact += one->inexact * times;
    sum->max_abs = one->max_abs > sum->max_abs ? one->max_abs : sum->max_abs;
    sum->max_rel = one->max_rel > sum->max_rel ? one->max_rel : sum->max_rel;
}

/* With constant sizes the compiler makes each element one load and one store. */
static inline void look_up_sized(const unsigned char *source, size_t in, const unsigned char *table,
                                 size_t out, unsigned char *target, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t value = in == 1 ? source[i] : source[2 * i] | (size_t)source[2 * i + 1] << 8;
        memcpy(target + i * out, table + value * out, out);
    }
}

static void look_up(const unsigned char *source, size_t in, const unsigned char *table, size_t out,
                    unsigned char *target, size_t count) {
    switch (out) {
    case 1:
        look_up_sized(source, in, table, 1, target, count);
        break;
    case 2:
        look_up_sized(source, in, table, 2, target, count);
        break;
    case 4:
        look_up_sized(source, in, table, 4, target, count);
        break;
    default:
        look_up_sized(source, in, table, out, target, count);
    }
}

/* From 8 and 16 bits: converts each possible value once, then looks the elements
 * up. False where there is no memory for the table. */
static bool cast_by_table(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                          unsigned char *target, size_t count, struct tc_cast_report *report) {
    size_t in = tc_dtype_bits(from) / 8;
    size_t out = tc_dtype_bits(to) / 8;
    size_t values = (size_t)1 << 8 * in;
    unsigned char *table = malloc(values * out);
    uint64_t *seen = report ? calloc(values, sizeof *seen) : NULL;
    if (!table || (report && !seen)) {
        free(table);
        free(seen);
        return false;
    }
    for (size_t value = 0; value < values; value++)
        cast_general(from, to, (const unsigned char *)&value, table + value * out, 1, NULL);
    look_up(source, in, table, out, target, count);
    for (size_t i = 0; seen && i < count; i++)
        seen[load(source + i * in, (unsigned)in)]++;
    for (size_t value = 0; seen && value < values; value++) {
        struct tc_cast_report one = {0};
        unsigned char ignored[16];
        if (!seen[value])
            continue;
        cast_general(from, to, (const unsigned char *)&value, ignored, 1, &one);
        add_report(report, &one, seen[value]);
    }
    free(table);
    free(seen);
    return true;
}

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

#define BLOCK 1024

bool tc_cast_exists(enum tc_dtype from, enum tc_dtype to) {
    return (layouts[from].bytes || tc_dtype_is_block(from)) && layouts[to].bytes;
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

void tc_cast(enum tc_dtype from, enum tc_dtype to, const void *source, void *target, size_t count,
             struct tc_cast_report *report) {
    tc_cast_loop *loop;
    tc_cast_loop *back;
    tc_cast_compare *check;
    if (tc_dtype_is_block(from)) {
        cast_blocks(from, to, source, target, count, report);
        return;
    }
    if (layouts[from].components == 2 && layouts[to].components == 2) {
        from = component_of(from);
        to = component_of(to);
        count *= 2;
    }
    if (!find_fast(from, to, &loop, &back, &check)) {
        /* A table pays off when there are more elements than possible values. */
        bool small = tc_dtype_bits(from) <= 16 && count >> tc_dtype_bits(from);
        if (!small || !cast_by_table(from, to, source, target, count, report))
            cast_general(from, to, source, target, count, report);
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
        in += step * layouts[from].bytes;
        out += step * layouts[to].bytes;
        count -= step;
    }
}

/* Smallest and largest power of two that a float has, subnormals included. */
static int lowest(const struct layout *layout) {
    return layout->family == POWER ? -127 : 1 - layout->bias - (int)layout->mantissa;
}

static int highest(const struct layout *layout) {
    int top = (int)ones(layout->exponent) - layout->bias;
    return layout->family == IEEE || layout->family == POWER ? top - 1 : top;
}

static bool is_float(const struct layout *layout) {
    return layout->family != INTEGER && layout->family != TRUTH;
}

/* Whether a float's significand and range hold every value of an integer dtype. */
static bool integer_fits(const struct layout *in, const struct layout *out) {
    if (out->family == POWER)
        return false; /* it has no zero */
    /* The most negative value is a power of two, which one bit holds. */
    int bits = in->mantissa;
    return bits <= out->mantissa + 1 && bits - 1 + (in->exponent ? 1 : 0) <= highest(out) &&
           lowest(out) <= 0;
}

static bool float_fits(const struct layout *in, const struct layout *out) {
    bool in_zero = in->family != POWER;
    if (out->family == POWER)
        return in->family == POWER;
    if (lowest(out) > lowest(in) || highest(out) < highest(in) || out->mantissa < in->mantissa)
        return false;
    /* E4M3 has NaN in place of its largest value. */
    if (out->family == FINITE_ONLY && in->family != FINITE_ONLY && highest(in) == highest(out))
        return false;
    bool in_infinite = in->family == IEEE;
    bool in_negative_zero = in_zero && in->family != UNSIGNED_ZERO;
    return !(in_infinite && out->family != IEEE) &&
           !(in_negative_zero && out->family == UNSIGNED_ZERO);
}

bool tc_cast_lossless(enum tc_dtype from, enum tc_dtype to) {
    const struct layout *in = &layouts[from];
    const struct layout *out = &layouts[to];
    if (from == to)
        return true;
    if (tc_dtype_is_block(from))
        return tc_cast_lossless(TC_F32, to);
    if (!tc_cast_exists(from, to) || in->components > out->components)
        return false;
    if (in->family == TRUTH)
        return out->family != POWER;
    if (out->family == TRUTH)
        return false;
    if (in->family == INTEGER && out->family == INTEGER)
        return in->mantissa <= out->mantissa && in->exponent <= out->exponent;
    if (in->family == INTEGER)
        return integer_fits(in, out);
    return is_float(out) && float_fits(in, out);
}
