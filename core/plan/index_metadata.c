/* Reads the pairs of a JSON object, with values as they stand; leaves out
 * total_size, which is computed anew. */

#include "core/plan/index_metadata.h"

#include "core/base/arena.h"
#include "core/base/json.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/select.h"

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

/* Reads it from the plan's metadata; false on failure. A value that is no JSON object
 * stays an ordinary text under its key, with a warning. */
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
