/*
 * NAME.safetensors.index.json and its like:
 *     {"metadata": {"total_size": N, …}, "weight_map": {tensor: file, …}}
 * The shards are files of the same folder, in any format that tconv recognises by
 * content.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/publish.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "formats/shards.h"

#define INDEX_LIMIT UINT64_C(100000000)
#define INCOMPLETE "\"" TC_INCOMPLETE_KEY "\""

struct index_reader {
    struct shards shards; /* must be first */
    char *text;
    bool has_total;
    double total;
};

/* A JSON object whose first key is "weight_map", or "metadata", which is the only
 * other key of an index. */
static int probe(const struct tc_probe *probe) {
    size_t at = 0;
    while (at < probe->length && memchr(" \t\r\n", probe->head[at], 4))
        at++;
    if (at == probe->length || probe->head[at] != '{')
        return 0;
    at++;
    while (at < probe->length && memchr(" \t\r\n", probe->head[at], 4))
        at++;
    size_t left = probe->length - at;
    if (left >= 12 && memcmp(probe->head + at, "\"weight_map\"", 12) == 0)
        return 80;
    /* The notice that stands in the place of a file, of any format, while the files
     * of a model are being replaced (core/io/publish.h). */
    if (left >= sizeof INCOMPLETE - 1 &&
        memcmp(probe->head + at, INCOMPLETE, sizeof INCOMPLETE - 1) == 0)
        return 80;
    return left >= 10 && memcmp(probe->head + at, "\"metadata\"", 10) == 0 ? 50 : 0;
}

/* total_size, which some tools write as a real number. */
static bool read_total(struct tc_json *json, struct index_reader *index) {
    struct tc_text text;
    if (tc_json_peek(json) != TC_JSON_NUMBER)
        return tc_json_fail(json, "total_size is no number");
    if (!tc_json_skip(json, &text))
        return false;
    char digits[64] = {0};
    if (text.length < sizeof digits)
        memcpy(digits, text.bytes, text.length);
    index->total = strtod(digits, NULL);
    index->has_total = true;
    if (text.length >= sizeof digits || !(index->total >= 0 && index->total < 0x1p63))
        return tc_json_fail(json, "total_size is out of range");
    return true;
}

/* Anything but total_size is kept as it is, under one key of the file's metadata. */
static bool read_metadata(struct tc_json *json, struct tc_reader *reader) {
    struct index_reader *index = reader->state;
    struct tc_metadata pairs = {0};
    struct tc_text key;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        struct tc_text value;
        if (tc_text_equal(key, TC_TEXT("total_size"))) {
            if (index->has_total)
                return tc_json_fail(json, "total_size occurs twice");
            if (!read_total(json, index))
                return false;
            continue;
        }
        if (!tc_json_skip(json, &value) ||
            !tc_metadata_add(&pairs, &reader->arena, key, value, json->error))
            return false;
    }
    return !json->failed && tc_metadata_sort(&pairs, json->error) &&
           tc_index_metadata_set(&reader->table.metadata, &pairs, &reader->arena, json->error);
}

static bool read_weight_map(struct tc_json *json, struct index_reader *index) {
    struct tc_text name;
    struct tc_text file;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &name)) {
        uint32_t shard;
        if (!tc_json_string(json, &file) ||
            !shards_add_file(&index->shards, file, &shard, json->error) ||
            !shards_add_tensor(&index->shards, name, shard, json->error))
            return tc_error_in_tensor(json->error, name.bytes, name.length);
    }
    return !json->failed;
}

static bool parse(struct tc_reader *reader, uint64_t length, struct tc_error *error) {
    struct index_reader *index = reader->state;
    struct tc_json json;
    struct tc_text key;
    bool seen[2] = {false, false};
    tc_json_init(&json, index->text, length, 0, &reader->arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        struct tc_text ignored;
        int which = tc_text_equal(key, TC_TEXT("metadata"))     ? 0
                    : tc_text_equal(key, TC_TEXT("weight_map")) ? 1
                                                                : -1;
        if (tc_text_equal(key, TC_TEXT(TC_INCOMPLETE_KEY))) {
            tc_fail(error, TC_INVALID, "incomplete",
                    "the model is incomplete: its files were being replaced, and that did not end");
            return tc_error_hint(error, "run the conversion that writes it again");
        }
        if (which >= 0 && seen[which])
            return tc_json_fail(&json, "a key of the index occurs twice");
        if (which >= 0)
            seen[which] = true;
        bool ok = which == 0   ? read_metadata(&json, reader)
                  : which == 1 ? read_weight_map(&json, index)
                               : tc_json_skip(&json, &ignored);
        if (!ok)
            return false;
    }
    if (tc_json_end(&json) && !seen[1])
        return tc_json_fail(&json, "the index has no weight_map");
    return !json.failed;
}

static bool open_index(struct tc_reader *reader, struct tc_error *error) {
    struct index_reader *index = reader->state;
    uint64_t length = reader->input->size;
    uint64_t limit = tc_reader_header_limit(reader, INDEX_LIMIT);
    shards_init(&index->shards, reader);
    if (length > limit) {
        tc_fail(error, TC_UNSAFE, "header-limit", "the index is too long (%llu bytes, limit %llu)",
                (unsigned long long)length, (unsigned long long)limit);
        return tc_error_hint(error, "raise the limit with --max-header if you trust this file");
    }
    index->text = tc_reader_load(reader, 0, length, error);
    if (!index->text || !parse(reader, length, error) ||
        !shards_open(&index->shards, reader, true, error))
        return false;
    uint64_t total = 0;
    for (size_t i = 0; i < reader->table.count; i++)
        total += reader->table.tensors[i].nbytes;
    if (!index->has_total || (double)total == index->total)
        return true;
    if (!reader->options->findings)
        tc_reader_warn(reader, "the index says total_size %.0f, the tensors have %llu bytes",
                       index->total, (unsigned long long)total);
    else if (!shards_incomplete(&index->shards)) /* a missing shard is a finding already */
        tc_findings_add(reader->options->findings, "total-size", NULL, (struct tc_text){0},
                        "the index says total_size %.0f, the tensors have %llu bytes", index->total,
                        (unsigned long long)total);
    return true;
}

static void close_index(struct tc_reader *reader) {
    struct index_reader *index = reader->state;
    shards_release(&index->shards);
    free(index->text);
}

const struct tc_backend tc_backend_index = {
    .name = "index",
    .summary = "Index of a sharded model",
    .extensions = (const char *const[]){".index.json", NULL},
    .mime = "application/json",
    .caps = TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA | TC_CAN_LOAD_LAZILY,
    .probe = probe,
    .reader_size = sizeof(struct index_reader),
    .open = open_index,
    .read = shards_reader_read,
    .extent = shards_reader_extent,
    .strided = shards_reader_strided,
    .check_sums = shards_reader_check_sums,
    .close = close_index,
};
