/* Little-endian numbers as files have them, of one to eight bytes. */
#ifndef TCONV_CORE_BASE_LITTLE_ENDIAN_H
#define TCONV_CORE_BASE_LITTLE_ENDIAN_H

#include <stdint.h>

/* These loads and stores work on any machine, but the values of tensors are used and written in
 * the machine's own byte order. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tconv runs on little-endian machines only: on this one every value would be wrong"
#endif

static inline uint64_t tc_load(const void *from, unsigned count) {
    const unsigned char *bytes = from;
    uint64_t value = 0;
    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

static inline void tc_store(void *to, uint64_t value, unsigned count) {
    unsigned char *bytes = to;
    for (unsigned i = 0; i < count; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
}

#endif
