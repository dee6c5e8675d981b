/* What tconv uses of libsodium: a keyed hash and signatures; and random bytes. */
#ifndef TCONV_CORE_BASE_SODIUM_H
#define TCONV_CORE_BASE_SODIUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that nobody can guess, for keys of hashes and temporary names. Where the system has none
 * yet, at boot, they are made from those that every program gets from the kernel. */
void tc_random(void *bytes, size_t length);

/* SipHash-2-4: a keyed hash for tables of untrusted names. */
uint64_t tc_shorthash(const uint8_t key[16], const void *bytes, size_t length);

/* Ed25519 (RFC 8032). The secret is the seed that the standard calls private key. */
#define TC_KEY_BYTES 32
#define TC_SIGNATURE_BYTES 64

/* False where the system gives no random bytes. */
bool tc_key_make(unsigned char secret[TC_KEY_BYTES], unsigned char public[TC_KEY_BYTES]);
/* Signs, and gives the public key that belongs to the secret. */
bool tc_sign(const unsigned char secret[TC_KEY_BYTES], const void *bytes, size_t length,
             unsigned char signature[TC_SIGNATURE_BYTES], unsigned char public[TC_KEY_BYTES]);
bool tc_signature_valid(const unsigned char public[TC_KEY_BYTES], const void *bytes, size_t length,
                        const unsigned char signature[TC_SIGNATURE_BYTES]);
/* Overwrites a secret, which a compiler might leave out of a plain memset. */
void tc_forget(void *bytes, size_t length);

#endif
