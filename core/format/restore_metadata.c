#include "core/format/restore_metadata.h"

#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/table.h"

#define SIDECAR_LIMIT (UINT64_C(100) * 1000 * 1000)

/* Gives the tensors the metadata that {name: {key: value}} holds for them. */
static bool read_tensor_maps(struct tc_json *json, struct tc_reader *reader) {
    struct tc_text name;
    struct tc_text missing = {0}; /* the first name that the table does not have */
    size_t missing_count = 0;
    tc_json_begin(json, TC_JSON_OBJECT);
    /* A name may occur once: merging it again and again would take quadratic time. */
    bool *seen = tc_arena_array(json->arena, reader->table.count, sizeof *seen, json->error);
    if (!seen)
        return false;
    while (tc_json_key(json, &name)) {
        struct tc_metadata *metadata = tc_arena_alloc(json->arena, sizeof *metadata, json->error);
        if (!metadata || !tc_metadata_read(json, metadata))
            return false;
        struct tc_tensor *tensor = tc_table_find(&reader->table, name);
        if (tensor && seen[tensor - reader->table.tensors])
            return tc_json_fail(json, "metadata of one tensor occurs twice");
        if (tensor)
            seen[tensor - reader->table.tensors] = true;
        size_t conflicts;
        if (tensor && tensor->metadata) {
            if (!tc_metadata_merge(tensor->metadata, metadata, json->arena, &conflicts,
                                   json->error))
                return false;
        } else if (tensor)
            tensor->metadata = metadata;
        else if (missing_count++ == 0)
            missing = name;
    }
    if (missing_count)
        tc_reader_lose(reader, "metadata of %zu tensor%s not there is left out; the first is %.*s",
                       missing_count, missing_count == 1 ? " that is" : "s that are",
                       tc_text_shown(missing, 200), missing.bytes);
    return !json->failed;
}

bool tc_tensor_metadata_restore(struct tc_reader *reader, struct tc_error *error) {
    struct tc_text key = TC_TEXT(TC_TENSOR_METADATA_KEY);
    const struct tc_text *text = tc_metadata_find(&reader->table.metadata, key);
    if (!text)
        return true;
    struct tc_error inner = {0};
    struct tc_json json;
    tc_json_init(&json, text->bytes, text->length, 0, &reader->arena, &inner);
    if (read_tensor_maps(&json, reader) && tc_json_end(&json)) {
        tc_metadata_remove(&reader->table.metadata, key);
        return true;
    }
    return tc_fail(error, inner.class, "tensor-metadata", "metadata key \"%s\": %s",
                   TC_TENSOR_METADATA_KEY, inner.message);
}

bool tc_metadata_types_restore(struct tc_reader *reader, struct tc_error *error) {
    struct tc_text key = TC_TEXT(TC_METADATA_TYPES_KEY);
    const struct tc_text *text = tc_metadata_find(&reader->table.metadata, key);
    struct tc_metadata types = {0};
    struct tc_json json;
    if (!text || reader->metadata_types.count)
        return true;
    struct tc_error *refused = tc_arena_alloc(&reader->arena, sizeof *refused, error);
    if (!refused)
        return false;
    tc_json_init(&json, text->bytes, text->length, 0, &reader->arena, refused);
    if (tc_metadata_read(&json, &types) && tc_json_end(&json)) {
        reader->metadata_types = types;
        tc_metadata_remove(&reader->table.metadata, key);
        return true;
    }
    tc_reader_warn(reader, "metadata key " TC_METADATA_TYPES_KEY " holds no types (%s)",
                   refused->message);
    return true;
}

/* Reads the names of numbered tensors, in their order. */
static bool read_names(struct tc_json *json, struct tc_reader *reader) {
    struct tc_table *table = &reader->table;
    struct tc_text *names = tc_arena_array(json->arena, table->count, sizeof *names, json->error);
    struct tc_text name;
    size_t count = 0;
    if (!names)
        return false;
    tc_json_begin(json, TC_JSON_ARRAY);
    for (; tc_json_element(json); count++) {
        if (!tc_json_string(json, &name))
            return false;
        if (count < table->count)
            names[count] = name;
    }
    if (json->failed)
        return false;
    if (count == table->count)
        return tc_table_rename(table, names, json->error);
    tc_reader_lose(
        reader,
        "the sidecar has names for %zu tensors, the file has %zu; the tensors keep their "
        "numbers as names",
        count, table->count);
    return true;
}

/* Reads the file's metadata. A value of a checkpoint that was given another one since is there
 * twice, and the sidecar's counts. */
static bool read_metadata(struct tc_json *json, struct tc_reader *reader) {
    struct tc_metadata metadata = {0};
    size_t conflicts;
    if (!tc_metadata_read(json, &metadata) ||
        !tc_metadata_merge(&metadata, &reader->table.metadata, json->arena, &conflicts,
                           json->error))
        return false;
    reader->table.metadata = metadata;
    return true;
}

bool tc_sidecar_read(struct tc_reader *reader, const char *text, size_t length,
                     struct tc_error *error) {
    static const char *const keys[] = {"metadata", "names", "tensors"};
    enum { METADATA, NAMES, TENSORS, KEYS };
    struct tc_json json;
    struct tc_text key;
    bool seen[KEYS] = {false};
    tc_json_init(&json, text, length, 0, &reader->arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        int which = 0;
        while (which < KEYS && !tc_text_equal(key, tc_text_of(keys[which])))
            which++;
        /* "names" must come before "tensors", which refers to tensors by these names. */
        if (which == KEYS || (which == NAMES && !tc_backend_numbers(reader->backend)))
            return tc_json_fail(&json, "an unknown key in the sidecar");
        if (seen[which] || (which == NAMES && seen[TENSORS]))
            return tc_json_fail(&json, seen[which] ? "a key occurs twice in the sidecar"
                                                   : "names come before tensors in a sidecar");
        seen[which] = true;
        if (!(which == METADATA ? read_metadata(&json, reader)
              : which == NAMES  ? read_names(&json, reader)
                                : read_tensor_maps(&json, reader)))
            return false;
    }
    return tc_json_end(&json);
}

bool tc_sidecar_restore(struct tc_reader *reader, struct tc_error *error) {
    char path[4096];
    bool has;
    if (strcmp(reader->input->path, "-") == 0)
        return true;
    int length = snprintf(path, sizeof path, "%s.tconv.json", reader->input->path);
    if (length < 0 || (size_t)length >= sizeof path)
        return true;
    if (!tc_reader_has_beside(reader, path, &has, error))
        return false;
    if (!has)
        return true;
    struct tc_input *input = tc_reader_open_beside(reader, path, NULL, error);
    if (!input)
        return false;
    reader->sidecar = input;
    bool ok = tc_reader_check_header(reader, "sidecar", input->size, SIDECAR_LIMIT, error);
    if (ok)
        tc_memory_earn(input->size);
    /* The arena keeps the text: names and values point into it. */
    char *text = ok ? tc_arena_alloc(&reader->arena, input->size, error) : NULL;
    ok = text && tc_input_read(input, 0, text, input->size, error) &&
         tc_sidecar_read(reader, text, input->size, error);
    if (!ok)
        tc_error_in_file(error, path);
    return ok;
}
