#include "core/format/aliases.h"

#include <string.h>

#include "core/base/findings.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"

bool tc_alias_key(struct tc_text key) {
    return key.length && key.length <= TC_MAX_NAME_BYTES &&
           !tc_text_equal(key, TC_TEXT("format")) && !tc_text_starts(key, TC_TEXT("tconv.")) &&
           !tc_text_starts(key, TC_TEXT("deathtensors.")) && !memchr(key.bytes, '\0', key.length) &&
           tc_utf8_valid(key);
}

bool tc_alias_looks_recorded(struct tc_text key) {
    return tc_alias_key(key) && memchr(key.bytes, '.', key.length);
}

/* Reads the list of aliases, where the file has one, and removes it from the
 * metadata. */
static bool read_list(struct tc_reader *reader, struct tc_name_map *listed, bool *has_list,
                      struct tc_error *error) {
    struct tc_metadata *metadata = &reader->table.metadata;
    const struct tc_text *text = tc_metadata_find(metadata, TC_TEXT(TC_ALIASES_KEY));
    struct tc_json json;
    struct tc_text name;
    *has_list = text != NULL;
    if (!text)
        return true;
    tc_json_init(&json, text->bytes, text->length, 0, &reader->arena, error);
    tc_json_begin(&json, TC_JSON_ARRAY);
    while (tc_json_element(&json)) {
        if (!tc_json_string(&json, &name) ||
            !tc_name_add(listed, name, 0, reader->options->limits.tensors, error))
            break;
    }
    if (error->class == TC_OK && tc_json_end(&json)) {
        tc_metadata_remove(metadata, TC_TEXT(TC_ALIASES_KEY));
        return true;
    }
    error->has_offset = false; /* it counts in this text, not in the file */
    return tc_error_in_file(error, reader->input->path);
}

static bool restore(struct tc_reader *reader, const struct tc_name_map *listed, bool has_list,
                    struct tc_error *error) {
    struct tc_table *table = &reader->table;
    struct tc_metadata *metadata = &table->metadata;
    size_t own = table->count; /* a pair that names an alias is no alias */
    size_t left = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        struct tc_pair pair = metadata->pairs[i];
        bool alias_key = has_list ? tc_alias_key(pair.key) && tc_name_map_find(listed, pair.key)
                                  : tc_alias_looks_recorded(pair.key);
        const struct tc_tensor *kept = alias_key ? tc_table_find(table, pair.value) : NULL;
        if (has_list && alias_key && !kept && reader->options->findings)
            tc_findings_add(reader->options->findings, "alias", NULL, pair.key,
                            "it is an alias of \"%.*s\", which is not there",
                            tc_text_shown(pair.value, 300), pair.value.bytes);
        size_t position = kept ? (size_t)(kept - table->tensors) : own;
        if (position >= own || tc_table_find(table, pair.key)) {
            metadata->pairs[left++] = pair;
            continue;
        }
        struct tc_tensor alias = *kept;
        alias.name = pair.key;
        if (!tc_table_add(table, &alias, error))
            return tc_error_in_file(error, reader->input->path);
        tc_table_tie(table, position, table->count - 1);
    }
    metadata->count = left;
    return true;
}

bool tc_aliases_restore(struct tc_reader *reader, struct tc_error *error) {
    const struct tc_backend *format =
        reader->shard_backend ? reader->shard_backend : reader->backend;
    struct tc_name_map listed;
    bool has_list;
    if (format->caps & TC_CAN_TIE)
        return true;
    tc_name_map_init(&listed, &reader->arena);
    bool ok =
        read_list(reader, &listed, &has_list, error) && restore(reader, &listed, has_list, error);
    tc_name_map_release(&listed);
    return ok;
}
