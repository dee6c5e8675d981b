/*
 * The values of block dtypes, in which ggml keeps quantised weights: a block is 32 to 256 small
 * numbers with their scales. Each value is computed in F32 by the formula of ggml's own code.
 * Every product is exact in F32, and a sum is rounded once, so that neither the order of the
 * operations nor fused ones change a bit; where a result is zero its sign is that of the formula.
 */
#ifndef TCONV_CORE_TENSOR_BLOCK_H
#define TCONV_CORE_TENSOR_BLOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "core/tensor/dtype.h"

/* The F32 values of `count` elements, whole blocks, at any alignment. Any thread may call it. */
void tc_block_dequantise(enum tc_dtype dtype, const void *source, float *target, size_t count);

#endif
