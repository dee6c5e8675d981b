/*
 * Packed elements, of 4 and 6 bits, as elements of whole bytes. A byte's low
 * bits come first: of 4 bits the low nibble, of 6 bits four elements lie in
 * three bytes as one number, lowest first.
 */
#ifndef TCONV_CORE_TENSOR_UNPACK_H
#define TCONV_CORE_TENSOR_UNPACK_H

#include <stddef.h>

#include "core/tensor/dtype.h"

/* The dtype that a packed one is unpacked to: U8, I8 or F32, which hold every
 * value; any other is itself. */
enum tc_dtype tc_unpacked(enum tc_dtype dtype);
/* `count` elements from the first of `source`'s first byte; their bits must
 * end with a byte, or the rest of the last one is left out. */
void tc_unpack(enum tc_dtype dtype, const void *source, void *target, size_t count);

#endif
