/* The readers' changes and losses; their warnings were reported on opening. */

#include "core/plan/make_plan.h"

#include "core/base/arena.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/plan/index_metadata.h"
#include "core/plan/items.h"
#include "core/plan/kept_metadata.h"
#include "core/plan/layout.h"
#include "core/plan/nesting.h"
#include "core/plan/output_files.h"
#include "core/plan/ties.h"

static bool note_readers(struct tc_plan *plan, struct tc_error *error) {
    for (size_t r = 0; r < plan->reader_count; r++)
        if (!tc_notes_merge(&plan->notes, &plan->readers[r]->notes, TC_WARNING, error))
            return false;
    return true;
}

/* Adds a change where the target's own order differs from the source's. */
static bool note_order(struct tc_plan *plan, struct tc_error *error) {
    if (!plan->target->compare || plan->options->order != TC_ORDER_TARGET)
        return true;
    for (size_t i = 1; i < plan->count; i++)
        if (plan->items[i - 1].place > plan->items[i].place)
            return tc_plan_note(plan, TC_CHANGE, TC_KIND_ORDER, (struct tc_text){0}, error,
                                "written in %s' own order", plan->target->name);
    return true;
}

static bool check_level(const struct tc_plan *plan, struct tc_error *error) {
    int level = plan->options->write.compress;
    if (level == 0)
        return true;
    if (!(plan->target->caps & TC_CAN_COMPRESS))
        return tc_fail(error, TC_UNSUPPORTED, "compress", "%s cannot compress", plan->target->name);
    if (level != TC_COMPRESS_DEFAULT && (level < 1 || level > plan->target->max_level))
        return tc_fail(error, TC_USAGE, "compress", "%s compresses at levels 1 to %d (got %d)",
                       plan->target->name, plan->target->max_level, level);
    return true;
}

/* Names the second files, for outputs whose data does not fit one file. */
static bool name_companions(struct tc_plan *plan, struct tc_error *error) {
    for (size_t p = 0; plan->target->companion && p < plan->file_count; p++) {
        struct tc_buffer name = {0};
        if (!plan->target->companion(plan, &plan->files[p]))
            continue;
        tc_buffer_addf(&name, "%s.data", plan->files[p].name);
        plan->files[p].companion = tc_plan_keep(plan, &name, error);
        if (!plan->files[p].companion)
            return false;
    }
    return true;
}

bool tc_plan_make(struct tc_plan *plan, struct tc_reader *const *readers, size_t reader_count,
                  const struct tc_backend *target, const char *output,
                  const struct tc_plan_options *options, struct tc_error *error) {
    *plan = (struct tc_plan){
        .target = target, .options = options, .readers = readers, .reader_count = reader_count};
    tc_arena_init(&plan->arena, readers[0]->options->limits.memory);
    tc_notes_init(&plan->notes, &plan->arena);
    tc_notes_init(&plan->problems, &plan->arena);
    tc_nesting_expect(plan);
    if (!check_level(plan, error) || !tc_plan_collect_items(plan, error) ||
        !tc_plan_metadata(plan, output, error) || !note_readers(plan, error))
        return false;
    /* Items are divided into shards or files in source or name order; the target's
     * own order then applies within each file. */
    tc_output_files_choose(plan, output);
    bool split = plan->sharded || options->folder;
    tc_plan_sort_items(plan, plan->items, plan->count,
                       split && options->order == TC_ORDER_TARGET ? TC_ORDER_SOURCE
                                                                  : options->order);
    if (!tc_output_files_make(plan, output, error) ||
        (plan->sidecar_names && !tc_plan_sidecar(plan, error)))
        return false;
    for (size_t p = 0; split && p < plan->file_count; p++)
        tc_plan_sort_items(plan, plan->items + plan->files[p].first, plan->files[p].count,
                           options->order);
    if (!tc_nesting_settle(plan, error) || !name_companions(plan, error) ||
        !tc_ties_split(plan, error) || !note_order(plan, error) ||
        !tc_index_metadata_take(plan, error))
        return false;
    for (size_t p = 0; p < plan->file_count; p++)
        if (!tc_plan_file_metadata(plan, &plan->files[p], error) ||
            (plan->in_shards && target->sharding->shard_metadata &&
             !target->sharding->shard_metadata(plan, &plan->files[p], p, error)))
            return false;
    return tc_layout_check(plan, error) && (!target->check || target->check(plan, error));
}
