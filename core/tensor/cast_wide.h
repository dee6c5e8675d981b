/*
 * Conversions by way of F64, which holds every value of all dtypes but of the largest integers:
 * from each to F64 and from F64 to each, in loops that the compiler vectorises. There is one table
 * per set of instructions, all compiled from the same source.
 */
#ifndef TCONV_CORE_TENSOR_CAST_WIDE_H
#define TCONV_CORE_TENSOR_CAST_WIDE_H

#include <stddef.h>

#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"

/* Makes F64 of `count` elements; false where one of them can't be held, and the rest is undefined.
 */
typedef bool tc_wide_decode(const void *source, void *doubles, size_t count);
/* Makes elements of F64, rounded once. */
typedef void tc_wide_encode(const void *doubles, void *target, size_t count);
/* Adds to the report what became of values, given what the results are as F64. For integers `low`
 * and `high` are the ends of their range. */
typedef void tc_wide_compare(const void *doubles, const void *results, size_t count, double low,
                             double high, struct tc_cast_report *report);

struct tc_wide_table {
    tc_wide_decode *decode[TC_DTYPES]; /* NULL: there is none */
    tc_wide_encode *encode[TC_DTYPES];
    tc_wide_compare *compare_floats; /* `low` and `high` do not matter */
    tc_wide_compare *compare_integers;
    tc_wide_compare
        *compare_powers; /* F8_E8M0, for which zero and what is negative are no numbers */
};

extern const struct tc_wide_table tc_wide_plain;
#if defined(__x86_64__)
extern const struct tc_wide_table tc_wide_avx2;
#endif

#endif
