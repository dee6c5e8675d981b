/* tconv verify --receipt R: compares files with the receipt of the conversion that
 * wrote them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/report.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/name_map.h"
#include "core/base/path.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/convert/file_sums.h"
#include "core/convert/receipt.h"
#include "core/io/input.h"
#include "core/io/listing.h"
#include "core/io/sha256.h"

struct findings {
    struct tc_buffer list; /* what `json` writes: an array that is still open */
    struct tc_json_writer json;
    struct tc_buffer text;
    size_t count;
};

static void add_finding(struct findings *findings, const char *code, const char *file,
                        const char *message) {
    findings->count++;
    tc_json_open_object(&findings->json, NULL);
    tc_json_add_string(&findings->json, "code", code);
    tc_json_add_string(&findings->json, "file", file);
    tc_json_add_string(&findings->json, "message", message);
    tc_json_close(&findings->json);
    tc_buffer_add_string(&findings->text, "  ");
    tc_buffer_add_visible(&findings->text, tc_text_of(file));
    tc_buffer_add_string(&findings->text, ": ");
    tc_buffer_add_visible(&findings->text, tc_text_of(message));
    tc_buffer_add_string(&findings->text, "\n");
}

/* The files that the user gave, by their names. */
struct places {
    const char *receipt;
    const char *const *files;
    size_t count;
    struct tc_name_map names; /* the number is a position in `files` */
    bool *used;               /* by position: the receipt has an output of this name */
};

/* Two files of one name could not both be what the receipt means by it. */
static bool places_init(struct places *places, struct tc_arena *arena, struct tc_error *error) {
    tc_name_map_init(&places->names, arena);
    places->used = calloc(places->count + 1, sizeof *places->used);
    if (!places->used)
        return tc_fail_memory(error);
    for (size_t i = 0; i < places->count; i++) {
        struct tc_text name = tc_text_of(tc_path_name(places->files[i]));
        if (!tc_utf8_valid(name))
            continue; /* no receipt names such a file */
        const uint32_t *other = tc_name_map_find(&places->names, name);
        if (other) {
            tc_fail(error, TC_USAGE, "two-of-one-name",
                    "another file of this name is given too: %s", places->files[*other]);
            tc_error_hint(error, "a receipt knows files by their names: verify each by itself");
            return tc_error_in_file(error, places->files[i]);
        }
        if (!tc_name_map_add(&places->names, name, (uint32_t)i, error))
            return false;
    }
    return true;
}

/* The path of an output: the FILE of its name; else its name in the folder of the
 * first FILE, or, where the user gave none, of the receipt. From malloc. */
static char *locate(struct places *places, struct tc_text name) {
    const char *beside = places->count ? places->files[0] : places->receipt;
    const uint32_t *given = tc_name_map_find(&places->names, name);
    struct tc_buffer path = {0};
    if (given) {
        places->used[*given] = true;
        return strdup(places->files[*given]);
    }
    /* A folder that is an output is where its files lie. */
    if (places->count && tc_is_folder(beside)) {
        places->used[0] = true;
        tc_buffer_addf(&path, "%s/", beside);
    } else
        tc_buffer_add(&path, beside, (size_t)(tc_path_name(beside) - beside));
    tc_buffer_add_text(&path, name);
    tc_buffer_add(&path, "", 1);
    if (path.failed)
        tc_buffer_release(&path);
    return path.bytes;
}

static bool check_output(const struct tc_receipt_file *output, const char *path,
                         struct findings *findings, struct tc_error *error) {
    struct tc_error *missing = calloc(1, sizeof *missing);
    char hex[2 * TC_SHA256_BYTES + 1];
    if (!path || !missing) {
        free(missing);
        return tc_fail_memory(error);
    }
    struct tc_input *input = tc_input_open(path, NULL, missing);
    bool ok = true;
    if (!input && missing->class == TC_IO && missing->errnum && !tc_path_missing(missing->errnum)) {
        *error = *missing;
        ok = false;
    } else if (!input) {
        add_finding(findings, "missing", path, missing->message);
    } else if (input->size != output->size) {
        char message[128];
        snprintf(message, sizeof message,
                 "its size is another (got %" PRIu64 ", expected %" PRIu64 ")", input->size,
                 output->size);
        add_finding(findings, "size", path, message);
    } else if ((ok = tc_input_sum(input, hex, error)) && strcmp(hex, output->sum) != 0) {
        add_finding(findings, "sha256", path, "its bytes are others (SHA-256 mismatch)");
    }
    tc_input_close(input);
    free(missing);
    return ok;
}

/* Checks the signature; returns the word for it that is printed. */
static const char *check_signature(const struct tc_receipt *receipt, const char *path,
                                   const unsigned char *public, struct findings *findings) {
    if (!public)
        return receipt->is_signed ? "unchecked" : "none";
    if (!receipt->is_signed) {
        add_finding(findings, "unsigned", path, "the receipt is not signed");
        return "none";
    }
    if (tc_signature_valid(public, receipt->text.bytes, receipt->text.length, receipt->signature))
        return "valid";
    add_finding(findings, "signature", path,
                memcmp(public, receipt->public, TC_KEY_BYTES) == 0
                    ? "the signature is wrong: the receipt was changed"
                    : "the receipt is not signed with this key");
    return "invalid";
}

static bool check_files(const struct tc_receipt *receipt, struct places *places,
                        struct findings *findings, struct tc_error *error) {
    for (size_t i = 0; i < receipt->count; i++) {
        char *place = locate(places, receipt->outputs[i].name);
        bool ok = check_output(&receipt->outputs[i], place, findings, error);
        free(place);
        if (!ok)
            return false;
    }
    for (size_t i = 0; i < places->count; i++)
        if (!places->used[i])
            add_finding(findings, "unknown", places->files[i],
                        "the receipt does not name this file");
    return true;
}

static void print(const struct common *common, const char *path, const struct tc_receipt *receipt,
                  const char *signature, struct findings *findings) {
    struct tc_buffer out = {0};
    bool ok = findings->count == 0;
    if (common->json) {
        struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "file", path);
        tc_json_add_boolean(&json, "ok", ok);
        tc_json_add_string(&json, "signature", signature);
        tc_json_close(&findings->json);
        tc_json_add_raw(&json, "findings",
                        (struct tc_text){findings->list.bytes, findings->list.length});
        tc_json_end_line(&json);
    } else {
        tc_buffer_add_visible(&out, tc_text_of(path));
        tc_buffer_addf(&out, ": %s, %zu file%s, signature %s\n", ok ? "ok" : "failed",
                       receipt->count, receipt->count == 1 ? "" : "s", signature);
        tc_buffer_add(&out, findings->text.bytes, findings->text.length);
    }
    report_out(&out);
}

int cmd_verify_receipt(const struct common *common, const char *receipt, const char *public_key,
                       const char *const *files, size_t count) {
    struct tc_error error = {0};
    struct findings findings = {
        .json = {.out = &findings.list, .escape = TC_ESCAPE_DISPLAY},
    };
    tc_json_open_array(&findings.json, NULL);
    struct tc_receipt read = {0};
    struct tc_arena arena;
    struct places places = {.receipt = receipt, .files = files, .count = count};
    unsigned char public[TC_KEY_BYTES];
    char *text = NULL;
    tc_arena_init(&arena, common->format.limits.memory);
    bool ok = places_init(&places, &arena, &error) &&
              (!public_key || tc_key_read(public_key, TC_KEY_PUBLIC, public, &error));
    struct tc_input *input = ok ? tc_input_open(receipt, NULL, &error) : NULL;
    if (input && input->size > TC_RECEIPT_LIMIT)
        tc_fail(&error, TC_UNSAFE, "receipt", "the receipt is over %llu bytes",
                (unsigned long long)TC_RECEIPT_LIMIT);
    else if (input)
        text = tc_input_load(input, 0, input->size, &error);
    ok = text && tc_receipt_read(&read, text, input->size, &arena, &error);
    if (ok) {
        const char *signature =
            check_signature(&read, receipt, public_key ? public : NULL, &findings);
        ok = check_files(&read, &places, &findings, &error) &&
             tc_buffer_ok(&findings.list, &error) && tc_buffer_ok(&findings.text, &error);
        if (ok)
            print(common, receipt, &read, signature, &findings);
    }
    if (!ok)
        tc_error_in_file(&error, receipt);
    int code = !ok ? report_error(&error, common->json) : findings.count ? TC_DIFFERENT : TC_OK;
    tc_buffer_release(&findings.list);
    tc_buffer_release(&findings.text);
    free(text);
    free(places.used);
    tc_input_close(input);
    tc_name_map_release(&places.names);
    tc_arena_release(&arena);
    return code;
}
