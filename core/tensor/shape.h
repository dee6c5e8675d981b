/* Shapes: how many elements and bytes, and how they are printed. */
#ifndef TCONV_CORE_TENSOR_SHAPE_H
#define TCONV_CORE_TENSOR_SHAPE_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"

/* Number of elements, and bytes, of a shape whose dimensions a file gave.
 * Overflow is refused whatever the order of the dimensions: a zero among
 * them does not hide that the others overflow. */
bool tc_shape_measure(enum tc_dtype dtype, const uint64_t *shape, unsigned rank, uint64_t *count,
                      uint64_t *nbytes, struct tc_error *error);
/* Number of elements of a shape that was measured, so that it does not overflow. */
uint64_t tc_shape_count(const uint64_t *shape, unsigned rank);
bool tc_shape_equal(const uint64_t *a, unsigned a_rank, const uint64_t *b, unsigned b_rank);
/* "[2,3]" */
void tc_shape_print(struct tc_buffer *buffer, const uint64_t *shape, unsigned rank);

#endif
