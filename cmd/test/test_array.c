/* Arrays and numbers as text; the expected text is numpy 2.4's. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "cmd/array.h"
#include "core/base/digits.h"
#include "core/base/text.h"

static char printed[4096];

static void keep(struct tc_buffer *text) {
    (void)text;
}

static const char *print(struct array *array) {
    struct tc_buffer text = {0};
    cr_assert(array_plan(array, false));
    array_print(array, keep, &text);
    snprintf(printed, sizeof printed, "%.*s", (int)text.length, text.bytes);
    tc_buffer_release(&text);
    return printed;
}

static const char *print_reals(enum tc_precision precision, double *values, uint64_t count) {
    struct array array = {
        .kind = ARRAY_REAL, .precision = precision, .rank = 1, .shape = {count}, .reals = values};
    return print(&array);
}

static const char *repr(double value, enum tc_precision kind) {
    struct tc_buffer text = {0};
    tc_buffer_add_repr(&text, value, kind);
    snprintf(printed, sizeof printed, "%.*s", (int)text.length, text.bytes);
    tc_buffer_release(&text);
    return printed;
}

Test(number, repr) {
    cr_assert_str_eq(repr(0.1, TC_PRECISION_F64), "0.1");
    cr_assert_str_eq(repr(1, TC_PRECISION_F64), "1.0");
    cr_assert_str_eq(repr(-0.0, TC_PRECISION_F64), "-0.0");
    cr_assert_str_eq(repr(1e16, TC_PRECISION_F64), "1e+16");
    cr_assert_str_eq(repr(123456789012345680, TC_PRECISION_F64), "1.2345678901234568e+17");
    cr_assert_str_eq(repr(0.00001, TC_PRECISION_F64), "1e-05");
    cr_assert_str_eq(repr(0x1p-1074, TC_PRECISION_F64), "5e-324");
    cr_assert_str_eq(repr((double)0.1f, TC_PRECISION_F32), "0.1");
    cr_assert_str_eq(repr((double)0.1f, TC_PRECISION_F64), "0.10000000149011612");
    cr_assert_str_eq(repr(1e6, TC_PRECISION_F32), "1e+06");
    cr_assert_str_eq(repr(65504, TC_PRECISION_F16), "6.55e+04");
    cr_assert_str_eq(repr((double)NAN, TC_PRECISION_F64), "nan");
}

/* Values below a power of two lie closer: the nearest short text is theirs. */
Test(number, powers_of_two) {
    cr_assert_str_eq(repr(0x1p-44, TC_PRECISION_F64), "5.684341886080802e-14");
    cr_assert_str_eq(repr(0x1p-96, TC_PRECISION_F32), "1.2621775e-29");
    cr_assert_str_eq(repr(0x1p53, TC_PRECISION_F64), "9007199254740992.0");
}

Test(array, floats) {
    double mixed[] = {1, 2.5, -3.25, 100};
    cr_assert_str_eq(print_reals(TC_PRECISION_F64, mixed, 4), "[  1.     2.5   -3.25 100.  ]\n");
    double special[] = {1, (double)NAN, -(double)INFINITY};
    cr_assert_str_eq(print_reals(TC_PRECISION_F64, special, 3), "[  1.  nan -inf]\n");
    double wide[] = {1e-5, 1, 12345.678};
    cr_assert_str_eq(print_reals(TC_PRECISION_F64, wide, 3),
                     "[1.0000000e-05 1.0000000e+00 1.2345678e+04]\n");
    double third[] = {1.0 / 3};
    cr_assert_str_eq(print_reals(TC_PRECISION_F64, third, 1), "[0.33333333]\n");
    double large[] = {1e100};
    cr_assert_str_eq(print_reals(TC_PRECISION_F64, large, 1), "[1.e+100]\n");
    double halves[] = {1000, 1};
    cr_assert_str_eq(print_reals(TC_PRECISION_F16, halves, 2), "[1.e+03 1.e+00]\n");
    cr_assert_str_eq(print_reals(TC_PRECISION_F32, halves, 2), "[1000.    1.]\n");
    cr_assert_str_eq(print_reals(TC_PRECISION_F32, halves, 0), "[]\n");
}

Test(array, axes) {
    uint64_t values[] = {0, 1, 2, (uint64_t)-3, 4, 5, 6, 7};
    struct array array = {.kind = ARRAY_INTEGER,
                          .is_signed = true,
                          .rank = 3,
                          .shape = {2, 2, 2},
                          .integers = values};
    cr_assert_str_eq(print(&array), "[[[ 0  1]\n  [ 2 -3]]\n\n [[ 4  5]\n  [ 6  7]]]\n");
    array.kind = ARRAY_TRUTH;
    array.rank = 1;
    array.shape[0] = 3;
    cr_assert_str_eq(print(&array), "[False  True  True]\n");
    array.rank = 0;
    cr_assert_str_eq(print(&array), "False\n");
}

/* Only what is kept is there. */
Test(array, summarised) {
    uint64_t values[36];
    struct array array = {.kind = ARRAY_INTEGER, .rank = 2, .shape = {100, 50}, .integers = values};
    for (uint64_t i = 0; i < 36; i++)
        values[i] = i;
    cr_assert_str_eq(print(&array), "[[ 0  1  2 ...  3  4  5]\n"
                                    " [ 6  7  8 ...  9 10 11]\n"
                                    " [12 13 14 ... 15 16 17]\n"
                                    " ...\n"
                                    " [18 19 20 ... 21 22 23]\n"
                                    " [24 25 26 ... 27 28 29]\n"
                                    " [30 31 32 ... 33 34 35]]\n");
    cr_assert_eq(array.count, 36);
    array.shape[0] = 100;
    array.shape[1] = 10;
    cr_assert(array_plan(&array, false) && array.count == 1000);
    array.shape[0] = UINT64_MAX;
    cr_assert_not(array_plan(&array, false));
}

Test(array, complex) {
    double reals[] = {1, -2.5}, imaginaries[] = {0.5, -(double)NAN};
    struct array array = {.kind = ARRAY_COMPLEX,
                          .precision = TC_PRECISION_F64,
                          .rank = 1,
                          .shape = {2},
                          .reals = reals,
                          .imaginaries = imaginaries};
    cr_assert_str_eq(print(&array), "[ 1. +0.5j -2.5+nanj]\n");
    array.rank = 0;
    cr_assert_str_eq(print(&array), "(1+0.5j)\n");
    reals[0] = 0;
    cr_assert_str_eq(print(&array), "0.5j\n");
}
