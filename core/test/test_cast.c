/*
 * Every pair of dtypes against arithmetic that is independent of cast.c: a
 * value is computed from its format's definition as a long double, whose 64
 * bits hold every value of every dtype; rounding is looked up among all the
 * values that a small target has.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/tensor/cast.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"
#include "core/test/sanitized.h"

static unsigned size_of(enum tc_dtype dtype) {
    return tc_dtype_bits(dtype) / 8;
}

static bool is_complex(enum tc_dtype dtype) {
    return dtype == TC_C32 || dtype == TC_C64 || dtype == TC_C128;
}

static bool is_integer(enum tc_dtype dtype) {
    return dtype <= TC_I64;
}

static long double small_float(unsigned bits, int exponent_bits, int mantissa_bits, int bias,
                               char special) {
    int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    int mantissa = (int)bits & ((1 << mantissa_bits) - 1);
    bool negative = bits >> (exponent_bits + mantissa_bits) & 1;
    int top = (1 << exponent_bits) - 1;
    if (special == 'z' && negative && !exponent && !mantissa)
        return NAN;
    if (special == 'i' && exponent == top)
        return mantissa ? NAN : negative ? -INFINITY : INFINITY;
    if (special == 'f' && exponent == top && mantissa == (1 << mantissa_bits) - 1)
        return NAN;
    long double fraction = ldexpl(mantissa, -mantissa_bits);
    long double value =
        exponent ? ldexpl(1 + fraction, exponent - bias) : ldexpl(fraction, 1 - bias);
    return negative ? -value : value;
}

/* The value of a (real) element. */
static long double value_of(enum tc_dtype dtype, const void *bytes) {
    uint64_t bits = 0;
    float f32;
    double f64;
    memcpy(&bits, bytes, size_of(dtype));
    unsigned low = (unsigned)bits;
    switch (dtype) {
    case TC_BOOL:
        return bits != 0;
    case TC_I8:
        return (int8_t)bits;
    case TC_I16:
        return (int16_t)bits;
    case TC_I32:
        return (int32_t)bits;
    case TC_I64:
        return (long double)(int64_t)bits;
    case TC_F16:
        return small_float(low, 5, 10, 15, 'i');
    case TC_BF16:
        return small_float(low, 8, 7, 127, 'i');
    case TC_F8_E4M3:
        return small_float(low, 4, 3, 7, 'f');
    case TC_F8_E5M2:
        return small_float(low, 5, 2, 15, 'i');
    case TC_F8_E4M3FNUZ:
        return small_float(low, 4, 3, 8, 'z');
    case TC_F8_E5M2FNUZ:
        return small_float(low, 5, 2, 16, 'z');
    case TC_F8_E8M0:
        return low == 255 ? NAN : ldexpl(1, (int)low - 127);
    case TC_F32:
        memcpy(&f32, bytes, 4);
        return f32;
    case TC_F64:
        memcpy(&f64, bytes, 8);
        return f64;
    default:
        return (long double)bits;
    }
}

static bool same_value(long double a, long double b) {
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b && !signbit(a) == !signbit(b);
}

/* All bit patterns of a dtype of up to 16 bits; the edge cases of a larger one. */
static size_t samples(enum tc_dtype dtype, uint64_t *patterns) {
    unsigned bits = tc_dtype_bits(dtype);
    size_t count = 0;
    if (bits <= 16) {
        for (uint64_t i = 0; i < UINT64_C(1) << bits; i++)
            patterns[count++] = i;
        return count;
    }
    /* Around every power of two, in both signs: limits, halves and ties of
     * every narrower type are among them. */
    for (unsigned shift = 0; shift < bits; shift++)
        for (int delta = -3; delta <= 3; delta++) {
            uint64_t near = (UINT64_C(1) << shift) + (uint64_t)delta;
            patterns[count++] = near;
            patterns[count++] = ~near;
        }
    if (dtype == TC_F32 || dtype == TC_F64)
        for (int power = -160; power <= 140; power++)
            for (int step = 0; step < 64; step++) {
                double value = ldexp(1 + step / 32.0 + (step & 1) * 1e-9, power);
                float narrow = (float)value;
                uint64_t pattern = 0;
                memcpy(&pattern, dtype == TC_F64 ? (void *)&value : (void *)&narrow,
                       size_of(dtype));
                patterns[count++] = pattern;
                patterns[count++] = pattern | UINT64_C(1) << (bits - 1);
            }
    for (size_t i = 0; bits == 32 && i < count; i++)
        patterns[i] &= UINT32_MAX;
    return count;
}

#define MOST_SAMPLES 65536

/* Values of a small dtype in ascending order, with their bit patterns. */
struct place {
    long double value;
    unsigned bits;
};

static int by_value(const void *a, const void *b) {
    long double x = ((const struct place *)a)->value;
    long double y = ((const struct place *)b)->value;
    return (x > y) - (x < y);
}

static size_t finite_places(enum tc_dtype dtype, struct place *places) {
    size_t count = 0;
    for (unsigned bits = 0; bits < 1u << tc_dtype_bits(dtype); bits++) {
        long double value = value_of(dtype, &bits);
        if (isfinite(value))
            places[count++] = (struct place){value, bits};
    }
    qsort(places, count, sizeof *places, by_value);
    return count;
}

/* The nearest value, ties to the even bit pattern; *over where the value is half a
 * step or more beyond the largest. E8M0 has no negative values, and its ties go up. */
static long double nearest(const struct place *places, size_t count, long double value,
                           bool *over) {
    size_t low = 0, high = count - 1;
    bool powers = places[0].value > 0;
    *over = false;
    if (powers && value < places[low].value)
        return places[low].value;
    if (powers && value > places[high].value) {
        *over = value >= 1.5L * places[high].value;
        return places[high].value;
    }
    if (value > places[high].value || value < places[low].value) {
        bool up = value > 0;
        const struct place *end = up ? &places[high] : &places[low];
        const struct place *next = up ? end - 1 : end + 1;
        long double edge = end->value + (end->value - next->value) / 2;
        /* In the middle the even pattern wins, which is the one beyond the largest
         * when the largest is odd. */
        *over = up ? value > edge || (value == edge && end->bits & 1)
                   : value < edge || (value == edge && end->bits & 1);
        return end->value;
    }
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(places[middle].value <= value ? &low : &high) = middle;
    }
    if (places[high].value == value)
        return value;
    long double below = value - places[low].value, above = places[high].value - value;
    if (below != above)
        return below < above ? places[low].value : places[high].value;
    return powers || places[low].bits & 1 ? places[high].value : places[low].value;
}

static long double expected_integer(enum tc_dtype to, long double value) {
    if (to == TC_BOOL)
        return isnan(value) || value != 0;
    unsigned bits = tc_dtype_bits(to);
    bool has_sign = to == TC_I8 || to == TC_I16 || to == TC_I32 || to == TC_I64;
    long double largest = ldexpl(1, (int)bits - has_sign) - 1;
    long double smallest = has_sign ? -largest - 1 : 0;
    if (isnan(value))
        return 0;
    long double whole = truncl(value);
    return whole > largest ? largest : whole < smallest ? smallest : whole + 0.0L;
}

static void check_pair(enum tc_dtype from, enum tc_dtype to, const uint64_t *patterns, size_t count,
                       const struct place *places, size_t place_count) {
    bool lossless = true;
    for (size_t i = 0; i < count; i++) {
        uint64_t out = 0;
        tc_cast(from, to, &patterns[i], &out, 1, NULL);
        long double value = value_of(from, &patterns[i]);
        long double got = value_of(to, &out);
        lossless &= same_value(value, got);
        long double expected;
        if (is_integer(to)) {
            expected = expected_integer(to, value);
            cr_assert(got == expected, "%s %llx to %s: %Lg is not %Lg", tc_dtype_name(from),
                      (unsigned long long)patterns[i], tc_dtype_name(to), got, expected);
            continue;
        }
        if (isnan(value)) {
            cr_assert(isnan(got));
            continue;
        }
        if (to == TC_F32) {
            expected = (float)value;
        } else if (to == TC_F64) {
            expected = (double)value;
        } else {
            bool over = isinf(value);
            expected = over ? value : nearest(places, place_count, value, &over);
            if (over) {
                cr_assert(isinf(got) || isnan(got), "%s %llx to %s", tc_dtype_name(from),
                          (unsigned long long)patterns[i], tc_dtype_name(to));
                continue;
            }
        }
        if (to == TC_F8_E8M0 && !(value > 0)) {
            cr_assert(isnan(got));
            continue;
        }
        cr_assert(got == expected, "%s %llx (%La) to %s: %La is not %La", tc_dtype_name(from),
                  (unsigned long long)patterns[i], value, tc_dtype_name(to), got, expected);
    }
    /* tc_cast_lossless must agree with what was found, where all values were tried;
     * for more than 16 bits the edge cases are enough. */
    cr_assert_eq(tc_cast_lossless(from, to), lossless, "%s to %s is marked %s", tc_dtype_name(from),
                 tc_dtype_name(to), lossless ? "lossy" : "lossless");
}

static void check_all_pairs(void) {
    uint64_t *patterns = calloc(MOST_SAMPLES, sizeof *patterns);
    struct place *places = calloc(65536, sizeof *places);
    for (enum tc_dtype to = 0; to < TC_DTYPES; to++) {
        if (tc_dtype_packed(to) || is_complex(to))
            continue;
        size_t place_count =
            !is_integer(to) && tc_dtype_bits(to) <= 16 ? finite_places(to, places) : 0;
        for (enum tc_dtype from = 0; from < TC_DTYPES; from++) {
            if (tc_dtype_packed(from) || is_complex(from))
                continue;
            size_t count = samples(from, patterns);
            check_pair(from, to, patterns, count, places, place_count);
        }
    }
    free(patterns);
    free(places);
}

Test(cast, every_pair_is_exact_or_rounds_to_nearest, .timeout = 600) {
    check_all_pairs();
}

Test(cast, every_pair_on_any_cpu, .timeout = 600) {
    cr_assert(tc_cpu_use("plain"));
    cr_assert_str_eq(tc_cpu_name(), "plain");
    check_all_pairs();
    cr_assert_not(tc_cpu_use("no such cpu"));
}

/* Both sets of instructions give the same bits, on random patterns. */
Test(cast, cpus_agree) {
    static const enum tc_dtype pairs[][2] = {{TC_BF16, TC_F32}, {TC_F32, TC_BF16},
                                             {TC_F16, TC_F32},  {TC_F32, TC_F16},
                                             {TC_F32, TC_F64},  {TC_F64, TC_F32}};
    enum { COUNT = 100003 };
    unsigned char *in = malloc(8 * COUNT + 1), *a = malloc(8 * COUNT + 1),
                  *b = malloc(8 * COUNT + 1);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < 8 * COUNT + 1; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        in[i] = (unsigned char)state;
    }
    for (size_t p = 0; p < 6; p++) {
        struct tc_cast_report first = {0}, second = {0};
        cr_assert(tc_cpu_use("plain"));
        tc_cast(pairs[p][0], pairs[p][1], in + 1, a + 1, COUNT, &first);
        if (!tc_cpu_use("avx2"))
            continue;
        tc_cast(pairs[p][0], pairs[p][1], in + 1, b + 1, COUNT, &second);
        cr_assert_arr_eq(a + 1, b + 1, COUNT * size_of(pairs[p][1]));
        cr_assert_eq(first.overflow, second.overflow);
        cr_assert_eq(first.inexact, second.inexact);
        cr_assert(first.max_abs == second.max_abs && first.max_rel == second.max_rel);
    }
    free(in);
    free(a);
    free(b);
}

/* Casting to a wider type and back keeps every pattern, signalling NaN too. */
static void check_back(enum tc_dtype narrow, enum tc_dtype wide) {
    for (unsigned bits = 0; bits < 1u << tc_dtype_bits(narrow); bits++) {
        uint64_t middle = 0;
        unsigned back = 0;
        tc_cast(narrow, wide, &bits, &middle, 1, NULL);
        tc_cast(wide, narrow, &middle, &back, 1, NULL);
        cr_assert_eq(back, bits, "%s %x through %s is %x", tc_dtype_name(narrow), bits,
                     tc_dtype_name(wide), back);
    }
}

Test(cast, widening_is_injective) {
    static const enum tc_dtype wide[] = {TC_F16, TC_BF16, TC_F32, TC_F64};
    for (enum tc_dtype narrow = 0; narrow < TC_DTYPES; narrow++)
        for (size_t i = 0; i < 4; i++)
            if (narrow != TC_BOOL && !tc_dtype_packed(narrow) && tc_dtype_bits(narrow) <= 16 &&
                narrow != wide[i] && tc_cast_lossless(narrow, wide[i]))
                check_back(narrow, wide[i]);
}

Test(cast, f32_nan_payloads_through_f64) {
    for (uint32_t low = 1; low < 0x800000; low += 4099)
        for (int sign = 0; sign < 2; sign++) {
            uint32_t bits = 0x7F800000u | low | (uint32_t)sign << 31, back;
            uint64_t wide;
            tc_cast(TC_F32, TC_F64, &bits, &wide, 1, NULL);
            cr_assert_eq(wide, (uint64_t)(bits >> 31) << 63 | UINT64_C(0x7FF) << 52 |
                                   (uint64_t)low << 29);
            tc_cast(TC_F64, TC_F32, &wide, &back, 1, NULL);
            cr_assert_eq(back, bits);
        }
}

/* By way of F32 a value near a tie would be rounded twice. */
Test(cast, f64_to_f16_rounds_once) {
    double value = 1 + ldexp(1, -11) + ldexp(1, -40);
    uint16_t bits;
    tc_cast(TC_F64, TC_F16, &value, &bits, 1, NULL);
    cr_assert_eq(bits, 0x3C01);
    value = 1 + ldexp(1, -11);
    tc_cast(TC_F64, TC_F16, &value, &bits, 1, NULL);
    cr_assert_eq(bits, 0x3C00);
}

Test(cast, complex_numbers) {
    static const float pair[4] = {1.5f, -2, 70000, 0};
    uint16_t half[4];
    double wide[4], real[2];
    tc_cast(TC_C64, TC_C32, pair, half, 2, NULL);
    cr_assert(half[0] == 0x3E00 && half[1] == 0xC000 && half[2] == 0x7C00 && half[3] == 0);
    tc_cast(TC_C64, TC_C128, pair, wide, 2, NULL);
    cr_assert(wide[0] == 1.5 && wide[1] == -2 && wide[2] == 70000 && wide[3] == 0);
    struct tc_cast_report report = {0};
    tc_cast(TC_C64, TC_F64, pair, real, 2, &report);
    cr_assert(real[0] == 1.5 && real[1] == 70000);
    cr_assert_eq(report.inexact, 1, "one imaginary part is lost");
    cr_assert(report.max_abs == 2);
    tc_cast(TC_F64, TC_C64, real, half, 1, NULL);
    cr_assert(tc_cast_lossless(TC_F32, TC_C64) && !tc_cast_lossless(TC_C64, TC_F32));
}

Test(cast, the_report_says_what_was_lost) {
    static const float values[] = {1, 1.0009765625f, 65536, 1e-9f, 0, -0.0f, INFINITY, 3};
    uint16_t half[8];
    struct tc_cast_report report = {0};
    tc_cast(TC_F32, TC_F16, values, half, 8, &report);
    cr_assert_eq(report.overflow, 1);
    cr_assert_eq(report.underflow, 1);
    cr_assert_eq(report.inexact, 2);
    static const double wide[] = {300, -1, 2.5, NAN, 1e300, 7};
    uint8_t bytes[6];
    report = (struct tc_cast_report){0};
    tc_cast(TC_F64, TC_U8, wide, bytes, 6, &report);
    cr_assert_arr_eq(bytes, ((const uint8_t[]){255, 0, 2, 0, 255, 7}), 6);
    cr_assert_eq(report.overflow, 3);
    cr_assert_eq(report.nan_made, 1);
    cr_assert_eq(report.inexact, 5);
    report = (struct tc_cast_report){0};
    int64_t big = (INT64_C(1) << 53) + 1;
    double rounded;
    tc_cast(TC_I64, TC_F64, &big, &rounded, 1, &report);
    cr_assert(report.inexact == 1 && report.max_abs == 1);
}

/* Many elements are cast by a table of values, with the same bits and counts. */
Test(cast, tables_agree_with_single_elements) {
    static const enum tc_dtype pairs[][2] = {
        {TC_F8_E4M3, TC_F16}, {TC_F8_E5M2FNUZ, TC_BF16}, {TC_I8, TC_U8},   {TC_F16, TC_F8_E4M3},
        {TC_BF16, TC_F16},    {TC_BOOL, TC_F64},         {TC_F16, TC_C128}};
    enum { COUNT = 200001 };
    uint16_t *in = malloc(COUNT * sizeof *in);
    unsigned char *many = malloc(16 * COUNT), single[16];
    for (size_t i = 0; i < COUNT; i++)
        in[i] = (uint16_t)(i * 40503u >> 3);
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        struct tc_cast_report all = {0}, one_by_one = {0};
        size_t from = size_of(pairs[p][0]), to = size_of(pairs[p][1]);
        tc_cast(pairs[p][0], pairs[p][1], in, many, COUNT, &all);
        for (size_t i = 0; i < COUNT; i++) {
            tc_cast(pairs[p][0], pairs[p][1], (char *)in + i * from, single, 1, &one_by_one);
            cr_assert_arr_eq(many + i * to, single, to);
        }
        cr_assert_eq(all.inexact, one_by_one.inexact);
        cr_assert_eq(all.overflow, one_by_one.overflow);
        cr_assert_eq(all.underflow, one_by_one.underflow);
        cr_assert_eq(all.nan_made, one_by_one.nan_made);
        cr_assert(all.max_abs == one_by_one.max_abs && all.max_rel == one_by_one.max_rel);
    }
    free(in);
    free(many);
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Random bits, and for F32 and F64 values near the ends of what smaller dtypes hold. */
static void fill_random(enum tc_dtype dtype, unsigned char *bytes, size_t count, uint64_t *state) {
    static const double ends[] = {1,       127,      128,     255,          448,    480,
                                  57344,   61440,    65504,   4294967295.0, 3.4e38, 1e-7,
                                  6e-8,    0.015625, 1e-40,   0x1p63,       0x1p64, 2147483647.0,
                                  32767.5, 0,        INFINITY};
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = next_random(state);
        double value = ends[bits % 21] * (1 + ((double)(bits >> 32 & 0xFFF) - 2048) * 0x1p-18);
        float narrow = (float)value;
        bool near = bits >> 50 & 1;
        if (dtype == TC_F64 && near)
            memcpy(&bits, &value, sizeof bits);
        if (dtype == TC_F32 && near)
            memcpy(&bits, &narrow, sizeof narrow);
        if (dtype == TC_BOOL)
            bits &= 1;
        memcpy(bytes + i * size_of(dtype), &bits, size_of(dtype) < 8 ? size_of(dtype) : 8);
    }
}

/* What weights are like, in the source's dtype: neither Inf nor NaN, of few bits or many, about 1
 * or small or, in one of three rounds, so large that they leave a range. */
static void fill_usual(enum tc_dtype dtype, unsigned char *bytes, size_t count, int round,
                       uint64_t *state) {
    static const double sizes[] = {1, 0x1p-9, 300, 70000, 0x1p33, 0x1p64, 1e-30};
    bool parts = is_complex(dtype);
    for (size_t i = 0; i < count; i++) {
        double pair[2] = {0};
        for (int part = 0; part < 2; part++) {
            uint64_t bits = next_random(state);
            double value = (double)(bits >> 12) * 0x1p-51 - 1;
            if (bits & 1)
                value = (double)(int64_t)(value * 64) / 32;
            pair[part] = value * sizes[round < 2 ? bits / 2 % 2 : bits / 2 % 7];
            if (round == 1 && !(bits / 8 % 4))
                pair[part] = bits & 64 ? -0.0 : 1.0625 * ldexp(1, (int)(bits / 128 % 9) - 4);
        }
        tc_cast(parts ? TC_C128 : TC_F64, dtype, pair, bytes + i * size_of(dtype), 1, NULL);
    }
}

/* Loops over many elements give what one element at a time gives, and the same report: for any
 * bits, and in the rounds from 0 on for usual values. */
static void check_many(enum tc_dtype from, enum tc_dtype to, int round) {
    enum { MANY = TEST_SANITIZED ? 700 : 3000 };
    static unsigned char in[16 * MANY], many[16 * MANY], one[16 * MANY];
    uint64_t state = 88172645463325252u + from * 31u + to;
    struct tc_cast_report sums[2] = {0};
    memset(in, 0, sizeof in);
    if (round < 0)
        fill_random(from, in, MANY, &state);
    else
        fill_usual(from, in, MANY, round, &state);
    tc_cast(from, to, in, many, MANY, &sums[0]);
    for (size_t i = 0; i < MANY; i++)
        tc_cast(from, to, in + i * size_of(from), one + i * size_of(to), 1, &sums[1]);
    cr_assert_arr_eq(many, one, MANY * size_of(to), "%s to %s", tc_dtype_name(from),
                     tc_dtype_name(to));
    /* The loops from F32 to F16 and BF16 divide in F32. */
    bool divides =
        (from == TC_F32 || from == TC_C64) && (to == TC_F16 || to == TC_BF16 || to == TC_C32);
    double margin = divides ? 0x1p-23 * sums[1].max_rel : 0;
    cr_assert(sums[0].overflow == sums[1].overflow && sums[0].underflow == sums[1].underflow &&
                  sums[0].nan_made == sums[1].nan_made && sums[0].inexact == sums[1].inexact &&
                  sums[0].max_abs == sums[1].max_abs &&
                  (sums[0].max_rel == sums[1].max_rel ||
                   fabs(sums[0].max_rel - sums[1].max_rel) <= margin),
              "report of %s to %s, round %d", tc_dtype_name(from), tc_dtype_name(to), round);
}

Test(cast, many_agree_with_single_elements, .timeout = 600) {
    static const char *const cpus[] = {"plain", "avx2"};
    for (size_t cpu = 0; cpu < 2; cpu++) {
        if (!tc_cpu_use(cpus[cpu]))
            continue;
        for (int from = 0; from < TC_DTYPES; from++)
            for (int to = 0; to < TC_DTYPES; to++)
                if (from != to && !tc_dtype_is_block((enum tc_dtype)from) &&
                    tc_cast_exists((enum tc_dtype)from, (enum tc_dtype)to))
                    for (int round = -1; round < 3; round++)
                        check_many((enum tc_dtype)from, (enum tc_dtype)to, round);
    }
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
    /* tc_dtype_promote only gives dtypes that keep every value. */
    for (enum tc_dtype from = 0; from < TC_DTYPES; from++)
        for (enum tc_dtype to = 0; to < TC_DTYPES; to++)
            if (tc_dtype_promote(from, TC_SET(to)) == to)
                cr_assert(tc_cast_lossless(from, to), "%s to %s", tc_dtype_name(from),
                          tc_dtype_name(to));
}
