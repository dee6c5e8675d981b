/* SHA-256, by OpenSSL's libcrypto (measured 5 times as fast as libsodium's). */
#ifndef TCONV_CORE_IO_SHA256_H
#define TCONV_CORE_IO_SHA256_H

#include <stddef.h>

#include "core/base/error.h"

#define TC_SHA256_BYTES 32

struct tc_sha256 {
    void *context;
};

/* After init, either finish or release must run. */
bool tc_sha256_init(struct tc_sha256 *hash, struct tc_error *error);
/* SHA-1 by the same functions, for git's names of files, which protect against
 * accidents alone; finish then gives TC_SHA1_BYTES of the digest. */
#define TC_SHA1_BYTES 20
bool tc_sha1_init(struct tc_sha256 *hash, struct tc_error *error);
void tc_sha256_update(struct tc_sha256 *hash, const void *bytes, size_t length);
void tc_sha256_finish(struct tc_sha256 *hash, unsigned char digest[TC_SHA256_BYTES]);
void tc_sha256_release(struct tc_sha256 *hash);

bool tc_sha256_of(const void *bytes, size_t length, unsigned char digest[TC_SHA256_BYTES],
                  struct tc_error *error);

/* Lower-case hexadecimal with a NUL. */
void tc_hex(const unsigned char *bytes, size_t length, char *text);
/* Exactly 2 × length lower-case digits back to bytes. */
bool tc_unhex(const char *text, size_t text_length, unsigned char *bytes, size_t length);

#endif
