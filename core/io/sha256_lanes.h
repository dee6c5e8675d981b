/*
 * SHA-256 of several streams at once, by the CPU's instructions for it. They take longer to end
 * than to begin, so that one core hashes two streams side by side in 1.4 times the time of one, and
 * four in 2.3 times.
 */
#ifndef TCONV_CORE_IO_SHA256_LANES_H
#define TCONV_CORE_IO_SHA256_LANES_H

#include <stddef.h>
#include <stdint.h>

#define TC_SHA256_BLOCK ((size_t)64)
#define TC_SHA256_LANES 4u

struct tc_sha256_lane {
    uint32_t *state; /* eight words, as FIPS 180-4 names them a to h */
    const unsigned char *bytes;
    size_t blocks; /* of TC_SHA256_BLOCK bytes */
};

/* Adds whole blocks to each of 1 to TC_SHA256_LANES streams. Only where tc_cpu_sha. */
void tc_sha256_lanes(struct tc_sha256_lane *lanes, size_t count);

#endif
