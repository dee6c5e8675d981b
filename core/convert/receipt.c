#include "core/convert/receipt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/json.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/version.h"
#include "core/convert/read_back.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

#define STEP ((size_t)1 << 18)
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
        ok = tc_fail(error, TC_INVALID, "key", "this is no key of the kind that is needed here");
        tc_error_hint(error, "tconv keygen makes NAME.key, to sign, and NAME.pub, to verify");
    }
    tc_forget(line, sizeof line);
    return ok ? true : tc_error_in_file(error, path);
}

bool tc_input_sum(struct tc_input *input, char hex[2 * TC_SHA256_BYTES + 1],
                  struct tc_error *error) {
    unsigned char sum[TC_SHA256_BYTES];
    struct tc_sha256 hash;
    unsigned char *buffer = malloc(STEP);
    if (!buffer)
        return tc_fail_memory(error);
    bool ok = tc_sha256_init(&hash, error);
    for (uint64_t at = 0; at < input->size && ok;) {
        uint64_t left = input->size - at;
        size_t step = left < STEP ? left : STEP;
        ok = tc_input_read(input, at, buffer, step, error);
        if (ok)
            tc_sha256_update(&hash, buffer, step);
        else
            tc_sha256_release(&hash);
        at += step;
    }
    free(buffer);
    if (!ok)
        return false;
    tc_sha256_finish(&hash, sum);
    tc_hex(sum, sizeof sum, hex);
    return tc_input_unchanged(input, error);
}

void tc_date_print(struct tc_buffer *text, int64_t seconds, const char *zone) {
    struct tm date;
    time_t time = (time_t)seconds;
    if (!gmtime_r(&time, &date))
        date = (struct tm){.tm_mday = 1, .tm_year = 70};
    tc_buffer_addf(text, "%04d-%02d-%02dT%02d:%02d:%02d%s", date.tm_year + 1900, date.tm_mon + 1,
                   date.tm_mday, date.tm_hour, date.tm_min, date.tm_sec, zone);
}

static bool add_file(struct tc_buffer *text, const char *key, const char *name,
                     struct tc_input *input, struct tc_error *error) {
    char hex[2 * TC_SHA256_BYTES + 1];
    if (!tc_input_sum(input, hex, error))
        return tc_error_in_file(error, input->path);
    tc_buffer_addf(text, "{\"%s\":", key);
    tc_buffer_add_json(text, tc_text_of(name), TC_ESCAPE_DISPLAY);
    tc_buffer_addf(text, ",\"size\":%" PRIu64 ",\"sha256\":\"%s\"}", input->size, hex);
    return true;
}

static bool add_inputs(struct tc_buffer *text, const struct tc_receipt_facts *facts,
                       struct tc_error *error) {
    const struct tc_conversion *conversion = facts->conversion;
    for (size_t i = 0; i < conversion->input_count; i++) {
        struct tc_input *input = conversion->inputs[i];
        tc_buffer_add_string(text, i ? "," : "");
        if (!add_file(text, "path", input->path, input, error))
            return false;
    }
    for (size_t i = 0; i < facts->also_count; i++) {
        struct tc_input *input = tc_input_open(facts->also[i], NULL, error);
        tc_buffer_add_string(text, ",");
        bool ok = input && add_file(text, "path", input->path, input, error);
        tc_input_close(input);
        if (!ok)
            return false;
    }
    return true;
}

static bool add_outputs(struct tc_buffer *text, const struct tc_publish *publish,
                        struct tc_error *error) {
    for (const struct tc_outfile *out = publish->files; out; out = out->next) {
        struct tc_input *input = tc_outfile_reopen(out, NULL, error);
        tc_buffer_add_string(text, out == publish->files ? "" : ",");
        bool ok = input && add_file(text, "name", out->name, input, error);
        tc_input_close(input);
        if (!ok)
            return false;
    }
    return true;
}

static void add_tensors(struct tc_buffer *text, const struct tc_read_back *read_back) {
    for (size_t i = 0; i < read_back->count; i++) {
        const struct tc_read_back_tensor *tensor = &read_back->tensors[i];
        char hex[2 * TC_SHA256_BYTES + 1];
        tc_hex(tensor->sum, TC_SHA256_BYTES, hex);
        tc_buffer_add_string(text, i ? ",{\"name\":" : "{\"name\":");
        tc_buffer_add_json(text, tensor->name, TC_ESCAPE_DISPLAY);
        tc_buffer_addf(text,
                       ",\"dtype\":\"%s\",\"shape\":", tc_dtype_name((enum tc_dtype)tensor->dtype));
        tc_shape_print(text, tensor->shape, tensor->rank);
        tc_buffer_addf(text, ",\"sha256\":\"%s\"}", hex);
    }
}

bool tc_receipt_make(struct tc_buffer *text, const struct tc_receipt_facts *facts,
                     struct tc_error *error) {
    const struct tc_conversion *conversion = facts->conversion;
    const struct tc_plan *plan = conversion->plan;
    char digest[2 * TC_SHA256_BYTES + 1];
    if (!tc_read_back_digest(&conversion->read_back, digest, error))
        return false;
    tc_buffer_add_string(text, "{\"tconv_receipt\":1,\"tconv\":\"" TC_VERSION "\"");
    if (facts->dated) {
        tc_buffer_add_string(text, ",\"date\":\"");
        tc_date_print(text, facts->date, "Z");
        tc_buffer_add_string(text, "\"");
    }
    tc_buffer_add_string(text, ",\"inputs\":[");
    if (!add_inputs(text, facts, error))
        return false;
    tc_buffer_add_string(text, "],\"output\":");
    tc_buffer_add_json(text, tc_text_of(facts->output), TC_ESCAPE_DISPLAY);
    tc_buffer_addf(text, ",\"format\":\"%s\",\"outputs\":[", plan->target->name);
    if (!add_outputs(text, &conversion->publish, error))
        return false;
    tc_buffer_addf(text, "],\"digest\":\"%s\",\"options\":", digest);
    tc_buffer_add_text(text, facts->options);
    tc_buffer_add_string(text, ",\"changes\":[");
    tc_notes_print(text, &plan->notes, TC_CHANGE);
    tc_buffer_add_string(text, "],\"losses\":[");
    tc_notes_print(text, &plan->notes, TC_LOSS);
    if (facts->tensors) {
        tc_buffer_add_string(text, "],\"tensors\":[");
        add_tensors(text, &conversion->read_back);
    }
    tc_buffer_add_string(text, "]}");
    return tc_buffer_ok(text, error);
}

bool tc_receipt_wrap(struct tc_buffer *file, const struct tc_buffer *text,
                     const unsigned char *secret, struct tc_error *error) {
    tc_buffer_add_string(file, "{\"receipt\":");
    tc_buffer_add(file, text->bytes, text->length);
    if (secret) {
        unsigned char signature[TC_SIGNATURE_BYTES];
        unsigned char public[TC_KEY_BYTES];
        char value[HEX_SIGNATURE + 1];
        char key[HEX_KEY + 1];
        if (!tc_sign(secret, text->bytes, text->length, signature, public))
            return tc_fail(error, TC_INTERNAL, "sign", "the receipt cannot be signed");
        tc_hex(signature, sizeof signature, value);
        tc_hex(public, sizeof public, key);
        tc_buffer_addf(file,
                       ",\"signature\":{\"algorithm\":\"ed25519\",\"public_key\":\"%s\","
                       "\"value\":\"%s\"}",
                       key, value);
    }
    tc_buffer_add_string(file, "}\n");
    return tc_buffer_ok(file, error);
}

static bool read_output(struct tc_json *json, struct tc_receipt_output *output) {
    unsigned char sum[TC_SHA256_BYTES];
    struct tc_text key;
    unsigned seen = 0;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        struct tc_text text;
        unsigned which = tc_text_equal(key, TC_TEXT("name"))     ? 1
                         : tc_text_equal(key, TC_TEXT("size"))   ? 2
                         : tc_text_equal(key, TC_TEXT("sha256")) ? 4
                                                                 : 0;
        if (!which || seen & which)
            return tc_json_fail(json, "a key of an output that is unknown or occurs twice");
        seen |= which;
        if (which == 2 ? !tc_json_unsigned(json, &output->size) : !tc_json_string(json, &text))
            return false;
        if (which == 1)
            output->name = text;
        if (which == 4 && !tc_unhex(text.bytes, text.length, sum, sizeof sum))
            return tc_json_fail(json, "sha256 is not 64 hexadecimal digits");
    }
    if (json->failed || seen != 7)
        return json->failed ? false : tc_json_fail(json, "an output lacks name, size or sha256");
    tc_hex(sum, sizeof sum, output->sum);
    if (tc_path_is_plain(output->name))
        return true;
    json->failed = true;
    return tc_fail(json->error, TC_UNSAFE, "receipt", "an output is not called by a plain name");
}

static bool read_outputs(struct tc_json *json, struct tc_receipt *receipt) {
    size_t capacity = 0;
    struct tc_json ahead;
    struct tc_text ignored;
    tc_json_peek(json);
    ahead = *json;
    tc_json_begin(&ahead, TC_JSON_ARRAY);
    while (tc_json_element(&ahead) && tc_json_skip(&ahead, &ignored))
        capacity++;
    if (ahead.failed)
        return false;
    receipt->outputs = tc_arena_array(json->arena, capacity, sizeof *receipt->outputs, json->error);
    struct tc_name_map names;
    tc_name_map_init(&names, json->arena);
    tc_json_begin(json, TC_JSON_ARRAY);
    bool ok = receipt->outputs != NULL;
    while (ok && tc_json_element(json)) {
        struct tc_receipt_output *output = &receipt->outputs[receipt->count++];
        ok = read_output(json, output);
        if (ok && tc_name_map_find(&names, output->name))
            ok = tc_json_fail(json, "two outputs have one name");
        ok = ok && tc_name_add(&names, output->name, 0, TC_MAX_NAMES, json->error);
    }
    tc_name_map_release(&names);
    return ok && !json->failed;
}

static bool read_body(struct tc_json *json, struct tc_receipt *receipt) {
    struct tc_text key;
    bool version = false;
    bool outputs = false;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        struct tc_text ignored;
        uint64_t number;
        bool is_version = tc_text_equal(key, TC_TEXT("tconv_receipt"));
        bool is_outputs = tc_text_equal(key, TC_TEXT("outputs"));
        if ((is_version && version) || (is_outputs && outputs))
            return tc_json_fail(json, "a key of the receipt occurs twice");
        version |= is_version;
        outputs |= is_outputs;
        if (!(is_version   ? tc_json_unsigned(json, &number)
              : is_outputs ? read_outputs(json, receipt)
                           : tc_json_skip(json, &ignored)))
            return false;
        if (is_version && number != 1)
            return tc_fail(json->error, TC_UNSUPPORTED, "version",
                           "receipts of version %" PRIu64 " are not known (expected 1)", number);
    }
    if (!json->failed && !(version && outputs))
        return tc_json_fail(json, "this is no receipt of tconv");
    return tc_json_end(json);
}

static bool read_signature(struct tc_json *json, struct tc_receipt *receipt) {
    struct tc_text key;
    unsigned seen = 0;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        struct tc_text text;
        unsigned which = tc_text_equal(key, TC_TEXT("algorithm"))    ? 1
                         : tc_text_equal(key, TC_TEXT("public_key")) ? 2
                         : tc_text_equal(key, TC_TEXT("value"))      ? 4
                                                                     : 0;
        if (!which || seen & which)
            return tc_json_fail(json, "a key of the signature that is unknown or occurs twice");
        seen |= which;
        if (!tc_json_string(json, &text))
            return false;
        if (which == 1 && !tc_text_equal(text, TC_TEXT("ed25519")))
            return tc_fail(json->error, TC_UNSUPPORTED, "signature",
                           "the signature is not Ed25519");
        if ((which == 2 && !tc_unhex(text.bytes, text.length, receipt->public, TC_KEY_BYTES)) ||
            (which == 4 &&
             !tc_unhex(text.bytes, text.length, receipt->signature, TC_SIGNATURE_BYTES)))
            return tc_json_fail(json, "a signature or key of the wrong length");
    }
    receipt->is_signed = true;
    return !json->failed && (seen == 7 || tc_json_fail(json, "the signature lacks a key"));
}

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
            if (!read_signature(&json, receipt))
                return false;
        } else {
            return tc_json_fail(&json, "a key that is unknown or occurs twice");
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
