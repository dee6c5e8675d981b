#include "core/convert/receipt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/base/version.h"
#include "core/convert/file_sums.h"
#include "core/convert/read_back.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

#define HEX_KEY (2 * TC_KEY_BYTES)
#define HEX_SIGNATURE (2 * TC_SIGNATURE_BYTES)

void tc_key_print(struct tc_buffer *text, const char *kind, const unsigned char key[TC_KEY_BYTES]) {
    char hex[HEX_KEY + 1];
    tc_hex(key, TC_KEY_BYTES, hex);
    tc_buffer_addf(text, "%s %s\n", kind, hex);
    tc_forget(hex, sizeof hex);
}

bool tc_key_read(const char *path, const char *kind, unsigned char key[TC_KEY_BYTES],
                 struct tc_error *error) {
    size_t label = strlen(kind);
    char line[128];
    struct tc_input *input = tc_input_open(path, NULL, error);
    if (!input)
        return false;
    size_t length = input->size < sizeof line ? input->size : 0;
    bool ok = tc_input_read(input, 0, line, length, error);
    tc_input_close(input);
    while (ok && length && (line[length - 1] == '\n' || line[length - 1] == '\r'))
        length--;
    if (ok && !(length > label + 1 && memcmp(line, kind, label) == 0 && line[label] == ' ' &&
                tc_unhex(line + label + 1, length - label - 1, key, TC_KEY_BYTES))) {
        ok = tc_fail(error, TC_INVALID, "key", "this file is not a key of the kind needed here");
        tc_error_hint(error, "tconv keygen makes NAME.key, to sign, and NAME.pub, to verify");
    }
    tc_forget(line, sizeof line);
    return ok ? true : tc_error_in_file(error, path);
}

void tc_date_print(struct tc_buffer *text, int64_t seconds, const char *zone) {
    struct tm date;
    time_t time = (time_t)seconds;
    if (!gmtime_r(&time, &date))
        date = (struct tm){.tm_mday = 1, .tm_year = 70};
    tc_buffer_addf(text, "%04d-%02d-%02dT%02d:%02d:%02d%s", date.tm_year + 1900, date.tm_mon + 1,
                   date.tm_mday, date.tm_hour, date.tm_min, date.tm_sec, zone);
}

void tc_json_add_date(struct tc_json_writer *json, const char *key, int64_t seconds,
                      const char *zone) {
    struct tc_buffer date = {0};
    tc_date_print(&date, seconds, zone);
    tc_json_add_text(json, key, (struct tc_text){date.bytes, date.length});
    json->out->failed |= date.failed;
    tc_buffer_release(&date);
}

static void add_file(struct tc_json_writer *json, const char *key, const char *name,
                     const struct tc_input *input, const char *hex) {
    tc_json_open_object(json, NULL);
    tc_json_add_string(json, key, name);
    tc_json_add_number(json, "size", input->size);
    tc_json_add_string(json, "sha256", hex);
    tc_json_close(json);
}

static bool add_inputs(struct tc_json_writer *json, const struct tc_receipt_facts *facts,
                       struct tc_error *error) {
    const struct tc_conversion *conversion = facts->conversion;
    tc_json_open_array(json, "inputs");
    const struct tc_file_sum *sum = conversion->sums.first;
    for (size_t i = 0; i < conversion->input_count; i++, sum = sum->next)
        add_file(json, "path", sum->input->path, sum->input, sum->hex);
    for (size_t i = 0; i < facts->also_count; i++) {
        /* Addresses are opened in the way that the inputs were. */
        const struct tc_format_options *options = conversion->plan->readers[0]->options;
        struct tc_input *input = tc_reader_input(options, facts->also[i], NULL, error);
        char hex[2 * TC_SHA256_BYTES + 1];
        bool ok =
            input && (tc_input_sum(input, hex, error) || tc_error_in_file(error, input->path));
        if (ok)
            add_file(json, "path", input->path, input, hex);
        tc_input_close(input);
        if (!ok)
            return false;
    }
    tc_json_close(json);
    return true;
}

static void add_outputs(struct tc_json_writer *json, const struct tc_conversion *conversion) {
    size_t i = 0;
    tc_json_open_array(json, "outputs");
    for (const struct tc_outfile *out = conversion->publish.files; out; out = out->next, i++)
        add_file(json, "name", out->name, conversion->outputs[i], conversion->output_sums[i]->hex);
    tc_json_close(json);
}

static void add_tensors(struct tc_json_writer *json, const struct tc_read_back *read_back) {
    tc_json_open_array(json, "tensors");
    for (size_t i = 0; i < read_back->count; i++) {
        const struct tc_read_back_tensor *tensor = &read_back->tensors[i];
        char hex[2 * TC_SHA256_BYTES + 1];
        tc_hex(tensor->sum, TC_SHA256_BYTES, hex);
        tc_json_open_object(json, NULL);
        tc_json_add_text(json, "name", tensor->name);
        tc_json_add_string(json, "dtype", tc_dtype_name((enum tc_dtype)tensor->dtype));
        tc_json_add_numbers(json, "shape", tensor->shape, tensor->rank);
        tc_json_add_string(json, "sha256", hex);
        tc_json_close(json);
    }
    tc_json_close(json);
}

bool tc_receipt_make(struct tc_buffer *text, const struct tc_receipt_facts *facts,
                     struct tc_error *error) {
    const struct tc_conversion *conversion = facts->conversion;
    const struct tc_plan *plan = conversion->plan;
    char digest[2 * TC_SHA256_BYTES + 1];
    if (!tc_read_back_digest(&conversion->read_back, digest, error) ||
        !tc_conversion_sums(facts->conversion, error))
        return false;
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_number(&json, "tconv_receipt", 1);
    tc_json_add_string(&json, "tconv", TC_VERSION);
    if (facts->dated)
        tc_json_add_date(&json, "date", facts->date, "Z");
    if (!add_inputs(&json, facts, error))
        return false;
    tc_json_add_string(&json, "output", facts->output);
    tc_json_add_string(&json, "format", plan->target->name);
    add_outputs(&json, conversion);
    tc_json_add_string(&json, "digest", digest);
    tc_json_add_raw(&json, "options", facts->options);
    tc_notes_print(&json, "changes", &plan->notes, TC_CHANGE);
    tc_notes_print(&json, "losses", &plan->notes, TC_LOSS);
    if (facts->tensors)
        add_tensors(&json, &conversion->read_back);
    tc_json_close(&json);
    return tc_buffer_ok(text, error);
}

bool tc_receipt_wrap(struct tc_buffer *file, const struct tc_buffer *text,
                     const unsigned char *secret, struct tc_error *error) {
    struct tc_json_writer json = {.out = file, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_raw(&json, "receipt", (struct tc_text){text->bytes, text->length});
    if (secret) {
        unsigned char signature[TC_SIGNATURE_BYTES];
        unsigned char public[TC_KEY_BYTES];
        char value[HEX_SIGNATURE + 1];
        char key[HEX_KEY + 1];
        if (!tc_sign(secret, text->bytes, text->length, signature, public))
            return tc_fail(error, TC_INTERNAL, "sign", "the receipt cannot be signed");
        tc_hex(signature, sizeof signature, value);
        tc_hex(public, sizeof public, key);
        tc_json_open_object(&json, "signature");
        tc_json_add_string(&json, "algorithm", "ed25519");
        tc_json_add_string(&json, "public_key", key);
        tc_json_add_string(&json, "value", value);
    }
    tc_json_end_line(&json);
    return tc_buffer_ok(file, error);
}

/* Which of the three keys it is, as a bit: 1, 2 or 4; 0 where it is none. */
static unsigned find_key(struct tc_text key, const char *const keys[3]) {
    for (unsigned i = 0; i < 3; i++)
        if (tc_text_equal(key, tc_text_of(keys[i])))
            return 1u << i;
    return 0;
}

/* An input is listed by its path, an output by its name. */
static bool read_file(const struct tc_document *document, const struct tc_document_value *object,
                      const char *name_key, struct tc_receipt_file *file, struct tc_arena *arena) {
    const char *const keys[] = {name_key, "size", "sha256"};
    unsigned char sum[TC_SHA256_BYTES];
    struct tc_document_member member = {0};
    struct tc_text text;
    unsigned seen = 0;
    if (!tc_document_expect(document, object, TC_JSON_OBJECT))
        return false;
    while (tc_document_next(object, &member)) {
        unsigned which = find_key(member.key, keys);
        seen |= which;
        if (!which)
            return tc_document_fail(document, member.value, "a file has an unknown key");
        if (which == 2 ? !tc_document_unsigned(document, member.value, &file->size)
                       : !tc_document_text(document, member.value, &text))
            return false;
        if (which == 1)
            file->name = text;
        if (which == 4 && !tc_unhex(text.bytes, text.length, sum, sizeof sum))
            return tc_document_fail(document, member.value, "sha256 is not 64 hexadecimal digits");
    }
    if (seen != 7)
        return tc_document_fail(document, object, "a file lacks %s, size or sha256", name_key);
    tc_hex(sum, sizeof sum, file->sum);
    return tc_document_keep(document, &file->name, arena);
}

static bool read_outputs(const struct tc_document *document, struct tc_receipt *receipt,
                         struct tc_arena *arena) {
    struct tc_name_map names;
    if (!tc_document_expect(document, document->root, TC_JSON_ARRAY))
        return false;
    size_t count = tc_document_count(document->root);
    receipt->outputs = tc_arena_array(arena, count, sizeof *receipt->outputs, document->error);
    tc_name_map_init(&names, arena);
    bool ok = receipt->outputs != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        const struct tc_document_value *object = tc_document_item(document->root, i);
        struct tc_receipt_file *output = &receipt->outputs[receipt->count++];
        ok = read_file(document, object, "name", output, arena);
        if (ok && !tc_path_is_inside(output->name))
            ok = tc_fail(document->error, TC_UNSAFE, "receipt",
                         "the name of an output leads out of the output's folder");
        if (ok && tc_name_map_find(&names, output->name))
            ok = tc_document_fail(document, object, "two outputs have one name");
        ok = ok && tc_name_add(&names, output->name, 0, TC_MAX_NAMES, document->error);
    }
    tc_name_map_release(&names);
    return ok;
}

static bool read_inputs(const struct tc_document *document, struct tc_receipt *receipt,
                        struct tc_arena *arena) {
    if (!tc_document_expect(document, document->root, TC_JSON_ARRAY))
        return false;
    size_t count = tc_document_count(document->root);
    receipt->inputs = tc_arena_array(arena, count, sizeof *receipt->inputs, document->error);
    bool ok = receipt->inputs != NULL;
    for (size_t i = 0; i < count && ok; i++)
        ok = read_file(document, tc_document_item(document->root, i), "path",
                       &receipt->inputs[receipt->input_count++], arena);
    return ok;
}

static bool read_signature(const struct tc_document *document, struct tc_receipt *receipt,
                           struct tc_arena *arena) {
    static const char *const keys[] = {"algorithm", "public_key", "value"};
    struct tc_document_member member = {0};
    unsigned seen = 0;
    (void)arena;
    if (!tc_document_expect(document, document->root, TC_JSON_OBJECT))
        return false;
    while (tc_document_next(document->root, &member)) {
        struct tc_text text;
        unsigned which = find_key(member.key, keys);
        seen |= which;
        if (!which)
            return tc_document_fail(document, member.value, "the signature has an unknown key");
        if (!tc_document_text(document, member.value, &text))
            return false;
        if (which == 1 && !tc_text_equal(text, TC_TEXT("ed25519")))
            return tc_fail(document->error, TC_UNSUPPORTED, "signature",
                           "the signature is not Ed25519");
        if ((which == 2 && !tc_unhex(text.bytes, text.length, receipt->public, TC_KEY_BYTES)) ||
            (which == 4 &&
             !tc_unhex(text.bytes, text.length, receipt->signature, TC_SIGNATURE_BYTES)))
            return tc_document_fail(document, member.value,
                                    "a signature or key of the wrong length");
    }
    receipt->is_signed = true;
    return seen == 7 || tc_document_fail(document, document->root, "the signature lacks a key");
}

typedef bool read_part(const struct tc_document *document, struct tc_receipt *receipt,
                       struct tc_arena *arena);

/* Reads the scanner's next value as a document of its own. */
static bool read_value(struct tc_json *json, read_part *read, struct tc_receipt *receipt) {
    struct tc_document document;
    struct tc_text text;
    if (!tc_json_skip(json, &text))
        return false;
    uint64_t base = json->base + (uint64_t)(text.bytes - json->bytes);
    bool ok = tc_document_parse(&document, text, base, json->error);
    document.code = "receipt";
    ok = ok && read(&document, receipt, json->arena);
    tc_document_release(&document);
    return ok;
}

/* The parts of a receipt that are used here. */
enum body_part { PART_OTHER, PART_VERSION, PART_OUTPUTS, PART_INPUTS, PART_KEPT };

static enum body_part body_part(struct tc_receipt *receipt, struct tc_text key,
                                struct tc_text **kept) {
    *kept = tc_text_equal(key, TC_TEXT("format"))    ? &receipt->format
            : tc_text_equal(key, TC_TEXT("options")) ? &receipt->options
            : tc_text_equal(key, TC_TEXT("tconv"))   ? &receipt->version
                                                     : NULL;
    return *kept                                          ? PART_KEPT
           : tc_text_equal(key, TC_TEXT("tconv_receipt")) ? PART_VERSION
           : tc_text_equal(key, TC_TEXT("outputs"))       ? PART_OUTPUTS
           : tc_text_equal(key, TC_TEXT("inputs"))        ? PART_INPUTS
                                                          : PART_OTHER;
}

static bool read_body(struct tc_json *json, struct tc_receipt *receipt) {
    struct tc_text key;
    unsigned seen = 0;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        struct tc_text ignored;
        struct tc_text *kept;
        uint64_t number;
        enum body_part part = body_part(receipt, key, &kept);
        if (part == PART_KEPT ? kept->bytes != NULL : part && seen & 1u << part)
            return tc_json_fail(json, "a key of the receipt occurs twice");
        seen |= 1u << part;
        if (!(part == PART_VERSION   ? tc_json_unsigned(json, &number)
              : part == PART_OUTPUTS ? read_value(json, read_outputs, receipt)
              : part == PART_INPUTS  ? read_value(json, read_inputs, receipt)
                                     : tc_json_skip(json, kept ? kept : &ignored)))
            return false;
        if (part == PART_VERSION && number != 1)
            return tc_fail(json->error, TC_UNSUPPORTED, "version",
                           "receipts of version %" PRIu64 " are not known (expected 1)", number);
    }
    if (!json->failed && !(seen & 1u << PART_VERSION && seen & 1u << PART_OUTPUTS))
        return tc_json_fail(json, "this is no receipt of tconv");
    return tc_json_end(json);
}

/* The scanner splits the receipt into its parts, since the signature is over the bytes
 * as they stand, and since the list of tensors, which is not needed here, may have
 * 100 MB. The parts that are needed are read as documents. */
bool tc_receipt_read(struct tc_receipt *receipt, const char *text, size_t length,
                     struct tc_arena *arena, struct tc_error *error) {
    struct tc_json json;
    struct tc_text key;
    *receipt = (struct tc_receipt){0};
    tc_json_init(&json, text, length, 0, arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        if (tc_text_equal(key, TC_TEXT("receipt")) && !receipt->text.bytes) {
            if (!tc_json_skip(&json, &receipt->text))
                return false;
        } else if (tc_text_equal(key, TC_TEXT("signature")) && !receipt->is_signed) {
            if (!read_value(&json, read_signature, receipt))
                return false;
        } else {
            return tc_json_fail(&json, "the receipt has a key that is unknown or occurs twice");
        }
    }
    if (!tc_json_end(&json))
        return false;
    if (!receipt->text.bytes)
        return tc_json_fail(&json, "this is no receipt of tconv");
    struct tc_json body;
    tc_json_init(&body, receipt->text.bytes, receipt->text.length,
                 (uint64_t)(receipt->text.bytes - text), arena, error);
    return read_body(&body, receipt);
}
