/*
 * Unpacks elements of 4 and 6 bits, and blocks, to elements of whole bytes. The low bits of a
 * byte come first: the low nibble is the first element of 4 bits; four elements of
 * 6 bits are one little-endian number of three bytes, the first in its low bits.
 */
#ifndef TCONV_CORE_TENSOR_UNPACK_H
#define TCONV_CORE_TENSOR_UNPACK_H

#include <stddef.h>

#include "core/tensor/dtype.h"

/* The dtype that a packed one is unpacked to: U8, I8 or F32, which hold every
 * value; any other is itself. */
enum tc_dtype tc_unpacked(enum tc_dtype dtype);
/* Unpacks `count` elements, of which the first starts with the first byte of
 * `source`; of a block dtype, whole blocks. Bits behind the last element are ignored. */
void tc_unpack(enum tc_dtype dtype, const void *source, void *target, size_t count);

#endif
