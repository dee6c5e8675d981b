/*
 * The digest that is the same in every format: SHA-256 of each tensor's
 * C-order little-endian bytes, one line a tensor, sorted by name.
 */
#ifndef TCONV_CORE_INSPECT_DIGEST_H
#define TCONV_CORE_INSPECT_DIGEST_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/progress.h"
#include "core/io/sha256.h"
#include "core/tensor/dtype.h"

struct tc_digest {
    unsigned char (*sums)[TC_SHA256_BYTES]; /* by table position; NULL: not asked for */
    _Atomic uint64_t *checks;               /* the sums of core/io/crc_combine.h; NULL: the same */
    size_t *order;                          /* table positions of the wanted, sorted by name */
    size_t count;                           /* of wanted tensors */
};

/* Reads all data, on several cores where the format allows, and verifies all
 * checksums. Call tc_digest_release also where this fails. */
bool tc_digest_make(struct tc_digest *digest, struct tc_reader *reader, struct tc_error *error);
/* The digest of some tensors, by table position (NULL: all), with reports to
 * `watch` (NULL: none). */
bool tc_digest_make_watched(struct tc_digest *digest, struct tc_reader *reader, const bool *wanted,
                            const struct tc_watch *watch, struct tc_error *error);
/* The sums of core/io/crc_combine.h of all tensors and, where `hashes`, their digest. */
bool tc_digest_make_checks(struct tc_digest *digest, struct tc_reader *reader, bool hashes,
                           const struct tc_watch *watch, struct tc_error *error);
void tc_digest_release(struct tc_digest *digest);
/* Adds the line of one tensor. */
void tc_digest_add_line(struct tc_buffer *text, const unsigned char sum[TC_SHA256_BYTES],
                        enum tc_dtype dtype, const uint64_t *shape, unsigned rank,
                        struct tc_text name);
/* The text of `tconv hash`: every line ends in a newline. */
bool tc_digest_print(const struct tc_digest *digest, const struct tc_reader *reader,
                     struct tc_buffer *text, struct tc_error *error);
/* The SHA-256 of that text, in hexadecimal. */
bool tc_digest_total(const struct tc_buffer *text, char hex[2 * TC_SHA256_BYTES + 1],
                     struct tc_error *error);

#endif
