#include "core/io/sha256.h"

#include <openssl/evp.h>
#include <string.h>

static bool begin(struct tc_sha256 *hash, const EVP_MD *kind, struct tc_error *error) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    hash->context = context;
    if (!context || EVP_DigestInit_ex(context, kind, NULL) != 1) {
        tc_sha256_release(hash);
        return tc_fail_memory(error);
    }
    return true;
}

bool tc_sha256_init(struct tc_sha256 *hash, struct tc_error *error) {
    return begin(hash, EVP_sha256(), error);
}

bool tc_sha1_init(struct tc_sha256 *hash, struct tc_error *error) {
    return begin(hash, EVP_sha1(), error);
}

void tc_sha256_update(struct tc_sha256 *hash, const void *bytes, size_t length) {
    EVP_DigestUpdate(hash->context, bytes, length);
}

void tc_sha256_finish(struct tc_sha256 *hash, unsigned char digest[TC_SHA256_BYTES]) {
    EVP_DigestFinal_ex(hash->context, digest, NULL);
    tc_sha256_release(hash);
}

void tc_sha256_release(struct tc_sha256 *hash) {
    EVP_MD_CTX_free(hash->context);
    hash->context = NULL;
}

bool tc_sha256_of(const void *bytes, size_t length, unsigned char digest[TC_SHA256_BYTES],
                  struct tc_error *error) {
    struct tc_sha256 hash;
    if (!tc_sha256_init(&hash, error))
        return false;
    tc_sha256_update(&hash, bytes, length);
    tc_sha256_finish(&hash, digest);
    return true;
}

static const char digits[] = "0123456789abcdef";

void tc_hex(const unsigned char *bytes, size_t length, char *text) {
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * length] = '\0';
}

bool tc_unhex(const char *text, size_t text_length, unsigned char *bytes, size_t length) {
    if (text_length != 2 * length)
        return false;
    for (size_t i = 0; i < length; i++) {
        const char *high = memchr(digits, text[2 * i], 16);
        const char *low = memchr(digits, text[2 * i + 1], 16);
        if (!high || !low)
            return false;
        bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}
