/*
 * The codebooks of ggml's IQ types. An entry is a point of a lattice: 8 coordinates of 2 bits, or
 * 4 of 4 bits, the first in the lowest bits. What a coordinate stands for is in block.inc.
 */
#ifndef TCONV_CORE_TENSOR_BLOCK_CODEBOOKS_H
#define TCONV_CORE_TENSOR_BLOCK_CODEBOOKS_H

#include <stdint.h>

extern const uint16_t tc_book_iq2_xxs[256];
extern const uint16_t tc_book_iq2_xs[512];
extern const uint16_t tc_book_iq2_s[1024];
extern const uint16_t tc_book_iq3_xxs[256];
extern const uint16_t tc_book_iq3_s[512];
extern const uint16_t tc_book_iq1_s[2048];

#endif
