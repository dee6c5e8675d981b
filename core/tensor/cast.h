/*
 * Conversion of elements from any numeric dtype to any other.
 *
 * Widening is exact and injective: NaN sign and payload move along, and a
 * signalling NaN stays one, so narrowing back gives the first bits. Narrowing
 * rounds to nearest, ties to even; what is too large becomes Inf, or NaN where
 * the target has no Inf. To an integer, fractions are cut off towards zero;
 * NaN and what is out of range are counted, and become 0 and the nearest end
 * of the range. A complex number loses its imaginary part to a real dtype.
 */
#ifndef TCONV_CORE_TENSOR_CAST_H
#define TCONV_CORE_TENSOR_CAST_H

#include <stddef.h>

#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"

/* Whether there is a conversion: between all but the packed dtypes. */
bool tc_cast_exists(enum tc_dtype from, enum tc_dtype to);
/* Whether every value survives it: derived from the dtypes' layouts. */
bool tc_cast_lossless(enum tc_dtype from, enum tc_dtype to);

/* `count` elements, as files have them, at any alignment; from and to must not
 * overlap. `report` may be NULL, which is faster. */
void tc_cast(enum tc_dtype from, enum tc_dtype to, const void *source, void *target, size_t count,
             struct tc_cast_report *report);

/* Which instructions the fast paths use: "avx2" or "plain" (any CPU, and the
 * only one off x86-64). Chosen once by what the CPU has; tests may force one.
 * False where the CPU has it not. */
const char *tc_cast_cpu(void);
bool tc_cast_use(const char *cpu);

#endif
