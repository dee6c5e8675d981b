/* What we take from libsodium. */
#ifndef TCONV_CORE_SODIUM_H
#define TCONV_CORE_SODIUM_H

#include <stddef.h>
#include <stdint.h>

/* SipHash-2-4: a keyed hash for tables of untrusted names. */
uint64_t tc_shorthash(const uint8_t key[16], const void *bytes, size_t length);

#endif
