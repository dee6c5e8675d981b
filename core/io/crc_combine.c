#include "core/io/crc_combine.h"

#include "core/io/deflate.h"

/* The polynomials, with their bits reversed as those of the CRCs are: the highest bit is that of
 * x^0. */
#define CRC32_POLYNOMIAL 0xEDB88320u
#define CRC32C_POLYNOMIAL 0x82F63B78u
#define STEP ((size_t)1 << 14)
#define ONE (UINT32_C(1) << 31)

/* The product of two polynomials over GF(2), modulo a third. */
static uint32_t multiply(uint32_t a, uint32_t b, uint32_t polynomial) {
    uint32_t product = 0;
    for (uint32_t bit = ONE; bit && a; bit >>= 1) {
        product ^= a & bit ? b : 0;
        a &= ~bit;
        b = b & 1 ? b >> 1 ^ polynomial : b >> 1;
    }
    return product;
}

/* Behind a piece, a zero byte multiplies its CRC by x^8; so many bytes do by a power of that, which
 * is found by squaring. */
static uint32_t moved(uint32_t crc, uint64_t behind, uint32_t polynomial) {
    uint32_t power = ONE >> 8; /* x^8 */
    for (; behind; behind >>= 1) {
        if (behind & 1)
            crc = multiply(power, crc, polynomial);
        power = multiply(power, power, polynomial);
    }
    return crc;
}

uint32_t tc_crc32_moved(uint32_t crc, uint64_t behind) {
    return moved(crc, behind, CRC32_POLYNOMIAL);
}

uint32_t tc_crc32c_moved(uint32_t crc, uint64_t behind) {
    return moved(crc, behind, CRC32C_POLYNOMIAL);
}

uint64_t tc_sum_of(const void *bytes, size_t length) {
    return tc_sum_add(0, bytes, length);
}

/* In steps that stay in the cache between the two. */
uint64_t tc_sum_add(uint64_t sum, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    uint32_t high = (uint32_t)(sum >> 32);
    uint32_t low = (uint32_t)sum;
    while (length) {
        size_t step = length < STEP ? length : STEP;
        high = tc_crc32(high, at, step);
        low = tc_crc32c(low, at, step);
        at += step;
        length -= step;
    }
    return (uint64_t)high << 32 | low;
}

uint64_t tc_sum_moved(uint64_t sum, uint64_t behind) {
    return (uint64_t)tc_crc32_moved((uint32_t)(sum >> 32), behind) << 32 |
           tc_crc32c_moved((uint32_t)sum, behind);
}
