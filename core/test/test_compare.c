/* Elements compared by bits and as numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/inspect/compare_values.h"
#include "core/tensor/dtype.h"

static const struct tc_tolerance by_bits;
static const struct tc_tolerance exact = {.numeric = true};

static struct tc_value_diff compare(const struct tc_tolerance *tolerance, enum tc_dtype a,
                                    enum tc_dtype b, const void *x, const void *y, size_t count) {
    struct tc_value_diff diff = {0};
    tc_values_compare(tolerance, a, b, x, y, count, 0, &diff);
    return diff;
}

Test(compare, equal_bits_are_equal_nan_too) {
    const float x[] = {1, NAN, -0.0f, INFINITY};
    struct tc_value_diff diff = compare(&by_bits, TC_F32, TC_F32, x, x, 4);
    cr_assert_eq(diff.differing, 0);
    diff = compare(&exact, TC_F32, TC_F32, x, x, 4);
    cr_assert_eq(diff.differing, 0);
}

Test(compare, bits_that_mean_the_same_differ_by_bits_alone) {
    const uint32_t x[] = {0x7fc00000, 0x00000000, 0x3f800000};
    const uint32_t y[] = {0x7fc00001, 0x80000000, 0x3f800000};
    struct tc_value_diff diff = compare(&by_bits, TC_F32, TC_F32, x, y, 3);
    cr_assert_eq(diff.differing, 2);
    cr_assert_eq(diff.bits_only, 2);
    cr_assert_eq(diff.nan, 0);
    cr_assert_eq(diff.max_abs, 0);
    cr_assert_eq(diff.worst, 0);
    diff = compare(&exact, TC_F32, TC_F32, x, y, 3);
    cr_assert_eq(diff.differing, 0);
}

Test(compare, errors_and_places) {
    float x[1500];
    float y[1500];
    for (size_t i = 0; i < 1500; i++)
        x[i] = y[i] = (float)i;
    x[700] = 701;   /* |1| / 700 */
    x[1400] = 1410; /* |10| / 1400 */
    y[3] = 2;       /* |1| / 2 */
    struct tc_value_diff diff = {.differing = 0};
    tc_values_compare(&by_bits, TC_F32, TC_F32, x, y, 1500, 1000, &diff);
    cr_assert_eq(diff.differing, 3);
    cr_assert_eq(diff.first, 1003);
    cr_assert_eq(diff.worst, 2400);
    cr_assert_eq(diff.max_abs, 10);
    cr_assert_eq(diff.max_rel, 0.5);
}

Test(compare, tolerances_are_of_the_second) {
    const double x[] = {1.0, 100.0, 0.0, 90.0};
    const double y[] = {1.5, 110.0, 1e-9, 100.0};
    const struct tc_tolerance half = {true, 0.5, 0};
    const struct tc_tolerance tenth = {true, 0, 0.1};
    const struct tc_tolerance both = {true, 1e-9, 0.1};
    struct tc_value_diff diff = compare(&half, TC_F64, TC_F64, x, y, 4);
    cr_assert_eq(diff.differing, 2);
    cr_assert_eq(diff.first, 1);
    diff = compare(&tenth, TC_F64, TC_F64, x, y, 4);
    cr_assert_eq(diff.differing, 2);
    cr_assert_eq(diff.first, 0);
    cr_assert_eq(diff.max_abs, 0.5);
    cr_assert_eq(diff.max_rel, 1);
    diff = compare(&both, TC_F64, TC_F64, x, y, 4);
    cr_assert_eq(diff.differing, 1);
    diff = compare(&tenth, TC_F64, TC_F64, y, x, 4); /* |b| is 90 now */
    cr_assert_eq(diff.differing, 3);
    cr_assert(isinf(diff.max_rel));
}

Test(compare, what_is_not_finite) {
    const double x[] = {INFINITY, -INFINITY, NAN, 1, INFINITY, NAN};
    const double y[] = {1e308, INFINITY, 1, NAN, INFINITY, -NAN};
    const struct tc_tolerance wide = {true, 1e300, 1e300};
    struct tc_value_diff diff = compare(&wide, TC_F64, TC_F64, x, y, 6);
    cr_assert_eq(diff.differing, 4);
    cr_assert_eq(diff.nan, 2);
    cr_assert(isinf(diff.max_abs));
    diff = compare(&wide, TC_F64, TC_F64, y, x, 6);
    cr_assert_eq(diff.differing, 4);
}

Test(compare, integers_of_64_bits_are_exact) {
    const int64_t x[] = {INT64_MAX, -1, 5, INT64_MIN};
    const uint64_t y[] = {(uint64_t)INT64_MAX, UINT64_MAX, 5, UINT64_MAX};
    cr_assert(tc_values_comparable(TC_I64, TC_U64, true));
    cr_assert_not(tc_values_comparable(TC_I64, TC_U64, false));
    struct tc_value_diff diff = compare(&exact, TC_I64, TC_U64, x, y, 4);
    cr_assert_eq(diff.differing, 2);
    cr_assert_eq(diff.first, 1);
    cr_assert_eq(diff.worst, 3);
    cr_assert_eq(diff.max_abs, 0x1.8p64);
    const int64_t a[] = {INT64_C(9007199254740993)};
    const int64_t b[] = {INT64_C(9007199254740992)};
    diff = compare(&by_bits, TC_I64, TC_I64, a, b, 1);
    cr_assert_eq(diff.differing, 1);
    cr_assert_eq(diff.max_abs, 1);
    const double c[] = {9007199254740992.0};
    diff = compare(&exact, TC_I64, TC_F64, a, c, 1);
    cr_assert_eq(diff.differing, 1);
    cr_assert_eq(diff.max_abs, 1);
    diff = compare(&exact, TC_F64, TC_I64, c, b, 1);
    cr_assert_eq(diff.differing, 0);
}

Test(compare, across_dtypes) {
    const uint16_t half[] = {0x3c00, 0xc000, 0x7e00, 0x0001};
    const float single[] = {1, -2, NAN, 0x1p-24f};
    const int8_t small[] = {1, -2, 0, 0};
    struct tc_value_diff diff = compare(&exact, TC_F16, TC_F32, half, single, 4);
    cr_assert_eq(diff.differing, 0);
    diff = compare(&exact, TC_F32, TC_F16, single, half, 4);
    cr_assert_eq(diff.differing, 0);
    diff = compare(&exact, TC_I8, TC_F32, small, single, 4);
    cr_assert_eq(diff.differing, 2);
    cr_assert_eq(diff.nan, 1);
    cr_assert_eq(diff.max_abs, 0x1p-24);
    cr_assert_eq(diff.worst, 3);
    cr_assert_eq(diff.max_rel, 1);
}

Test(compare, complex_numbers) {
    const float x[][2] = {{3, 4}, {0, 0}, {INFINITY, 1}, {1, NAN}};
    const float y[][2] = {{0, 0}, {0, 0}, {INFINITY, 2}, {1, 0}};
    struct tc_value_diff diff = compare(&by_bits, TC_C64, TC_C64, x, y, 4);
    cr_assert_eq(diff.differing, 3);
    cr_assert_eq(diff.nan, 1);
    cr_assert_eq(diff.max_abs, 5);
    cr_assert_eq(diff.worst, 0);
    cr_assert(isinf(diff.max_rel));
    const struct tc_tolerance five = {true, 5, 0};
    diff = compare(&five, TC_C64, TC_C64, x, y, 2);
    cr_assert_eq(diff.differing, 0);
    const int64_t z[] = {3};
    diff = compare(&five, TC_C64, TC_I64, x, z, 1);
    cr_assert_eq(diff.differing, 0);
}

Test(compare, truths_and_packed_elements) {
    const unsigned char x[] = {1, 2, 0x12};
    const unsigned char y[] = {1, 1, 0x32};
    struct tc_value_diff diff = compare(&by_bits, TC_BOOL, TC_BOOL, x, y, 2);
    cr_assert_eq(diff.differing, 1);
    cr_assert_eq(diff.first, 1);
    diff = compare(&by_bits, TC_F4, TC_F4, x, y, 6);
    cr_assert_eq(diff.differing, 2);
    cr_assert_eq(diff.first, 2);
    diff = compare(&by_bits, TC_F6_E2M3, TC_F6_E2M3, x, y, 4);
    cr_assert_eq(diff.differing, 2); /* bits 8 and 9, and bit 21 */
    cr_assert_eq(diff.first, 1);
    cr_assert(tc_values_comparable(TC_F4, TC_F4, true));
    cr_assert_not(tc_values_comparable(TC_F4, TC_F32, true));
}
