/*
 * The values of dtypes as numbers, exactly, and casts of one element after the other by way of
 * them: what every faster way must agree with, to the bit.
 */
#ifndef TCONV_CORE_TENSOR_CAST_NUMBER_H
#define TCONV_CORE_TENSOR_CAST_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"

enum tc_family {
    TC_FAMILY_INTEGER,
    TC_FAMILY_IEEE,
    TC_FAMILY_FINITE_ONLY,
    TC_FAMILY_UNSIGNED_ZERO,
    TC_FAMILY_POWER,
    TC_FAMILY_TRUTH
};

/* How a component of each dtype represents its values. TC_FAMILY_FINITE_ONLY (E4M3) has no
 * Inf, and NaN where all bits are set; TC_FAMILY_UNSIGNED_ZERO (FNUZ) has NaN in place of
 * -0; TC_FAMILY_POWER (E8M0) is an exponent alone. */
struct tc_layout {
    enum tc_family family;
    uint8_t bytes;
    uint8_t exponent; /* bits; of an integer: 1 where it has a sign */
    uint8_t mantissa; /* bits; of an integer: those of its magnitude */
    int16_t bias;
    uint8_t components;
};

extern const struct tc_layout tc_layouts[TC_DTYPES]; /* of no bytes: there is no such cast */

/* Any pair, one element at a time; `report` may be NULL. */
void tc_cast_singly(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                    unsigned char *target, size_t count, struct tc_cast_report *report);
/* Adds the values of a real dtype that became zero because there is no place for them; a zero is no
 * loss. */
void tc_cast_lose(enum tc_dtype dtype, const unsigned char *lost, size_t count,
                  struct tc_cast_report *report);

#endif
