

/* Whether an input before this one has the key, so that its value is the one that is kept. */
#include "core/plan/metadata_types.h"

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/restore_metadata.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"

static bool is_taken(const struct tc_plan *plan, size_t reader, struct tc_text key) {
    for (size_t r = 0; r < reader; r++)
        if (tc_metadata_find(&plan->readers[r]->table.metadata, key))
            return true;
    return false;
}

/* The user's own value of a key, or NULL. */
static const struct tc_text *given(const struct tc_plan *plan, struct tc_text key) {
    const struct tc_metadata *extra = plan->options->extra_metadata;
    for (size_t i = extra ? extra->count : 0; i-- > 0;)
        if (tc_text_equal(extra->pairs[i].key, key))
            return &extra->pairs[i].value;
    return NULL;
}

/* Adds types of keys that are still there with the value that they were given for. */
static bool add_types(struct tc_plan *plan, const struct tc_metadata *types, size_t reader,
                      struct tc_error *error) {
    for (size_t i = 0; i < types->count; i++) {
        const struct tc_pair *pair = &types->pairs[i];
        if (tc_metadata_find(&plan->metadata, pair->key) && !given(plan, pair->key) &&
            !is_taken(plan, reader, pair->key) &&
            !tc_metadata_add(&plan->metadata_types, &plan->arena, pair->key, pair->value, error))
            return false;
    }
    return true;
}

/* Types that the user gives with --metadata are for any key. */
static bool set_given(struct tc_plan *plan, struct tc_error *error) {
    const struct tc_text *text = given(plan, TC_TEXT(TC_METADATA_TYPES_KEY));
    struct tc_metadata types = {0};
    struct tc_json json;
    if (!text)
        return true;
    tc_json_init(&json, text->bytes, text->length, 0, &plan->arena, error);
    if (!tc_metadata_read(&json, &types) || !tc_json_end(&json)) {
        error->class = TC_USAGE;
        return tc_error_hint(error, "--metadata " TC_METADATA_TYPES_KEY
                                    "='{\"KEY\":\"U32\"}' gives KEY a type");
    }
    for (size_t i = 0; i < types.count; i++)
        if (tc_metadata_find(&plan->metadata, types.pairs[i].key) &&
            !tc_metadata_set(&plan->metadata_types, &plan->arena, types.pairs[i].key,
                             types.pairs[i].value, error))
            return false;
    tc_metadata_remove(&plan->metadata, TC_TEXT(TC_METADATA_TYPES_KEY));
    return true;
}

bool tc_metadata_types_plan(struct tc_plan *plan, struct tc_error *error) {
    unsigned caps = plan->target->caps;
    bool held = caps & TC_CAN_FILE_METADATA || plan->options->keep_metadata == TC_KEEP_SIDECAR;
    struct tc_text key = TC_TEXT(TC_METADATA_TYPES_KEY);
    for (size_t r = 0; r < plan->reader_count; r++)
        if (!add_types(plan, &plan->readers[r]->metadata_types, r, error))
            return false;
    if (!tc_metadata_sort(&plan->metadata_types, error) || !set_given(plan, error))
        return false;
    if (caps & TC_CAN_TYPE_METADATA || !held || plan->metadata_types.count == 0)
        return true;
    struct tc_buffer text = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_SERDE};
    tc_metadata_write(&json, NULL, &plan->metadata_types);
    char *copy = tc_buffer_ok(&text, error)
                     ? tc_arena_copy(&plan->arena, text.bytes, text.length, error)
                     : NULL;
    size_t length = text.length;
    tc_buffer_release(&text);
    return copy && tc_metadata_set(&plan->metadata, &plan->arena, key,
                                   (struct tc_text){copy, length}, error);
}
