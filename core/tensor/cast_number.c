#include "core/tensor/cast_number.h"

#include <math.h>
#include <string.h>

/*
 * Any value, exactly: ±significand × 2^(exponent - 63) with the leading bit of
 * the significand set; a NaN has its payload in the significand's top bits.
 */
struct tc_number {
    enum { TC_ZERO, TC_FINITE, TC_INFINITE, TC_NOT_A_NUMBER } kind;
    bool negative;
    int exponent;
    uint64_t significand;
};

const struct tc_layout tc_layouts[TC_DTYPES] = {
    [TC_BOOL] = {TC_FAMILY_TRUTH, 1, 0, 1, 0, 1},
    [TC_U8] = {TC_FAMILY_INTEGER, 1, 0, 8, 0, 1},
    [TC_I8] = {TC_FAMILY_INTEGER, 1, 1, 7, 0, 1},
    [TC_U16] = {TC_FAMILY_INTEGER, 2, 0, 16, 0, 1},
    [TC_I16] = {TC_FAMILY_INTEGER, 2, 1, 15, 0, 1},
    [TC_U32] = {TC_FAMILY_INTEGER, 4, 0, 32, 0, 1},
    [TC_I32] = {TC_FAMILY_INTEGER, 4, 1, 31, 0, 1},
    [TC_U64] = {TC_FAMILY_INTEGER, 8, 0, 64, 0, 1},
    [TC_I64] = {TC_FAMILY_INTEGER, 8, 1, 63, 0, 1},
    [TC_F16] = {TC_FAMILY_IEEE, 2, 5, 10, 15, 1},
    [TC_BF16] = {TC_FAMILY_IEEE, 2, 8, 7, 127, 1},
    [TC_F32] = {TC_FAMILY_IEEE, 4, 8, 23, 127, 1},
    [TC_F64] = {TC_FAMILY_IEEE, 8, 11, 52, 1023, 1},
    [TC_C32] = {TC_FAMILY_IEEE, 2, 5, 10, 15, 2},
    [TC_C64] = {TC_FAMILY_IEEE, 4, 8, 23, 127, 2},
    [TC_C128] = {TC_FAMILY_IEEE, 8, 11, 52, 1023, 2},
    [TC_F8_E4M3] = {TC_FAMILY_FINITE_ONLY, 1, 4, 3, 7, 1},
    [TC_F8_E5M2] = {TC_FAMILY_IEEE, 1, 5, 2, 15, 1},
    [TC_F8_E4M3FNUZ] = {TC_FAMILY_UNSIGNED_ZERO, 1, 4, 3, 8, 1},
    [TC_F8_E5M2FNUZ] = {TC_FAMILY_UNSIGNED_ZERO, 1, 5, 2, 16, 1},
    [TC_F8_E8M0] = {TC_FAMILY_POWER, 1, 8, 0, 127, 1},
};

static uint64_t ones(unsigned bits) {
    return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

static uint64_t load(const unsigned char *from, unsigned bytes) {
    uint64_t bits = 0;
    memcpy(&bits, from, bytes); /* little-endian, as files and machines are */
    return bits;
}

static struct tc_number of_magnitude(uint64_t magnitude, bool negative) {
    if (magnitude == 0)
        return (struct tc_number){.kind = TC_ZERO, .negative = negative};
    int shift = __builtin_clzll(magnitude);
    return (struct tc_number){TC_FINITE, negative, 63 - shift, magnitude << shift};
}

static struct tc_number decode_integer(uint64_t bits, const struct tc_layout *layout) {
    bool negative = layout->exponent && bits >> (8 * layout->bytes - 1);
    uint64_t width = ones(8u * layout->bytes);
    return of_magnitude(negative ? (~bits + 1) & width : bits, negative);
}

static struct tc_number decode_float(uint64_t bits, const struct tc_layout *layout) {
    bool negative = bits >> (layout->exponent + layout->mantissa) & 1;
    uint64_t exponent = bits >> layout->mantissa & ones(layout->exponent);
    uint64_t mantissa = bits & ones(layout->mantissa);
    bool top = exponent == ones(layout->exponent);
    struct tc_number nan = {TC_NOT_A_NUMBER, negative, 0, mantissa << (64 - layout->mantissa)};
    if (layout->family == TC_FAMILY_IEEE && top)
        return mantissa ? nan : (struct tc_number){.kind = TC_INFINITE, .negative = negative};
    if (layout->family == TC_FAMILY_FINITE_ONLY && top && mantissa == ones(layout->mantissa))
        return nan;
    if (layout->family == TC_FAMILY_UNSIGNED_ZERO && negative && !exponent && !mantissa)
        return (struct tc_number){TC_NOT_A_NUMBER, true, 0, UINT64_C(1) << 63};
    uint64_t significand = exponent ? mantissa | UINT64_C(1) << layout->mantissa : mantissa;
    struct tc_number number = of_magnitude(significand, negative);
    number.exponent += (exponent ? (int)exponent : 1) - layout->bias - (int)layout->mantissa;
    return number;
}

static struct tc_number decode(uint64_t bits, const struct tc_layout *layout) {
    switch (layout->family) {
    case TC_FAMILY_TRUTH:
        return of_magnitude(bits != 0, false);
    case TC_FAMILY_INTEGER:
        return decode_integer(bits, layout);
    case TC_FAMILY_POWER:
        if (bits == 255)
            return (struct tc_number){TC_NOT_A_NUMBER, false, 0, UINT64_C(1) << 63};
        return (struct tc_number){TC_FINITE, false, (int)bits - 127, UINT64_C(1) << 63};
    default:
        return decode_float(bits, layout);
    }
}

static uint64_t encode_integer(struct tc_number number, const struct tc_layout *layout,
                               struct tc_cast_report *report) {
    uint64_t largest = ones(layout->mantissa) + (layout->exponent && number.negative);
    uint64_t magnitude = 0;
    if (number.kind == TC_NOT_A_NUMBER) {
        report->nan_made++;
        return 0;
    }
    bool outside = number.kind == TC_INFINITE || (number.kind == TC_FINITE && number.exponent > 63);
    if (number.kind == TC_FINITE && number.exponent >= 0 && !outside)
        magnitude = number.significand >> (63 - number.exponent);
    if (!layout->exponent && number.negative)
        largest = 0;
    if (outside || magnitude > largest) {
        magnitude = largest;
        report->overflow++;
    } else if (number.kind == TC_FINITE && magnitude == 0) {
        report->underflow++;
    }
    return (number.negative ? ~magnitude + 1 : magnitude) & ones(8u * layout->bytes);
}

/* The bits for a value that is too large: Inf, or NaN where there is no Inf. */
static uint64_t overflow_bits(const struct tc_layout *layout, bool negative) {
    uint64_t sign = (uint64_t)negative << (layout->exponent + layout->mantissa);
    switch (layout->family) {
    case TC_FAMILY_IEEE:
        return sign | ones(layout->exponent) << layout->mantissa;
    case TC_FAMILY_FINITE_ONLY:
        return sign | ones(layout->exponent + layout->mantissa);
    default:
        return UINT64_C(1) << (layout->exponent + layout->mantissa);
    }
}

static uint64_t encode_nan(struct tc_number number, const struct tc_layout *layout) {
    if (layout->family != TC_FAMILY_IEEE)
        return overflow_bits(layout, number.negative);
    uint64_t payload = number.significand >> (64 - layout->mantissa);
    if (payload == 0)
        payload = UINT64_C(1) << (layout->mantissa - 1);
    return overflow_bits(layout, number.negative) | payload;
}

/* The largest finite pattern, without its sign. */
static uint64_t largest_finite(const struct tc_layout *layout) {
    uint64_t all = ones(layout->exponent + layout->mantissa);
    if (layout->family == TC_FAMILY_IEEE)
        return all - ones(layout->mantissa) - 1;
    return layout->family == TC_FAMILY_FINITE_ONLY ? all - 1 : all;
}

static uint64_t encode_float(struct tc_number number, const struct tc_layout *layout,
                             struct tc_cast_report *report) {
    uint64_t sign = (uint64_t)number.negative << (layout->exponent + layout->mantissa);
    if (number.kind == TC_NOT_A_NUMBER)
        return encode_nan(number, layout);
    if (number.kind == TC_INFINITE) {
        report->nan_made += layout->family != TC_FAMILY_IEEE;
        return overflow_bits(layout, number.negative);
    }
    if (number.kind == TC_ZERO)
        return layout->family == TC_FAMILY_UNSIGNED_ZERO ? 0 : sign;
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
        return layout->family == TC_FAMILY_UNSIGNED_ZERO ? 0 : sign;
    }
    return sign | bits;
}

/* The nearest power of two, ties upwards as in ml_dtypes; zero, negative and too
 * large values become NaN. */
static uint64_t encode_power(struct tc_number number, struct tc_cast_report *report) {
    if (number.kind == TC_NOT_A_NUMBER)
        return 255;
    if (number.kind == TC_INFINITE || number.kind == TC_ZERO || number.negative) {
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

static uint64_t encode(struct tc_number number, const struct tc_layout *layout,
                       struct tc_cast_report *report) {
    switch (layout->family) {
    case TC_FAMILY_TRUTH:
        return number.kind != TC_ZERO;
    case TC_FAMILY_INTEGER:
        return encode_integer(number, layout, report);
    case TC_FAMILY_POWER:
        return encode_power(number, report);
    default:
        return encode_float(number, layout, report);
    }
}

static long double value_of(struct tc_number number) {
    long double value = ldexpl((long double)number.significand, number.exponent - 63);
    return number.kind == TC_ZERO ? 0 : number.negative ? -value : value;
}

static bool same(struct tc_number a, struct tc_number b) {
    if (a.kind != b.kind || a.negative != b.negative)
        return false;
    return a.kind == TC_ZERO || a.kind == TC_INFINITE ||
           (a.significand == b.significand &&
            (a.kind == TC_NOT_A_NUMBER || a.exponent == b.exponent));
}

/* Adds the error of one value to the report. */
static void compare(struct tc_number before, struct tc_number after,
                    struct tc_cast_report *report) {
    if (same(before, after))
        return;
    report->inexact++;
    if (before.kind > TC_FINITE || after.kind > TC_FINITE)
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
void tc_cast_singly(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                    unsigned char *target, size_t count, struct tc_cast_report *report) {
    const struct tc_layout *in = &tc_layouts[from];
    const struct tc_layout *out = &tc_layouts[to];
    struct tc_cast_report ignored = {0};
    struct tc_cast_report *counts = report ? report : &ignored;
    for (size_t i = 0; i < count; i++) {
        for (unsigned part = 0; part < out->components; part++) {
            struct tc_number number = {.kind = TC_ZERO}; /* the imaginary part of a real one */
            if (part < in->components)
                number = decode(load(source + part * in->bytes, in->bytes), in);
            uint64_t bits = encode(number, out, counts);
            memcpy(target + part * out->bytes, &bits, out->bytes);
            if (report)
                compare(number, decode(bits, out), report);
        }
        /* An imaginary part that is left out counts, unless it is zero. */
        if (report && in->components > out->components) {
            struct tc_number lost = decode(load(source + in->bytes, in->bytes), in);
            if (lost.kind != TC_ZERO)
                compare(lost, (struct tc_number){.kind = TC_ZERO}, report);
        }
        source += (size_t)in->bytes * in->components;
        target += (size_t)out->bytes * out->components;
    }
}

void tc_cast_lose(enum tc_dtype dtype, const unsigned char *lost, size_t count,
                  struct tc_cast_report *report) {
    const struct tc_layout *layout = &tc_layouts[dtype];
    for (size_t i = 0; i < count; i++) {
        struct tc_number one = decode(load(lost + i * layout->bytes, layout->bytes), layout);
        if (one.kind != TC_ZERO)
            compare(one, (struct tc_number){.kind = TC_ZERO}, report);
    }
}
