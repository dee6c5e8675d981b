#include "core/tensor/metadata_json.h"

#include "core/base/text.h"

void tc_metadata_write(struct tc_json_writer *json, const char *key,
                       const struct tc_metadata *metadata) {
    tc_json_open_object(json, key);
    for (size_t i = 0; metadata && i < metadata->count; i++) {
        tc_json_add_key(json, metadata->pairs[i].key);
        tc_json_add_text(json, NULL, metadata->pairs[i].value);
    }
    tc_json_close(json);
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

bool tc_index_metadata_set(struct tc_metadata *metadata, const struct tc_metadata *pairs,
                           struct tc_arena *arena, struct tc_error *error) {
    struct tc_text key = TC_TEXT(TC_INDEX_METADATA_KEY);
    struct tc_buffer text = {0};
    if (pairs->count == 0) {
        tc_metadata_remove(metadata, key);
        return true;
    }
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    for (size_t i = 0; i < pairs->count; i++) {
        tc_json_add_key(&json, pairs->pairs[i].key);
        tc_json_add_raw(&json, NULL, pairs->pairs[i].value);
    }
    tc_json_close(&json);
    char *copy =
        tc_buffer_ok(&text, error) ? tc_arena_copy(arena, text.bytes, text.length, error) : NULL;
    bool ok =
        copy && tc_metadata_set(metadata, arena, key, (struct tc_text){copy, text.length}, error);
    tc_buffer_release(&text);
    return ok;
}
