/*
 * Conversion of elements from any numeric dtype to any other.
 *
 * Widening is exact and injective: the sign and payload of a NaN are kept, and a
 * signalling NaN stays one, so narrowing back gives the original bits. Narrowing
 * rounds to nearest, ties to even; what is too large becomes Inf, or NaN where
 * the target has no Inf. To an integer, fractions are cut off towards zero; NaN
 * and values out of range are counted, and become 0 and the nearest end of the
 * range. A complex number loses its imaginary part in a real dtype. From a block
 * dtype the values are those that F32 holds (core/tensor/block.h); there is no
 * conversion to one. Any thread may cast.
 */
#ifndef TCONV_CORE_TENSOR_CAST_H
#define TCONV_CORE_TENSOR_CAST_H

#include <stddef.h>

#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"

/* Whether there is a conversion: between all but the packed dtypes, and from block dtypes. */
bool tc_cast_exists(enum tc_dtype from, enum tc_dtype to);
/* Whether the conversion keeps every value of `from`. */
bool tc_cast_lossless(enum tc_dtype from, enum tc_dtype to);

/* `count` elements, whole blocks, as files have them, at any alignment; from and to
 * must not overlap. `report` may be NULL, which is faster. */
void tc_cast(enum tc_dtype from, enum tc_dtype to, const void *source, void *target, size_t count,
             struct tc_cast_report *report);

#endif
