/*
 * Conversion of elements from any numeric dtype to any other.
 *
 * Widening is exact and injective: the sign and payload of a NaN are kept, and a
 * signalling NaN stays one, so narrowing back gives the original bits. Narrowing
 * rounds to nearest, ties to even; what is too large becomes Inf, or NaN where
 * the target has no Inf. To an integer, fractions are cut off towards zero; NaN
 * and values out of range are counted, and become 0 and the nearest end of the
 * range. A complex number loses its imaginary part in a real dtype. Any thread
 * may cast.
 */
#ifndef TCONV_CORE_TENSOR_CAST_H
#define TCONV_CORE_TENSOR_CAST_H

#include <stddef.h>

#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"

/* Whether there is a conversion: between all but the packed dtypes. */
bool tc_cast_exists(enum tc_dtype from, enum tc_dtype to);
/* Whether the conversion keeps every value of `from`. */
bool tc_cast_lossless(enum tc_dtype from, enum tc_dtype to);

/* `count` elements, as files have them, at any alignment; from and to must not
 * overlap. `report` may be NULL, which is faster. */
void tc_cast(enum tc_dtype from, enum tc_dtype to, const void *source, void *target, size_t count,
             struct tc_cast_report *report);

/* Which instructions the fast paths use: "avx2", or "plain", which runs on any
 * CPU. It is chosen once by what the CPU has; tests may force one with
 * tc_cast_use, which returns false where the CPU does not have it. */
const char *tc_cast_cpu(void);
bool tc_cast_use(const char *cpu);

#endif
