/*
 * Conversion of elements from one dtype to another.
 *
 * Widening is exact and injective: NaN sign and payload move along, and a
 * signalling NaN stays one, so every bit pattern can be told from its result.
 * Floating-point hardware would quiet signalling NaN; this is integer code.
 */
#ifndef TCONV_CORE_CAST_H
#define TCONV_CORE_CAST_H

#include <stddef.h>

#include "core/dtype.h"

typedef void tc_cast(const void *from, void *to, size_t count);

/* NULL where there is no lossless conversion. `count` is elements; from and
 * to are as the file has them, at any alignment, and must not overlap. */
tc_cast *tc_cast_find(enum tc_dtype from, enum tc_dtype to);

#endif
