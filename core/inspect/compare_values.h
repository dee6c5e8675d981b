/*
 * Compares elements: by their bits, or as numbers within a tolerance.
 *
 * Numbers are compared exactly, whatever their dtypes: as F64 where that holds
 * every value of both, else as 128-bit integers or in extended precision.
 */
#ifndef TCONV_CORE_INSPECT_COMPARE_VALUES_H
#define TCONV_CORE_INSPECT_COMPARE_VALUES_H

#include <stddef.h>

#include "core/tensor/dtype.h"

/* By bits, or with `numeric`: equal where |a - b| <= absolute + relative × |b|,
 * both are NaN, or both are the same infinity. */
struct tc_tolerance {
    bool numeric;
    double absolute;
    double relative;
};

/* Summed over all calls for one pair of tensors. The errors are those of differing
 * elements, without elements of which one side is NaN. */
struct tc_value_diff {
    uint64_t differing;
    uint64_t bits_only; /* of these: equal numbers of different bits (zeros, NaNs) */
    uint64_t nan;       /* of these: NaN on one side only */
    double max_abs;
    double max_rel; /* |a - b| / |b|; infinite where b is zero */
    uint64_t first; /* index of the first differing element */
    uint64_t worst; /* index of the element of max_abs, or the first */
};

/* Whether elements of these dtypes can be compared: packed dtypes only with the
 * same dtype, and two other dtypes only as numbers. */
bool tc_values_comparable(enum tc_dtype a, enum tc_dtype b, bool numeric);

/* Compares elements [at, at + count) of both; packed ones must fill whole bytes. */
void tc_values_compare(const struct tc_tolerance *tolerance, enum tc_dtype a, enum tc_dtype b,
                       const void *x, const void *y, size_t count, uint64_t at,
                       struct tc_value_diff *diff);

#endif
