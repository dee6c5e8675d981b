/*
 * The fuzz target of receipts and of the keys that sign them. A receipt that is read names plain
 * files only; signed anew, the same text has a signature that holds, and that of no other text.
 */

#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/convert/receipt.h"
#include "core/io/sha256.h"

static const unsigned char secret[TC_KEY_BYTES] = "a secret that everybody may know";

static void check_outputs(const struct tc_receipt *receipt) {
    for (size_t i = 0; i < receipt->count; i++) {
        FUZZ_CHECK(tc_path_is_inside(receipt->outputs[i].name), "an output lies elsewhere");
        FUZZ_CHECK(strlen(receipt->outputs[i].sum) == 2 * TC_SHA256_BYTES, "a hash is none");
    }
}

static bool is_valid(const struct tc_receipt *receipt) {
    return tc_signature_valid(receipt->public, receipt->text.bytes, receipt->text.length,
                              receipt->signature);
}

/* Signs the text of a receipt, and reads what comes of it. */
static void sign_again(struct tc_text text, size_t count) {
    struct tc_error error = {0};
    struct tc_buffer body = {0};
    struct tc_buffer file = {0};
    struct tc_receipt receipt;
    struct tc_arena arena;
    tc_arena_init(&arena, 0);
    tc_buffer_add_text(&body, text);
    FUZZ_CHECK(tc_receipt_wrap(&file, &body, secret, &error) &&
                   tc_receipt_read(&receipt, file.bytes, file.length, &arena, &error),
               "a signed receipt is not read: %s", error.message);
    FUZZ_CHECK(receipt.is_signed && receipt.count == count && tc_text_equal(receipt.text, text),
               "a signed receipt is another one");
    FUZZ_CHECK(is_valid(&receipt), "a signature does not hold");
    receipt.text.length--;
    FUZZ_CHECK(!is_valid(&receipt), "a signature holds for another text");
    tc_buffer_release(&body);
    tc_buffer_release(&file);
    tc_arena_release(&arena);
}

void fuzz_receipt(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct tc_receipt receipt;
    struct tc_arena arena;
    tc_arena_init(&arena, fuzz_options.limits.memory);
    bool ok = tc_receipt_read(&receipt, (const char *)bytes, length, &arena, &error);
    fuzz_check_outcome(ok, &error);
    if (ok) {
        check_outputs(&receipt);
        if (receipt.is_signed)
            is_valid(&receipt);
        sign_again(receipt.text, receipt.count);
    }
    tc_arena_release(&arena);
    unsigned char key[TC_KEY_BYTES];
    struct tc_error no_key = {0};
    fuzz_check_outcome(tc_key_read(fuzz_file(bytes, length), TC_KEY_PUBLIC, key, &no_key), &no_key);
}
