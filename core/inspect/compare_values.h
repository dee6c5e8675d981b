/*
 * Comparing elements: by their bits, or as numbers within a tolerance.
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

/* Summed over all calls for one pair of tensors. Errors are of differing
 * elements only; one to which NaN has no number is left out of them. */
struct tc_value_diff {
    uint64_t differing;
    uint64_t bits_only; /* of those: zeros of both signs, NaNs of other bits */
    uint64_t nan;       /* of those: NaN on one side only */
    double max_abs;
    double max_rel; /* |a - b| / |b|; infinite where b is zero */
    uint64_t first; /* which element */
    uint64_t worst; /* that of max_abs, or the first */
};

/* Whether elements of these dtypes can be compared: packed ones only with
 * their like, and others with one another only as numbers. */
bool tc_values_comparable(enum tc_dtype a, enum tc_dtype b, bool numeric);

/* Elements [at, at + count) of both; those of packed dtypes fill whole bytes. */
void tc_values_compare(const struct tc_tolerance *tolerance, enum tc_dtype a, enum tc_dtype b,
                       const void *x, const void *y, size_t count, uint64_t at,
                       struct tc_value_diff *diff);

#endif
