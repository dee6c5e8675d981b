#include "core/inspect/schema.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/io/input.h"
#include "core/tensor/metadata.h"

#define SCHEMA_LIMIT UINT64_C(100000000)

/* The index in `keys` of the member's key; fails where it is unknown. */
static bool find_key(const struct tc_document *document, const struct tc_document_member *member,
                     const char *const *keys, size_t count, size_t *which) {
    for (*which = 0; *which < count; ++*which)
        if (tc_text_equal(member->key, tc_text_of(keys[*which])))
            return true;
    return tc_document_fail(document, member->value, "unknown key \"%.*s\"",
                            tc_text_shown(member->key, 200), member->key.bytes);
}

static bool read_strings(struct tc_schema *schema, const struct tc_document *document,
                         const struct tc_document_value *array, struct tc_text **list,
                         size_t *count) {
    if (!tc_document_expect(document, array, TC_JSON_ARRAY))
        return false;
    *count = tc_document_count(array);
    *list = tc_arena_array(&schema->arena, *count, sizeof **list, document->error);
    bool ok = *list != NULL;
    for (size_t i = 0; i < *count && ok; i++)
        ok = tc_document_text(document, tc_document_item(array, i), &(*list)[i]) &&
             tc_document_keep(document, &(*list)[i], &schema->arena);
    return ok;
}

static bool read_dtype(const struct tc_document *document, const struct tc_document_value *value,
                       tc_dtype_set *dtypes) {
    struct tc_text name;
    if (!tc_document_text(document, value, &name))
        return false;
    enum tc_dtype dtype = tc_dtype_named(name);
    if (dtype == TC_NONE) {
        tc_document_fail(document, value, "no such dtype: \"%.*s\"", tc_text_shown(name, 100),
                         name.bytes);
        return tc_dtype_hint(name, document->error, "tconv formats lists the dtypes");
    }
    *dtypes |= TC_SET(dtype);
    return true;
}

static bool read_dtypes(const struct tc_document *document, const struct tc_document_value *value,
                        tc_dtype_set *dtypes) {
    if (tc_document_kind(value) != TC_JSON_ARRAY)
        return read_dtype(document, value, dtypes);
    for (size_t i = 0; i < tc_document_count(value); i++)
        if (!read_dtype(document, tc_document_item(value, i), dtypes))
            return false;
    return *dtypes || tc_document_fail(document, value, "the list of dtypes is empty");
}

static bool read_shape(struct tc_schema *schema, const struct tc_document *document,
                       const struct tc_document_value *array, struct tc_schema_rule *rule) {
    if (!tc_document_expect(document, array, TC_JSON_ARRAY))
        return false;
    if (tc_document_count(array) > TC_MAX_RANK)
        return tc_document_fail(document, array, "a shape of more than %u dimensions", TC_MAX_RANK);
    rule->has_shape = true;
    rule->rank = (unsigned)tc_document_count(array);
    rule->shape = tc_arena_array(&schema->arena, rule->rank, sizeof *rule->shape, document->error);
    bool ok = rule->shape != NULL;
    for (unsigned i = 0; i < rule->rank && ok; i++) {
        const struct tc_document_value *dimension = tc_document_item(array, i);
        if (tc_document_kind(dimension) == TC_JSON_NULL)
            rule->shape[i] = TC_SCHEMA_ANY;
        else
            ok = tc_document_unsigned(document, dimension, &rule->shape[i]);
    }
    return ok;
}

static bool read_rule(struct tc_schema *schema, const struct tc_document *document,
                      const struct tc_document_value *object, struct tc_schema_rule *rule) {
    static const char *const keys[] = {"dtype", "shape", "metadata_keys", "finite", "optional"};
    enum { DTYPE, SHAPE, METADATA_KEYS, FINITE, OPTIONAL, KEYS };
    struct tc_document_member member = {0};
    size_t which;
    bool ok = tc_document_expect(document, object, TC_JSON_OBJECT);
    while (ok && tc_document_next(object, &member)) {
        const struct tc_document_value *value = member.value;
        ok = find_key(document, &member, keys, KEYS, &which) &&
             (which == DTYPE   ? read_dtypes(document, value, &rule->dtypes)
              : which == SHAPE ? read_shape(schema, document, value, rule)
              : which == METADATA_KEYS
                  ? read_strings(schema, document, value, &rule->keys, &rule->key_count)
              : which == FINITE ? tc_document_boolean(document, value, &rule->finite)
                                : tc_document_boolean(document, value, &rule->optional));
    }
    return ok;
}

static bool compile(const struct tc_document *document, const struct tc_document_value *value,
                    struct tc_schema_rule *rule) {
    struct tc_text name = rule->name;
    rule->is_regex = name.length >= 2 && name.bytes[0] == '/' && name.bytes[name.length - 1] == '/';
    if (!rule->is_regex)
        return true;
    struct tc_error bad = {0};
    struct tc_text pattern = {name.bytes + 1, name.length - 2};
    if (tc_regex_compile(&rule->regex, pattern, false, &bad))
        return true;
    rule->is_regex = false; /* there is nothing to release */
    if (bad.class != TC_USAGE) {
        *document->error = bad;
        return false;
    }
    return tc_document_fail(document, value, "%s", bad.message);
}

static bool add_rule(struct tc_schema *schema, const struct tc_document *document,
                     const struct tc_document_member *member) {
    struct tc_text name = member->key;
    struct tc_schema_rule *rule = &schema->rules[schema->count];
    if (!tc_document_keep(document, &name, &schema->arena))
        return false;
    *rule = (struct tc_schema_rule){.name = name};
    if (!tc_name_add(&schema->names, name, (uint32_t)schema->count, TC_LIMITS_DEFAULT.tensors,
                     document->error))
        return tc_error_in_tensor(document->error, name.bytes, name.length);
    if (!compile(document, member->value, rule))
        return false;
    schema->count++;
    return read_rule(schema, document, member->value, rule) ||
           tc_error_in_tensor(document->error, name.bytes, name.length);
}

static bool read_rules(struct tc_schema *schema, const struct tc_document *document,
                       const struct tc_document_value *object) {
    struct tc_document_member member = {0};
    size_t count = 0;
    if (!tc_document_expect(document, object, TC_JSON_OBJECT))
        return false;
    while (tc_document_next(object, &member))
        count++;
    schema->rules = tc_arena_array(&schema->arena, count, sizeof *schema->rules, document->error);
    bool ok = schema->rules != NULL;
    while (ok && tc_document_next(object, &member))
        ok = add_rule(schema, document, &member);
    return ok;
}

static bool read_schema(struct tc_schema *schema, const struct tc_document *document) {
    static const char *const keys[] = {"tensors", "allow_extra", "metadata_keys"};
    enum { TENSORS, ALLOW_EXTRA, METADATA_KEYS, KEYS };
    struct tc_document_member member = {0};
    size_t which;
    bool ok = tc_document_expect(document, document->root, TC_JSON_OBJECT);
    while (ok && tc_document_next(document->root, &member)) {
        const struct tc_document_value *value = member.value;
        ok = find_key(document, &member, keys, KEYS, &which) &&
             (which == TENSORS ? read_rules(schema, document, value)
              : which == ALLOW_EXTRA
                  ? tc_document_boolean(document, value, &schema->allow_extra)
                  : read_strings(schema, document, value, &schema->keys, &schema->key_count));
    }
    return ok;
}

/* The rules have copies of all they need, so the document is released at once. */
static bool parse(struct tc_schema *schema, struct tc_text text, struct tc_error *error) {
    struct tc_document document;
    bool ok = tc_document_parse(&document, text, 0, error);
    document.code = "schema";
    ok = ok && read_schema(schema, &document);
    tc_document_release(&document);
    return ok;
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
    char *text = ok ? tc_input_load(input, 0, length, error) : NULL;
    tc_input_close(input);
    ok = text && parse(schema, (struct tc_text){text, length}, error);
    free(text);
    return ok || tc_error_in_file(error, path);
}

void tc_schema_release(struct tc_schema *schema) {
    for (size_t i = 0; i < schema->count; i++)
        if (schema->rules[i].is_regex)
            tc_regex_release(&schema->rules[i].regex);
    tc_name_map_release(&schema->names);
    tc_arena_release(&schema->arena);
    *schema = (struct tc_schema){0};
}

/* A name that looks like an expression is written as an expression that matches only
 * this name. */
static void write_name(struct tc_json_writer *json, struct tc_text name) {
    if (name.length < 2 || name.bytes[0] != '/' || name.bytes[name.length - 1] != '/') {
        tc_json_add_key(json, name);
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
    tc_json_add_key(json, (struct tc_text){pattern.bytes, pattern.length});
    json->out->failed |= pattern.failed;
    tc_buffer_release(&pattern);
}

static void write_keys(struct tc_json_writer *json, const struct tc_metadata *metadata) {
    tc_json_open_array(json, "metadata_keys");
    for (size_t i = 0; i < metadata->count; i++)
        tc_json_add_text(json, NULL, metadata->pairs[i].key);
    tc_json_close(json);
}

/* One tensor per line. */
void tc_schema_write(struct tc_buffer *text, const struct tc_table *table) {
    struct tc_json_writer json = {
        .out = text, .escape = TC_ESCAPE_SERDE, .style = TC_JSON_INDENTED};
    tc_json_open_object(&json, NULL);
    tc_json_open_object(&json, "tensors");
    for (size_t i = 0; i < table->count; i++) {
        const struct tc_tensor *tensor = &table->tensors[i];
        write_name(&json, tensor->name);
        json.style = TC_JSON_SPACED;
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "dtype", tc_dtype_name(tensor->dtype));
        json.style = TC_JSON_COMPACT;
        tc_json_add_numbers(&json, "shape", tensor->shape, tensor->rank);
        json.style = TC_JSON_SPACED;
        if (tensor->metadata && tensor->metadata->count)
            write_keys(&json, tensor->metadata);
        tc_json_close(&json);
    }
    tc_json_close(&json);
    tc_json_add_boolean(&json, "allow_extra", false);
    json.style = TC_JSON_SPACED;
    write_keys(&json, &table->metadata);
    tc_json_end_line(&json);
}
