#include "core/base/sodium.h"

#include <sodium.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>

_Static_assert(crypto_shorthash_KEYBYTES == 16 && crypto_shorthash_BYTES == 8,
               "SipHash takes a 16-byte key and gives 8 bytes");

_Static_assert(crypto_sign_SEEDBYTES == TC_KEY_BYTES && crypto_sign_BYTES == TC_SIGNATURE_BYTES &&
                   crypto_sign_PUBLICKEYBYTES == TC_KEY_BYTES,
               "Ed25519 has keys of 32 bytes and signatures of 64");

void tc_random(void *bytes, size_t length) {
    if (getrandom(bytes, length, GRND_NONBLOCK) == (ssize_t)length)
        return;
    const unsigned char *key = (const unsigned char *)(uintptr_t)getauxval(AT_RANDOM);
    char *at = bytes;
    struct {
        struct timespec now;
        size_t left;
    } text = {.left = length};
    clock_gettime(CLOCK_MONOTONIC, &text.now);
    while (text.left) {
        unsigned char hash[crypto_shorthash_BYTES];
        size_t step = text.left < sizeof hash ? text.left : sizeof hash;
        crypto_shorthash(hash, (const unsigned char *)&text, sizeof text, key);
        memcpy(at, hash, step);
        at += step;
        text.left -= step;
    }
}

uint64_t tc_shorthash(const uint8_t key[16], const void *bytes, size_t length) {
    uint64_t hash;
    unsigned char digest[crypto_shorthash_BYTES];
    crypto_shorthash(digest, bytes, length, key);
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

bool tc_key_make(unsigned char secret[TC_KEY_BYTES], unsigned char public[TC_KEY_BYTES]) {
    unsigned char both[crypto_sign_SECRETKEYBYTES];
    if (sodium_init() < 0)
        return false;
    randombytes_buf(secret, TC_KEY_BYTES);
    bool ok = crypto_sign_seed_keypair(public, both, secret) == 0;
    sodium_memzero(both, sizeof both);
    return ok;
}

bool tc_sign(const unsigned char secret[TC_KEY_BYTES], const void *bytes, size_t length,
             unsigned char signature[TC_SIGNATURE_BYTES], unsigned char public[TC_KEY_BYTES]) {
    unsigned char both[crypto_sign_SECRETKEYBYTES];
    /* This only chooses the fastest code: without random bytes signing works, too. */
    (void)!sodium_init();
    bool ok = crypto_sign_seed_keypair(public, both, secret) == 0 &&
              crypto_sign_detached(signature, NULL, bytes, length, both) == 0;
    sodium_memzero(both, sizeof both);
    return ok;
}

bool tc_signature_valid(const unsigned char public[TC_KEY_BYTES], const void *bytes, size_t length,
                        const unsigned char signature[TC_SIGNATURE_BYTES]) {
    (void)!sodium_init();
    return crypto_sign_verify_detached(signature, bytes, length, public) == 0;
}

void tc_forget(void *bytes, size_t length) {
    sodium_memzero(bytes, length);
}
