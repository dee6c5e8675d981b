/*
 * A receipt of a conversion: its inputs, its outputs and its options, as JSON.
 *
 *     {"receipt":{"tconv_receipt":1,"tconv":VERSION,"date"?,"inputs":[{"path","size","sha256"}],
 *      "output","format","outputs":[{"name","size","sha256"}],"digest","options":[…],
 *      "changes":[…],"losses":[…],"tensors"?:[{"name","dtype","shape","sha256"}]},
 *      "signature"?:{"algorithm":"ed25519","public_key","value"}}
 *
 * It is one line of compact JSON, with its keys in this order, and the same for the
 * same files and options. The signature is over the bytes of the value of "receipt"
 * as they stand, braces included.
 *
 * Keys are files of one line: "tconv-secret-ed25519 HEX" or
 * "tconv-public-ed25519 HEX", 64 hexadecimal digits.
 */
#ifndef TCONV_CORE_CONVERT_RECEIPT_H
#define TCONV_CORE_CONVERT_RECEIPT_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/io/sha256.h"

/* The most bytes of a receipt: enough for the hashes of a million files. */
#define TC_RECEIPT_LIMIT (UINT64_C(256) << 20)

#define TC_KEY_SECRET "tconv-secret-ed25519"
#define TC_KEY_PUBLIC "tconv-public-ed25519"

void tc_key_print(struct tc_buffer *text, const char *kind, const unsigned char key[TC_KEY_BYTES]);
bool tc_key_read(const char *path, const char *kind, unsigned char key[TC_KEY_BYTES],
                 struct tc_error *error);

struct tc_receipt_facts {
    struct tc_conversion *conversion; /* written and read back with `keep` */
    const char *output;               /* as the user gave it */
    struct tc_text options;           /* a JSON array */
    const char *const *also;          /* other files that the output depends on */
    size_t also_count;
    bool tensors; /* lists every tensor with its hash */
    bool dated;
    int64_t date; /* seconds since 1970 */
};

/* The value of "receipt". */
bool tc_receipt_make(struct tc_buffer *text, const struct tc_receipt_facts *facts,
                     struct tc_error *error);
/* The whole text of the receipt's file; `secret` is NULL: not signed. */
bool tc_receipt_wrap(struct tc_buffer *file, const struct tc_buffer *text,
                     const unsigned char *secret, struct tc_error *error);

struct tc_receipt_file {
    struct tc_text name; /* of an output, without a folder; of an input, its path */
    uint64_t size;
    char sum[2 * TC_SHA256_BYTES + 1];
};

/* A receipt that was read. `text` points into the text given to tc_receipt_read; the
 * rest is in the arena. */
struct tc_receipt {
    struct tc_text text; /* the bytes that are signed */
    struct tc_receipt_file *outputs;
    size_t count;
    struct tc_receipt_file *inputs;
    size_t input_count;
    struct tc_text format;  /* of the output; a JSON string as it stands */
    struct tc_text options; /* a JSON array as it stands */
    struct tc_text version; /* of tconv; a JSON string as it stands */
    bool is_signed;
    unsigned char public[TC_KEY_BYTES];
    unsigned char signature[TC_SIGNATURE_BYTES];
};
bool tc_receipt_read(struct tc_receipt *receipt, const char *text, size_t length,
                     struct tc_arena *arena, struct tc_error *error);

/* Prints "2026-11-16T07:30:00" followed by `zone`, a text that stands for UTC. */
void tc_date_print(struct tc_buffer *text, int64_t seconds, const char *zone);
void tc_json_add_date(struct tc_json_writer *json, const char *key, int64_t seconds,
                      const char *zone);

#endif
