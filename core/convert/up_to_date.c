#include "core/convert/up_to_date.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/path.h"
#include "core/base/version.h"
#include "core/convert/file_sums.h"
#include "core/convert/receipt.h"
#include "core/io/input.h"
#include "core/io/sha256.h"

static bool same_sum(struct tc_input *input, const struct tc_receipt_file *file, bool *same,
                     struct tc_error *error) {
    char hex[2 * TC_SHA256_BYTES + 1];
    if (!tc_input_sum(input, hex, error))
        return tc_error_in_file(error, input->path);
    *same = strcmp(hex, file->sum) == 0;
    return true;
}

/* A file that is not there, or can't be opened, is another. */
static bool same_file(const char *path, const struct tc_receipt_file *file, bool *same,
                      struct tc_error *error) {
    struct tc_error ignored = {0};
    struct tc_input *input = tc_input_open(path, NULL, &ignored);
    *same = input && input->size == file->size;
    bool ok = !*same || same_sum(input, file, same, error);
    tc_input_close(input);
    return ok;
}

/* Every file that would be read, against the receipt's, in their order. Sizes are compared before
 * anything is hashed. */
static bool same_inputs(const struct tc_up_to_date *asked, const struct tc_receipt *receipt,
                        bool *same, struct tc_error *error) {
    for (unsigned turn = 0; turn < 2 && *same; turn++) {
        size_t number = 0;
        for (size_t r = 0; r < asked->count; r++) {
            struct tc_input *input;
            for (size_t at = 0;
                 *same && (input = tc_reader_next_file(asked->readers[r], &at)) != NULL; number++) {
                *same =
                    number < receipt->input_count && receipt->inputs[number].size == input->size;
                if (turn && *same && !same_sum(input, &receipt->inputs[number], same, error))
                    return false;
            }
        }
        *same = *same && number + asked->also_count == receipt->input_count;
        for (size_t i = 0; turn && i < asked->also_count && *same; i++)
            if (!same_file(asked->also[i], &receipt->inputs[number + i], same, error))
                return false;
    }
    return true;
}

static bool same_outputs(const struct tc_up_to_date *asked, const struct tc_receipt *receipt,
                         bool *same, struct tc_error *error) {
    size_t folder = (size_t)(tc_path_name(asked->output) - asked->output);
    *same = *same && receipt->count > 0;
    for (size_t i = 0; i < receipt->count && *same; i++) {
        struct tc_buffer path = {0};
        tc_buffer_add(&path, asked->output, folder);
        tc_buffer_add_text(&path, receipt->outputs[i].name);
        tc_buffer_add(&path, "", 1);
        bool ok = tc_buffer_ok(&path, error);
        /* An output that can't be read is written again. */
        struct tc_error ignored = {0};
        *same = ok && same_file(path.bytes, &receipt->outputs[i], same, &ignored) && *same;
        tc_buffer_release(&path);
        if (!ok)
            return false;
    }
    return true;
}

/* Whether a part of the receipt is this JSON string, quotation marks and all. */
static bool is_string(struct tc_text part, const char *string) {
    size_t length = strlen(string);
    return part.length == length + 2 && part.bytes[0] == '"' &&
           memcmp(part.bytes + 1, string, length) == 0;
}

/* The text of the receipt, from malloc; NULL where it is not there or can't be read, which shows
 * nothing. */
static char *load_receipt(const char *path, size_t *length) {
    struct tc_error ignored = {0};
    struct tc_input *input = tc_input_open(path, NULL, &ignored);
    char *text = input && input->size <= TC_RECEIPT_LIMIT
                     ? tc_input_load(input, 0, input->size, &ignored)
                     : NULL;
    *length = text ? (size_t)input->size : 0;
    tc_input_close(input);
    return text;
}

bool tc_up_to_date(const struct tc_up_to_date *asked, bool *yes, struct tc_error *error) {
    struct tc_error ignored = {0};
    struct tc_receipt receipt;
    struct tc_arena arena;
    bool ok = true;
    *yes = false;
    size_t length;
    char *text = load_receipt(asked->receipt, &length);
    tc_arena_init(&arena, 0);
    if (text && tc_receipt_read(&receipt, text, length, &arena, &ignored)) {
        *yes = is_string(receipt.format, asked->target->name) &&
               is_string(receipt.version, TC_VERSION) &&
               tc_text_equal(receipt.options, asked->options);
        ok = same_inputs(asked, &receipt, yes, error) && same_outputs(asked, &receipt, yes, error);
    }
    *yes = *yes && ok;
    free(text);
    tc_arena_release(&arena);
    return ok;
}
