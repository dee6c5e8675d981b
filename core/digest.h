/*
 * The digest that is the same in every format: SHA-256 of each tensor's
 * C-order little-endian bytes, one line a tensor, sorted by name.
 */
#ifndef TCONV_CORE_DIGEST_H
#define TCONV_CORE_DIGEST_H

#include "core/format.h"

struct tc_digest {
    unsigned char (*sums)[TC_SHA256_BYTES]; /* by table position */
    size_t *order;                          /* table positions, by name's bytes */
};

/* Reads all data, on several cores where the format allows, and verifies all
 * checksums. */
bool tc_digest_make(struct tc_digest *digest, struct tc_reader *reader, struct tc_error *error);
void tc_digest_release(struct tc_digest *digest);
/* The text of `tconv hash`: every line ends in a newline. */
bool tc_digest_print(const struct tc_digest *digest, const struct tc_reader *reader,
                     struct tc_buffer *text, struct tc_error *error);
/* The SHA-256 of that text, in hexadecimal. */
bool tc_digest_total(const struct tc_buffer *text, char hex[2 * TC_SHA256_BYTES + 1],
                     struct tc_error *error);

#endif
