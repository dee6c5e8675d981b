/*
 * The CRC of bytes that several threads have looked at: each takes the CRC of its piece, moves it
 * to the place that the piece has in the whole, and the exclusive or of all is the CRC of the
 * whole, in whichever order they come. Both CRCs of core/io/deflate.h are of this kind. Any thread
 * may call these functions.
 */
#ifndef TCONV_CORE_IO_CRC_COMBINE_H
#define TCONV_CORE_IO_CRC_COMBINE_H

#include <stddef.h>
#include <stdint.h>

/* What the CRC of a piece contributes to that of a whole in which `behind` bytes follow it. */
uint32_t tc_crc32_moved(uint32_t crc, uint64_t behind);
uint32_t tc_crc32c_moved(uint32_t crc, uint64_t behind);

/*
 * A sum of 64 bits, CRC-32 and CRC-32C, which finds what goes wrong by accident when bytes are
 * written and read again. It is no protection against people: SHA-256 is. It takes a tenth of the
 * time, and its pieces may be taken side by side. The sum of nothing is 0.
 */
uint64_t tc_sum_of(const void *bytes, size_t length);
/* The sum of the bytes before and of these behind them. */
uint64_t tc_sum_add(uint64_t sum, const void *bytes, size_t length);
uint64_t tc_sum_moved(uint64_t sum, uint64_t behind);

#endif
