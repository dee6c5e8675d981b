#include "core/metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDECAR_LIMIT (UINT64_C(100) * 1000 * 1000)

void tc_metadata_write(struct tc_buffer *text, const struct tc_metadata *metadata,
                       enum tc_escape how) {
    tc_buffer_add(text, "{", 1);
    for (size_t i = 0; metadata && i < metadata->count; i++) {
        if (i)
            tc_buffer_add(text, ",", 1);
        tc_buffer_add_json(text, metadata->pairs[i].key, how);
        tc_buffer_add(text, ":", 1);
        tc_buffer_add_json(text, metadata->pairs[i].value, how);
    }
    tc_buffer_add(text, "}", 1);
}

void tc_metadata_write_pretty(struct tc_buffer *text, const struct tc_metadata *metadata,
                              int indent, enum tc_escape how) {
    if (!metadata || metadata->count == 0) {
        tc_buffer_add_string(text, "{}");
        return;
    }
    for (size_t i = 0; i < metadata->count; i++) {
        tc_buffer_addf(text, "%s\n%*s", i ? "," : "{", indent + 2, "");
        tc_buffer_add_json(text, metadata->pairs[i].key, how);
        tc_buffer_add_string(text, ": ");
        tc_buffer_add_json(text, metadata->pairs[i].value, how);
    }
    tc_buffer_addf(text, "\n%*s}", indent, "");
}

static int by_name(const void *a, const void *b) {
    const struct tc_item *x = *(const struct tc_item *const *)a;
    const struct tc_item *y = *(const struct tc_item *const *)b;
    return tc_text_compare(x->name, y->name);
}

/* {name: {key: value}} of the items that have metadata; nothing where none has. */
static bool add_tensor_maps(const struct tc_item *items, size_t count, struct tc_buffer *text,
                            struct tc_error *error) {
    const struct tc_item **sorted = calloc(count ? count : 1, sizeof(struct tc_item *));
    if (!sorted)
        return tc_fail_memory(error);
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (items[i].metadata && items[i].metadata->count)
            sorted[used++] = &items[i];
    qsort(sorted, used, sizeof(struct tc_item *), by_name);
    for (size_t i = 0; i < used; i++) {
        tc_buffer_add(text, i ? "," : "{", 1);
        tc_buffer_add_json(text, sorted[i]->name, TC_ESCAPE_SERDE);
        tc_buffer_add(text, ":", 1);
        tc_metadata_write(text, sorted[i]->metadata, TC_ESCAPE_SERDE);
    }
    if (used)
        tc_buffer_add(text, "}", 1);
    free(sorted);
    return tc_buffer_ok(text, error);
}

bool tc_tensor_metadata_encode(const struct tc_plan *plan, const struct tc_part *part,
                               struct tc_buffer *text, struct tc_error *error) {
    return add_tensor_maps(plan->items + part->first, part->count, text, error);
}

bool tc_sidecar_encode(const struct tc_metadata *metadata, const struct tc_item *items,
                       size_t count, bool names, struct tc_buffer *text, struct tc_error *error) {
    tc_buffer_add_string(text, "{\"metadata\":");
    tc_metadata_write(text, metadata, TC_ESCAPE_SERDE);
    if (names)
        tc_buffer_add_string(text, ",\"names\":[");
    for (size_t i = 0; names && i < count; i++) {
        if (i)
            tc_buffer_add(text, ",", 1);
        tc_buffer_add_json(text, items[i].name, TC_ESCAPE_SERDE);
    }
    if (names)
        tc_buffer_add(text, "]", 1);
    tc_buffer_add_string(text, ",\"tensors\":");
    size_t before = text->length;
    if (!add_tensor_maps(items, count, text, error))
        return false;
    if (text->length == before)
        tc_buffer_add_string(text, "{}");
    tc_buffer_add_string(text, "}\n");
    return tc_buffer_ok(text, error);
}

bool tc_metadata_read(struct tc_json *json, struct tc_metadata *metadata) {
    struct tc_text key;
    struct tc_text value;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key))
        if (!tc_json_string(json, &value) ||
            !tc_metadata_add(metadata, json->arena, key, value, json->error))
            return false;
    return !json->failed && tc_metadata_sort(metadata, json->error);
}

/* Gives the tensors the metadata that {name: {key: value}} holds for them. */
static bool read_tensor_maps(struct tc_json *json, struct tc_reader *reader) {
    struct tc_text name;
    struct tc_text missing = {0}; /* the first of those that are not there */
    size_t missing_count = 0;
    tc_json_begin(json, TC_JSON_OBJECT);
    /* One name again and again would be merged again and again. */
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

/* The pairs of a JSON object, with values as they stand; the size of the whole
 * is none of them. */
static bool read_index_metadata(struct tc_text text, struct tc_metadata *pairs,
                                struct tc_arena *arena, struct tc_error *error) {
    struct tc_json json;
    struct tc_text key;
    struct tc_text value;
    tc_json_init(&json, text.bytes, text.length, 0, arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key))
        if (!tc_json_skip(&json, &value) || (!tc_text_equal(key, TC_TEXT("total_size")) &&
                                             !tc_metadata_add(pairs, arena, key, value, error)))
            return false;
    return tc_json_end(&json) && tc_metadata_sort(pairs, error);
}

/* Finds it in the plan; false on failure. What is no such object stays what it
 * is, a text under a key. */
static bool find_index_metadata(struct tc_plan *plan, struct tc_metadata *pairs,
                                struct tc_error *error) {
    const struct tc_text *text = tc_metadata_find(&plan->metadata, TC_TEXT(TC_INDEX_METADATA_KEY));
    struct tc_error inner = {0};
    if (!text || read_index_metadata(*text, pairs, &plan->arena, &inner))
        return true;
    *pairs = (struct tc_metadata){0};
    return inner.class == TC_INVALID
               ? tc_plan_note(plan, TC_WARNING, TC_KIND_METADATA, (struct tc_text){0}, error,
                              TC_INDEX_METADATA_KEY " is not what an index has; it stays a text")
               : tc_fail(error, inner.class, inner.code, "%s", inner.message);
}

static bool takes_all(const struct tc_plan *plan) {
    const struct tc_select *select = plan->options->select;
    if (plan->reader_count > 1 || (select && select->row_count))
        return false;
    for (size_t i = 0; i < plan->readers[0]->table.count; i++)
        if (!plan->taken[0][i])
            return false;
    return true;
}

bool tc_index_metadata_set(struct tc_metadata *metadata, const struct tc_metadata *pairs,
                           struct tc_arena *arena, struct tc_error *error) {
    struct tc_text key = TC_TEXT(TC_INDEX_METADATA_KEY);
    struct tc_buffer text = {0};
    if (pairs->count == 0) {
        tc_metadata_remove(metadata, key);
        return true;
    }
    for (size_t i = 0; i < pairs->count; i++) {
        tc_buffer_add_string(&text, i ? "," : "{");
        tc_buffer_add_json(&text, pairs->pairs[i].key, TC_ESCAPE_SERDE);
        tc_buffer_add_string(&text, ":");
        tc_buffer_add_text(&text, pairs->pairs[i].value);
    }
    tc_buffer_add_string(&text, "}");
    char *copy =
        tc_buffer_ok(&text, error) ? tc_arena_copy(arena, text.bytes, text.length, error) : NULL;
    bool ok =
        copy && tc_metadata_set(metadata, arena, key, (struct tc_text){copy, text.length}, error);
    tc_buffer_release(&text);
    return ok;
}

bool tc_index_metadata_update(struct tc_plan *plan, struct tc_error *error) {
    struct tc_metadata pairs = {0};
    struct tc_text total = TC_TEXT("total_parameters");
    if (takes_all(plan))
        return true;
    if (!find_index_metadata(plan, &pairs, error) || !tc_metadata_find(&pairs, total))
        return error->class == TC_OK;
    tc_metadata_remove(&pairs, total);
    return tc_index_metadata_set(&plan->metadata, &pairs, &plan->arena, error) &&
           tc_plan_note(plan, TC_CHANGE, TC_KIND_METADATA, (struct tc_text){0}, error,
                        "the index's total_parameters is left out: it counts other tensors than "
                        "those written");
}

bool tc_index_metadata_take(struct tc_plan *plan, struct tc_error *error) {
    if (!plan->index_name || !plan->target->sharding->index_metadata)
        return true;
    if (!find_index_metadata(plan, &plan->index_metadata, error))
        return false;
    if (plan->index_metadata.count)
        tc_metadata_remove(&plan->metadata, TC_TEXT(TC_INDEX_METADATA_KEY));
    return true;
}

/* What numbered tensors are called, in their order. */
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
    tc_reader_lose(reader,
                   "the sidecar has names for %zu tensors, the file has %zu; they stay numbers",
                   count, table->count);
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
        /* Tensors' metadata goes by the names that they have from here. */
        if (which == KEYS || (which == NAMES && !tc_backend_numbers(reader->backend)))
            return tc_json_fail(&json, "an unknown key in the sidecar");
        if (seen[which] || (which == NAMES && seen[TENSORS]))
            return tc_json_fail(&json, seen[which] ? "a key occurs twice in the sidecar"
                                                   : "names come before tensors in a sidecar");
        seen[which] = true;
        if (!(which == METADATA ? tc_metadata_read(&json, &reader->table.metadata)
              : which == NAMES  ? read_names(&json, reader)
                                : read_tensor_maps(&json, reader)))
            return false;
    }
    return tc_json_end(&json);
}

bool tc_sidecar_restore(struct tc_reader *reader, struct tc_error *error) {
    char path[4096];
    if (strcmp(reader->input->path, "-") == 0)
        return true;
    int length = snprintf(path, sizeof path, "%s.tconv.json", reader->input->path);
    if (length < 0 || (size_t)length >= sizeof path || !tc_reader_has_beside(reader, path))
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
