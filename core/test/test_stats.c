/*
 * Compares statistics with sums that need no rounding: in 128-bit integers where
 * they fit, in long double where that is exact.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/inspect/exact.h"
#include "core/inspect/moments.h"
#include "core/inspect/stats_fast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/unpack.h"

static struct tc_stats stats_of(enum tc_dtype dtype, const void *bytes, size_t length) {
    static struct tc_moments moments;
    struct tc_stats stats;
    moments = (struct tc_moments){0};
    tc_moments_add(&moments, dtype, bytes, length);
    tc_moments_finish(&moments, &stats);
    return stats;
}

static bool same(const struct tc_stats *a, const struct tc_stats *b) {
    return a->count == b->count && a->zeros == b->zeros && a->nonzeros == b->nonzeros &&
           a->nan == b->nan && a->inf == b->inf &&
           memcmp(&a->min.real, &b->min.real, sizeof(double)) == 0 &&
           memcmp(&a->max.real, &b->max.real, sizeof(double)) == 0 &&
           memcmp(&a->mean, &b->mean, sizeof(double)) == 0 &&
           memcmp(&a->stddev, &b->stddev, sizeof(double)) == 0;
}

Test(exact, terms_cancel) {
    struct tc_exact sum = {.pending = 0};
    tc_exact_add_double(&sum, 0x1p1023);
    tc_exact_add_double(&sum, 0x1p-1074);
    tc_exact_add_double(&sum, 1);
    tc_exact_add_double(&sum, -0x1p1023);
    tc_exact_add_double(&sum, -1);
    cr_assert_eq(tc_exact_mean(&sum, 1), 0x1p-1074);
    tc_exact_add_double(&sum, -0x1p-1074);
    cr_assert_eq(tc_exact_mean(&sum, 5), 0);
}

Test(exact, many_of_the_largest) {
    struct tc_exact sum = {.pending = 0};
    for (int i = 0; i < 100000; i++)
        tc_exact_add_double(&sum, -0x1.fffffffffffffp1023);
    cr_assert_eq(tc_exact_mean(&sum, 100000), -0x1.fffffffffffffp1023);
}

Test(exact, rounds_once_to_even) {
    struct tc_exact sum = {.pending = 0};
    tc_exact_add_double(&sum, 1);
    tc_exact_add_double(&sum, 0x1p-53);
    cr_assert_eq(tc_exact_mean(&sum, 1), 1);
    tc_exact_add_double(&sum, 0x1p-1074);
    cr_assert_eq(tc_exact_mean(&sum, 1), 1 + 0x1p-52);
    /* A mean of one third, and one that is subnormal. */
    struct tc_exact third = {.pending = 0}, tiny = {.pending = 0};
    tc_exact_add(&third, 1, false, 0);
    cr_assert_eq(tc_exact_mean(&third, 3), 1.0 / 3);
    tc_exact_add(&tiny, 3, true, -1074);
    cr_assert_eq(tc_exact_mean(&tiny, 2), -0x1p-1073);
}

Test(exact, carries_between_threads) {
    struct tc_exact a = {.pending = 0}, b = {.pending = 0};
    for (int i = 0; i < 1000; i++) {
        tc_exact_add(&a, UINT64_MAX, i % 2, i % 100);
        tc_exact_add(&b, UINT64_MAX, !(i % 2), i % 100);
    }
    tc_exact_merge(&a, &b);
    cr_assert_eq(tc_exact_mean(&a, 2000), 0);
}

Test(exact, deviation) {
    struct tc_exact sum = {.pending = 0}, squares = {.pending = 0};
    const uint64_t values[] = {2, 4, 4, 4, 5, 5, 7, 9};
    for (int i = 0; i < 8; i++) {
        tc_exact_add(&sum, values[i], false, 0);
        tc_exact_add(&squares, values[i] * values[i], false, 0);
    }
    cr_assert_eq(tc_exact_deviation(&sum, &squares, 8), 2);
}

/* Squares of the largest and smallest doubles neither overflow nor become zero. */
Test(stats, extremes) {
    const double large[] = {0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023};
    struct tc_stats stats = stats_of(TC_F64, large, sizeof large);
    cr_assert_eq(stats.mean, 0);
    cr_assert_eq(stats.stddev, 0x1.fffffffffffffp1023);
    const double small[] = {0x1p-1074, -0x1p-1074};
    stats = stats_of(TC_F64, small, sizeof small);
    cr_assert_eq(stats.stddev, 0x1p-1074);
}

/* Values far from zero, where the mean of squares minus the squared mean would lose
 * all digits in floating point. */
Test(stats, no_cancellation) {
    double values[3000];
    for (int i = 0; i < 3000; i++)
        values[i] = 1e15 + i % 3;
    struct tc_stats stats = stats_of(TC_F64, values, sizeof values);
    cr_assert_eq(stats.mean, 1e15 + 1);
    cr_assert_eq(stats.stddev, sqrt(2.0 / 3));
    for (int i = 0; i < 3000; i++)
        values[i] = 0.1;
    stats = stats_of(TC_F64, values, sizeof values);
    cr_assert_eq(stats.mean, 0.1);
    cr_assert_eq(stats.stddev, 0);
}

Test(stats, what_is_not_finite) {
    const float values[] = {1, -2, NAN, INFINITY, -INFINITY, 0, -0.0f, -NAN};
    struct tc_stats stats = stats_of(TC_F32, values, sizeof values);
    cr_assert_eq(stats.count, 8);
    cr_assert_eq(stats.nan, 2);
    cr_assert_eq(stats.inf, 2);
    cr_assert_eq(stats.zeros, 2);
    cr_assert_eq(stats.nonzeros, 2);
    cr_assert_eq(stats.min.real, -2);
    cr_assert_eq(stats.max.real, 1);
    cr_assert_eq(stats.mean, -0.25);
    stats = stats_of(TC_F32, values + 2, 2 * sizeof *values);
    cr_assert(isnan(stats.min.real) && isnan(stats.max.real));
    cr_assert(isnan(stats.mean) && isnan(stats.stddev));
    stats = stats_of(TC_F32, values, 0);
    cr_assert(stats.count == 0 && isnan(stats.mean));
}

Test(stats, integers) {
    const int64_t longs[] = {INT64_MIN, INT64_MAX, 0, -1};
    struct tc_stats stats = stats_of(TC_I64, longs, sizeof longs);
    cr_assert(stats.min.integer && stats.min.negative && stats.min.magnitude == UINT64_C(1) << 63);
    cr_assert(!stats.max.negative && stats.max.magnitude == INT64_MAX);
    cr_assert_eq(stats.mean, -0.5);
    cr_assert_eq(stats.zeros, 1);
    stats = stats_of(TC_U64, longs, sizeof longs);
    cr_assert(!stats.max.negative && stats.max.magnitude == UINT64_MAX);
    cr_assert(stats.min.magnitude == 0);
    const uint32_t words[] = {UINT32_MAX, 0, UINT32_MAX, 0};
    stats = stats_of(TC_U32, words, sizeof words);
    cr_assert_eq(stats.mean, 2147483647.5);
    cr_assert_eq(stats.stddev, 2147483647.5);
    stats = stats_of(TC_I32, words, sizeof words);
    cr_assert_eq(stats.mean, -0.5);
    const uint8_t truths[] = {0, 1, 2, 255};
    stats = stats_of(TC_BOOL, truths, sizeof truths);
    cr_assert_eq(stats.mean, 0.75);
    cr_assert_eq(stats.max.magnitude, 1);
}

Test(stats, complex_by_magnitude) {
    const float values[] = {3, 4, 0, 0, NAN, 1};
    struct tc_stats stats = stats_of(TC_C64, values, sizeof values);
    cr_assert(stats.count == 3 && stats.nan == 1 && stats.zeros == 1);
    cr_assert_eq(stats.max.real, 5);
    cr_assert_eq(stats.mean, 2.5);
    const uint16_t halves[] = {0x4200, 0x4400}; /* 3 + 4i */
    stats = stats_of(TC_C32, halves, sizeof halves);
    cr_assert_eq(stats.mean, 5);
}

Test(stats, packed) {
    const uint8_t nibbles[] = {0x10, 0xF7}; /* 0 1 7 15 */
    struct tc_stats stats = stats_of(TC_U4, nibbles, sizeof nibbles);
    cr_assert(stats.count == 4 && stats.max.magnitude == 15 && stats.mean == 5.75);
    stats = stats_of(TC_I4, nibbles, sizeof nibbles);
    cr_assert(stats.min.negative && stats.min.magnitude == 1 && stats.mean == 1.75);
    stats = stats_of(TC_F4, nibbles, sizeof nibbles); /* 0 0.5 6 -6 */
    cr_assert(stats.min.real == -6 && stats.max.real == 6 && stats.mean == 0.125);
    float values[4];
    const uint8_t sixes[] = {0x41, 0xF0, 0xFF}; /* codes 1, 1, 63, 63 */
    tc_unpack(TC_F6_E2M3, sixes, values, 4);
    cr_assert(values[0] == 0.125f && values[1] == 0.125f && values[2] == -7.5f);
    tc_unpack(TC_F6_E3M2, sixes, values, 4);
    cr_assert(values[0] == 0.0625f && values[3] == -28.0f);
}

/* Values over F32's whole range, far beyond what the fast sums hold. */
static void fill(float *values, size_t count, bool wide) {
    srand(7);
    for (size_t i = 0; i < count; i++) {
        float value = (float)rand() / (float)RAND_MAX - 0.5f;
        values[i] = wide ? ldexpf(value, rand() % 250 - 126) : value;
    }
}

Test(stats, order_and_pieces_do_not_matter) {
    enum { COUNT = 10007 };
    static float values[COUNT];
    for (int wide = 0; wide < 2; wide++) {
        fill(values, COUNT, wide);
        struct tc_stats whole = stats_of(TC_F32, values, sizeof values);
        static struct tc_moments sum, part;
        struct tc_stats stats;
        sum = (struct tc_moments){0};
        for (size_t at = COUNT; at > 0;) { /* backwards, in pieces of all sizes */
            size_t step = (size_t)rand() % 3000 + 1;
            step = step < at ? step : at;
            at -= step;
            part = (struct tc_moments){0};
            tc_moments_add(&part, TC_F32, values + at, step * sizeof *values);
            tc_moments_merge(&sum, &part);
        }
        tc_moments_finish(&sum, &stats);
        cr_assert(same(&whole, &stats));
    }
}

Test(stats, every_set_of_instructions_agrees) {
    enum { COUNT = 5000 };
    static float values[COUNT];
    static double doubles[COUNT];
    static int32_t integers[COUNT];
    fill(values, COUNT, false);
    for (int i = 0; i < COUNT; i++) {
        doubles[i] = ldexp((double)values[i], i % 2000 - 1000);
        integers[i] = (int32_t)((uint32_t)rand() * 2654435761u);
    }
    values[17] = NAN;
    doubles[2345] = -INFINITY;
    struct tc_stats found[2][3];
    for (int set = 0; set < 2; set++) {
        if (!tc_cpu_use(set ? "avx2" : "plain"))
            cr_skip("no AVX2 here");
        found[set][0] = stats_of(TC_F32, values, sizeof values);
        found[set][1] = stats_of(TC_F64, doubles, sizeof doubles);
        found[set][2] = stats_of(TC_I32, integers, sizeof integers);
    }
    for (int i = 0; i < 3; i++)
        cr_assert(same(&found[0][i], &found[1][i]));
}

/* The fast sums are exact, or the function returns false. */
Test(stats, fast_sums_are_exact) {
    double values[TC_STATS_BLOCK] = {0};
    double sums[3];
    for (int i = 0; i < 1000; i++)
        values[i] = (double)((float)(i - 300) / 7);
    long double sum = 0, squares = 0;
    for (int i = 0; i < 1000; i++) {
        sum += (long double)values[i];
        squares += (long double)values[i] * (long double)values[i];
    }
    cr_assert(tc_stats_plain.sum_f32(values, 1000, values[999], sums));
    cr_assert_eq((long double)sums[0], sum);
    cr_assert_eq((long double)sums[1] + (long double)sums[2], squares);
    values[5] = 0x1p-30;
    cr_assert(tc_stats_plain.sum_f32(values, 1000, values[999], sums), "a power of two is short");
    values[5] = (double)0x1.000002p-30f;
    cr_assert_not(tc_stats_plain.sum_f32(values, 1000, values[999], sums));
}
