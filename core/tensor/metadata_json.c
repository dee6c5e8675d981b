#include "core/tensor/metadata_json.h"

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
