#include "core/sodium.h"

#include <sodium/crypto_shorthash.h>
#include <string.h>

_Static_assert(crypto_shorthash_KEYBYTES == 16 && crypto_shorthash_BYTES == 8,
               "SipHash takes a 16-byte key and gives 8 bytes");

uint64_t tc_shorthash(const uint8_t key[16], const void *bytes, size_t length) {
    uint64_t hash;
    unsigned char digest[crypto_shorthash_BYTES];
    crypto_shorthash(digest, bytes, length, key);
    memcpy(&hash, digest, sizeof hash);
    return hash;
}
