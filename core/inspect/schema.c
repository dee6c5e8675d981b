#include "core/inspect/schema.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/io/input.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"

#define SCHEMA_LIMIT UINT64_C(100000000)

/* Which of `keys` the key is; fails where it is none, or was there before. */
static bool find_key(struct tc_json *json, struct tc_text key, const char *const *keys,
                     size_t count, bool *seen, size_t *which) {
    for (*which = 0; *which < count; ++*which)
        if (tc_text_equal(key, tc_text_of(keys[*which])))
            break;
    if (*which == count)
        return tc_json_fail(json, "unknown key \"%.*s\"", tc_text_shown(key, 200), key.bytes);
    if (seen[*which])
        return tc_json_fail(json, "\"%s\" occurs twice", keys[*which]);
    seen[*which] = true;
    return true;
}

static bool read_flag(struct tc_json *json, bool *flag) {
    struct tc_text ignored;
    enum tc_json_kind kind = tc_json_peek(json);
    if (kind != TC_JSON_TRUE && kind != TC_JSON_FALSE)
        return tc_json_fail(json, "expected true or false");
    *flag = kind == TC_JSON_TRUE;
    return tc_json_skip(json, &ignored);
}

/* Room for one more element behind `count` of them; NULL with the error filled.
 * Grows in powers of two, as the arena frees nothing. */
static void *grow(struct tc_json *json, void *list, size_t count, size_t size) {
    if (count & (count - 1) || count == 1)
        return list;
    void *grown = tc_arena_array(json->arena, count ? 2 * count : 2, size, json->error);
    if (grown && count)
        memcpy(grown, list, count * size);
    json->failed |= !grown;
    return grown;
}

static bool read_strings(struct tc_json *json, struct tc_text **list, size_t *count) {
    tc_json_begin(json, TC_JSON_ARRAY);
    while (tc_json_element(json)) {
        struct tc_text *grown = grow(json, *list, *count, sizeof **list);
        if (!grown || !tc_json_string(json, &grown[*count]))
            return false;
        *list = grown;
        ++*count;
    }
    return !json->failed;
}

static bool read_dtype(struct tc_json *json, tc_dtype_set *dtypes) {
    struct tc_text name;
    if (!tc_json_string(json, &name))
        return false;
    enum tc_dtype dtype = tc_dtype_named(name);
    if (dtype == TC_NONE) {
        tc_json_fail(json, "no such dtype: \"%.*s\"", tc_text_shown(name, 100), name.bytes);
        return tc_dtype_hint(name, json->error, "tconv formats lists the dtypes");
    }
    *dtypes |= TC_SET(dtype);
    return true;
}

static bool read_dtypes(struct tc_json *json, tc_dtype_set *dtypes) {
    if (tc_json_peek(json) != TC_JSON_ARRAY)
        return read_dtype(json, dtypes);
    tc_json_begin(json, TC_JSON_ARRAY);
    while (tc_json_element(json))
        if (!read_dtype(json, dtypes))
            return false;
    if (!json->failed && !*dtypes)
        return tc_json_fail(json, "the list of dtypes is empty");
    return !json->failed;
}

static bool read_shape(struct tc_json *json, struct tc_schema_rule *rule) {
    rule->has_shape = true;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (tc_json_element(json)) {
        uint64_t *grown = grow(json, rule->shape, rule->rank, sizeof *rule->shape);
        if (!grown)
            return false;
        if (rule->rank == TC_MAX_RANK)
            return tc_json_fail(json, "a shape of more than %u dimensions", TC_MAX_RANK);
        rule->shape = grown;
        grown[rule->rank] = TC_SCHEMA_ANY;
        if (!(tc_json_peek(json) == TC_JSON_NULL ? tc_json_null(json)
                                                 : tc_json_unsigned(json, &grown[rule->rank])))
            return false;
        rule->rank++;
    }
    return !json->failed;
}

static bool read_rule(struct tc_json *json, struct tc_schema_rule *rule) {
    static const char *const keys[] = {"dtype", "shape", "metadata_keys", "finite", "optional"};
    enum { DTYPE, SHAPE, METADATA_KEYS, FINITE, OPTIONAL, KEYS };
    bool seen[KEYS] = {false};
    struct tc_text key;
    size_t which;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        if (!find_key(json, key, keys, KEYS, seen, &which))
            return false;
        bool ok = which == DTYPE           ? read_dtypes(json, &rule->dtypes)
                  : which == SHAPE         ? read_shape(json, rule)
                  : which == METADATA_KEYS ? read_strings(json, &rule->keys, &rule->key_count)
                  : which == FINITE        ? read_flag(json, &rule->finite)
                                           : read_flag(json, &rule->optional);
        if (!ok)
            return false;
    }
    return !json->failed;
}

static bool compile(struct tc_json *json, struct tc_schema_rule *rule) {
    struct tc_text name = rule->name;
    rule->is_regex = name.length >= 2 && name.bytes[0] == '/' && name.bytes[name.length - 1] == '/';
    if (!rule->is_regex)
        return true;
    struct tc_error bad = {0};
    struct tc_text pattern = {name.bytes + 1, name.length - 2};
    if (tc_regex_compile(&rule->regex, pattern, false, &bad))
        return true;
    rule->is_regex = false; /* there is nothing to release */
    return tc_json_fail(json, "%s", bad.message);
}

static bool read_rules(struct tc_json *json, struct tc_schema *schema) {
    struct tc_text name;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &name)) {
        struct tc_schema_rule *grown =
            grow(json, schema->rules, schema->count, sizeof *schema->rules);
        if (!grown)
            return false;
        schema->rules = grown;
        struct tc_schema_rule *rule = &grown[schema->count];
        *rule = (struct tc_schema_rule){.name = name};
        if (!tc_name_add(&schema->names, name, (uint32_t)schema->count, TC_LIMITS_DEFAULT.tensors,
                         json->error))
            return tc_error_in_tensor(json->error, name.bytes, name.length);
        if (!compile(json, rule))
            return false;
        schema->count++;
        if (!read_rule(json, rule))
            return tc_error_in_tensor(json->error, name.bytes, name.length);
    }
    return !json->failed;
}

static bool parse(struct tc_schema *schema, size_t length, struct tc_error *error) {
    static const char *const keys[] = {"tensors", "allow_extra", "metadata_keys"};
    enum { TENSORS, ALLOW_EXTRA, METADATA_KEYS, KEYS };
    bool seen[KEYS] = {false};
    struct tc_json json;
    struct tc_text key;
    size_t which;
    tc_json_init(&json, schema->text, length, 0, &schema->arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        if (!find_key(&json, key, keys, KEYS, seen, &which))
            return false;
        bool ok = which == TENSORS       ? read_rules(&json, schema)
                  : which == ALLOW_EXTRA ? read_flag(&json, &schema->allow_extra)
                                         : read_strings(&json, &schema->keys, &schema->key_count);
        if (!ok)
            return false;
    }
    return tc_json_end(&json);
}

bool tc_schema_load(struct tc_schema *schema, const char *path, struct tc_error *error) {
    *schema = (struct tc_schema){0};
    tc_arena_init(&schema->arena, TC_LIMITS_DEFAULT.memory);
    tc_name_map_init(&schema->names, &schema->arena);
    struct tc_input *input = tc_input_open(path, NULL, error);
    if (!input)
        return false;
    uint64_t length = input->size;
    bool ok = length <= SCHEMA_LIMIT;
    if (!ok) {
        tc_fail(error, TC_UNSAFE, "header-limit", "the schema is too long (%llu bytes, limit %llu)",
                (unsigned long long)length, (unsigned long long)SCHEMA_LIMIT);
        tc_error_hint(error, TC_FIXED_LIMIT);
    }
    schema->text = ok ? tc_input_load(input, 0, length, error) : NULL;
    tc_input_close(input);
    return (schema->text && parse(schema, length, error)) || tc_error_in_file(error, path);
}

void tc_schema_release(struct tc_schema *schema) {
    for (size_t i = 0; i < schema->count; i++)
        if (schema->rules[i].is_regex)
            tc_regex_release(&schema->rules[i].regex);
    tc_name_map_release(&schema->names);
    tc_arena_release(&schema->arena);
    free(schema->text);
    *schema = (struct tc_schema){0};
}

/* A name that would be taken for an expression is written as the one that
 * matches it alone. */
static void write_name(struct tc_buffer *text, struct tc_text name) {
    if (name.length < 2 || name.bytes[0] != '/' || name.bytes[name.length - 1] != '/') {
        tc_buffer_add_json(text, name, TC_ESCAPE_SERDE);
        return;
    }
    struct tc_buffer pattern = {0};
    tc_buffer_add_string(&pattern, "/\\A");
    for (size_t i = 0; i < name.length; i++) {
        if (strchr("\\^$.[|()?*+{/#-", name.bytes[i]))
            tc_buffer_add_string(&pattern, "\\");
        tc_buffer_add(&pattern, name.bytes + i, 1);
    }
    tc_buffer_add_string(&pattern, "\\z/");
    tc_buffer_add_json(text, (struct tc_text){pattern.bytes, pattern.length}, TC_ESCAPE_SERDE);
    text->failed |= pattern.failed;
    tc_buffer_release(&pattern);
}

static void write_keys(struct tc_buffer *text, const struct tc_metadata *metadata) {
    tc_buffer_add_string(text, "\"metadata_keys\": [");
    for (size_t i = 0; metadata && i < metadata->count; i++) {
        tc_buffer_add_string(text, i ? ", " : "");
        tc_buffer_add_json(text, metadata->pairs[i].key, TC_ESCAPE_SERDE);
    }
    tc_buffer_add_string(text, "]");
}

void tc_schema_write(struct tc_buffer *text, const struct tc_table *table) {
    tc_buffer_add_string(text, "{\n  \"tensors\": {");
    for (size_t i = 0; i < table->count; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        tc_buffer_add_string(text, i ? ",\n    " : "\n    ");
        write_name(text, tensor->name);
        tc_buffer_addf(text, ": {\"dtype\": \"%s\", \"shape\": ", tc_dtype_name(tensor->dtype));
        tc_shape_print(text, tensor->shape, tensor->rank);
        if (tensor->metadata && tensor->metadata->count) {
            tc_buffer_add_string(text, ", ");
            write_keys(text, tensor->metadata);
        }
        tc_buffer_add_string(text, "}");
    }
    tc_buffer_add_string(text, table->count ? "\n  },\n" : "},\n");
    tc_buffer_add_string(text, "  \"allow_extra\": false,\n  ");
    write_keys(text, &table->metadata);
    tc_buffer_add_string(text, "\n}\n");
}
