/*
 * SHA-256: by the CPU's instructions for it (core/io/sha256_lanes.h), which hash several streams
 * in hardly more time than one; where it has none, by OpenSSL's libcrypto.
 */
#ifndef TCONV_CORE_IO_SHA256_H
#define TCONV_CORE_IO_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/io/sha256_lanes.h"

#define TC_SHA256_BYTES 32

struct tc_sha256 {
    void *context; /* libcrypto's; NULL: what follows is used */
    uint32_t state[8];
    uint64_t length;                     /* of all bytes so far */
    unsigned char part[TC_SHA256_BLOCK]; /* the last of them, which make up no whole block yet */
};

/* After init, either finish or release must run. */
bool tc_sha256_init(struct tc_sha256 *hash, struct tc_error *error);
/* SHA-1 by the same functions, for git's names of files, which protect against
 * accidents alone; finish then gives TC_SHA1_BYTES of the digest. */
#define TC_SHA1_BYTES 20
bool tc_sha1_init(struct tc_sha256 *hash, struct tc_error *error);
void tc_sha256_update(struct tc_sha256 *hash, const void *bytes, size_t length);

/* Bytes that are added to a stream. */
struct tc_sha256_piece {
    struct tc_sha256 *hash;
    const void *bytes;
    size_t length;
};
/* Adds to 1 to TC_SHA256_LANES different streams. */
void tc_sha256_update_several(const struct tc_sha256_piece *pieces, size_t count);
void tc_sha256_finish(struct tc_sha256 *hash, unsigned char digest[TC_SHA256_BYTES]);
void tc_sha256_release(struct tc_sha256 *hash);

bool tc_sha256_of(const void *bytes, size_t length, unsigned char digest[TC_SHA256_BYTES],
                  struct tc_error *error);

/* Lower-case hexadecimal with a NUL. */
void tc_hex(const unsigned char *bytes, size_t length, char *text);
/* Exactly 2 × length lower-case digits back to bytes. */
bool tc_unhex(const char *text, size_t text_length, unsigned char *bytes, size_t length);

#endif
