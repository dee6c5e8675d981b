/*
 * Widening checked against arithmetic that knows nothing of cast.c: each
 * format's value is computed from its definition as a double.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/cast.h"

struct layout {
    int exponent, mantissa, bias;
    enum { IEEE, FINITE, FNUZ } special;
};

static double value_of(unsigned bits, struct layout layout) {
    int exponent = (int)(bits >> layout.mantissa) & ((1 << layout.exponent) - 1);
    int mantissa = (int)bits & ((1 << layout.mantissa) - 1);
    unsigned sign = bits >> (layout.exponent + layout.mantissa) & 1;
    int ones = (1 << layout.exponent) - 1;
    if (layout.special == FNUZ && sign && !exponent && !mantissa)
        return NAN;
    if (layout.special == IEEE && exponent == ones)
        return mantissa ? NAN : sign ? -INFINITY : INFINITY;
    if (layout.special == FINITE && exponent == ones && mantissa == (1 << layout.mantissa) - 1)
        return NAN;
    double fraction = ldexp(mantissa, -layout.mantissa);
    double value = exponent ? ldexp(1 + fraction, exponent - layout.bias)
                            : ldexp(fraction, 1 - layout.bias);
    return sign ? -value : value;
}

static const struct layout F16 = {5, 10, 15, IEEE}, BF16 = {8, 7, 127, IEEE};

/* The wider value as a double, and its bits. */
static double wide_value(enum tc_dtype dtype, const void *bytes, uint64_t *bits) {
    *bits = 0;
    memcpy(bits, bytes, tc_dtype_bits(dtype) / 8);
    if (dtype == TC_F16)
        return value_of((unsigned)*bits, F16);
    if (dtype == TC_BF16)
        return value_of((unsigned)*bits, BF16);
    if (dtype == TC_F64) {
        double value;
        memcpy(&value, bytes, sizeof value);
        return value;
    }
    float value;
    memcpy(&value, bytes, sizeof value);
    return (double)value;
}

static void check_all(enum tc_dtype from, struct layout layout, enum tc_dtype to) {
    tc_cast *cast = tc_cast_find(from, to);
    cr_assert_not_null(cast);
    unsigned count = 1u << tc_dtype_bits(from);
    static uint64_t seen[65536];
    for (unsigned bits = 0; bits < count; bits++) {
        unsigned char in[2] = {(unsigned char)bits, (unsigned char)(bits >> 8)};
        unsigned char out[8] = {0};
        cast(in, out, 1);
        double expected = value_of(bits, layout);
        double got = wide_value(to, out, &seen[bits]);
        if (isnan(expected))
            cr_assert(isnan(got), "%s %x", tc_dtype_name(from), bits);
        else
            cr_assert(got == expected && !signbit(got) == !signbit(expected), "%s %x: %a is not %a",
                      tc_dtype_name(from), bits, got, expected);
    }
    for (unsigned a = 0; a < count && count <= 256; a++)
        for (unsigned b = a + 1; b < count; b++)
            cr_assert_neq(seen[a], seen[b], "%x and %x become one", a, b);
}

Test(cast, every_f8_value_is_exact_and_kept_apart) {
    static const struct {
        enum tc_dtype from;
        struct layout layout;
    } kinds[] = {{TC_F8_E4M3, {4, 3, 7, FINITE}},
                 {TC_F8_E5M2, {5, 2, 15, IEEE}},
                 {TC_F8_E4M3FNUZ, {4, 3, 8, FNUZ}},
                 {TC_F8_E5M2FNUZ, {5, 2, 16, FNUZ}}};
    static const enum tc_dtype targets[] = {TC_F16, TC_BF16, TC_F32, TC_F64};
    for (size_t i = 0; i < 4; i++)
        for (size_t t = 0; t < 4; t++)
            check_all(kinds[i].from, kinds[i].layout, targets[t]);
}

Test(cast, every_half_value_is_exact) {
    check_all(TC_F16, F16, TC_F32);
    check_all(TC_F16, F16, TC_F64);
    check_all(TC_BF16, BF16, TC_F32);
    check_all(TC_BF16, BF16, TC_F64);
}

/* Payload and the quiet bit: shifting back gives the first bits. */
Test(cast, nan_payloads_move_along) {
    for (unsigned bits = 0x7C01; bits < 0x8000; bits++) {
        uint16_t in = (uint16_t)bits;
        uint32_t out;
        tc_cast_find(TC_F16, TC_F32)(&in, &out, 1);
        cr_assert_eq(out >> 13 & 0x3FF, bits & 0x3FF);
        cr_assert_eq(out & 0x7F801FFF, 0x7F800000);
    }
    uint32_t signalling = 0xFF800001;
    uint64_t wide;
    tc_cast_find(TC_F32, TC_F64)(&signalling, &wide, 1);
    cr_assert_eq(wide, UINT64_C(0xFFF0000020000000));
}

Test(cast, f32_edges_to_f64) {
    static const uint32_t edges[] = {0,          0x80000000, 1,          0x80000001, 0x007FFFFF,
                                     0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x3F800000};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        float value;
        double got;
        memcpy(&value, &edges[i], sizeof value);
        tc_cast_find(TC_F32, TC_F64)(&edges[i], &got, 1);
        cr_assert(got == (double)value && !signbit(got) == !signbit(value));
    }
}

Test(cast, e8m0_is_a_power_of_two) {
    for (unsigned bits = 0; bits < 256; bits++) {
        uint8_t in = (uint8_t)bits;
        float f32;
        uint16_t bf16;
        double f64;
        tc_cast_find(TC_F8_E8M0, TC_F32)(&in, &f32, 1);
        tc_cast_find(TC_F8_E8M0, TC_BF16)(&in, &bf16, 1);
        tc_cast_find(TC_F8_E8M0, TC_F64)(&in, &f64, 1);
        if (bits == 255) {
            cr_assert(isnan(f32) && isnan(f64) && isnan(value_of(bf16, BF16)));
            continue;
        }
        double expected = ldexp(1, (int)bits - 127);
        cr_assert(f32 == expected && f64 == expected && value_of(bf16, BF16) == expected);
    }
}

Test(cast, integers_keep_their_value) {
    static const int8_t signed_bytes[] = {-128, -1, 0, 127};
    static const uint8_t bytes[] = {0, 1, 2, 255};
    int16_t to16[4];
    int64_t to64[4];
    tc_cast_find(TC_I8, TC_I16)(signed_bytes, to16, 4);
    tc_cast_find(TC_I8, TC_I64)(signed_bytes, to64, 4);
    for (int i = 0; i < 4; i++)
        cr_assert(to16[i] == signed_bytes[i] && to64[i] == signed_bytes[i]);
    tc_cast_find(TC_U8, TC_I16)(bytes, to16, 4);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(to16[i], bytes[i]);
    uint32_t big = UINT32_MAX;
    tc_cast_find(TC_U32, TC_I64)(&big, to64, 1);
    cr_assert_eq(to64[0], INT64_C(4294967295));
    uint8_t truth[4];
    tc_cast_find(TC_BOOL, TC_U8)(bytes, truth, 4);
    cr_assert_arr_eq(truth, ((const uint8_t[]){0, 1, 1, 1}), 4);
}

Test(cast, complex_is_a_pair) {
    static const uint16_t half[2] = {0x3C00, 0xC000};
    float pair[2];
    tc_cast_find(TC_C32, TC_C64)(half, pair, 1);
    cr_assert(pair[0] == 1 && pair[1] == -2);
}

Test(cast, unaligned_memory_is_fine) {
    unsigned char in[9] = {0, 0x80, 0x3F, 0x00, 0x40};
    unsigned char out[17];
    tc_cast_find(TC_BF16, TC_F32)(in + 1, out + 1, 2);
    float value;
    memcpy(&value, out + 1, 4);
    cr_assert(value == 1);
    memcpy(&value, out + 5, 4);
    cr_assert(value == 2);
}

Test(cast, promotion_follows_the_rule) {
    tc_dtype_set npy = TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_F32) |
                       TC_SET(TC_F64) | TC_SET(TC_C64) | TC_SET(TC_C128);
    cr_assert_eq(tc_dtype_promote(TC_BF16, npy), TC_F32);
    cr_assert_eq(tc_dtype_promote(TC_F8_E4M3, npy), TC_F16);
    cr_assert_eq(tc_dtype_promote(TC_F8_E8M0, npy), TC_F32);
    cr_assert_eq(tc_dtype_promote(TC_C32, npy), TC_C64);
    cr_assert_eq(tc_dtype_promote(TC_F4, npy), TC_NONE);
    tc_dtype_set ot = TC_SET(TC_I16) | TC_SET(TC_I32) | TC_SET(TC_I64);
    cr_assert_eq(tc_dtype_promote(TC_U8, ot), TC_I16);
    cr_assert_eq(tc_dtype_promote(TC_U16, ot), TC_I32);
    cr_assert_eq(tc_dtype_promote(TC_U32, ot), TC_I64);
    cr_assert_eq(tc_dtype_promote(TC_U64, ot), TC_NONE);
    /* Whatever is promised can be done. */
    for (enum tc_dtype from = 0; from < TC_DTYPES; from++)
        for (enum tc_dtype to = 0; to < TC_DTYPES; to++)
            if (from != to && tc_dtype_promote(from, TC_SET(to)) == to)
                cr_assert_not_null(tc_cast_find(from, to), "%s to %s", tc_dtype_name(from),
                                   tc_dtype_name(to));
}
