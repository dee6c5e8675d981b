#include "core/plan/measure.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/format/backend.h"
#include "core/io/publish.h"
#include "core/plan/kept_metadata.h"

bool tc_measure_init(struct tc_measure *measure, const struct tc_plan *plan,
                     struct tc_error *error) {
    size_t places = 1;
    for (size_t r = 0; r < plan->reader_count; r++)
        places += plan->readers[r]->table.count;
    *measure = (struct tc_measure){.plan = plan};
    measure->items = calloc(plan->count + 1, sizeof *measure->items);
    measure->by_place = calloc(places, sizeof *measure->by_place);
    return (measure->items && measure->by_place) || tc_fail_memory(error);
}

void tc_measure_release(struct tc_measure *measure) {
    free(measure->items);
    free(measure->by_place);
    *measure = (struct tc_measure){0};
}

/* Copies the shard's items as they will be written: in the target's order, and with
 * data of their own where the data that they share is in another shard. */
static bool take_items(struct tc_measure *measure, struct tc_plan *trial, size_t first,
                       struct tc_error *error) {
    const struct tc_plan *plan = measure->plan;
    memcpy(measure->items, plan->items + first, trial->count * sizeof *measure->items);
    for (size_t i = 0; i < trial->count; i++) {
        size_t tied = measure->items[i].tied;
        size_t kept = tied ? plan->by_place[tied - 1] : first;
        if (kept < first || kept >= first + trial->count)
            measure->items[i].tied = 0;
    }
    tc_plan_sort_items(trial, measure->items, trial->count, plan->options->order);
    return tc_plan_list_places(trial, error);
}

static bool run_writer(const struct tc_plan *trial, const struct tc_output_file *file,
                       uint64_t *bytes, struct tc_error *error) {
    const struct tc_backend *target = trial->target;
    struct tc_outfile out = {.fd = -1, .counting = true};
    struct tc_writer writer = {.backend = target, .plan = trial, .file = file, .out = &out};
    tc_arena_init(&writer.arena, 0);
    writer.state = calloc(1, target->writer_size ? target->writer_size : 1);
    bool ok = writer.state ? target->begin(&writer, error) : tc_fail_memory(error);
    for (size_t i = 0; i < file->count && ok; i++)
        ok = trial->items[i].tied || target->sharding->leave_room(&writer, i, error);
    if (ok)
        ok = !target->finish || target->finish(&writer, error);
    else if (writer.state && target->abort)
        target->abort(&writer);
    ok = ok && tc_outfile_count(&out, bytes, error);
    free(out.buffer);
    free(writer.state);
    tc_arena_release(&writer.arena);
    return ok;
}

bool tc_measure_shard(struct tc_measure *measure, size_t first, size_t count, size_t index,
                      size_t shards, uint64_t *bytes, struct tc_error *error) {
    const struct tc_sharding *sharding = measure->plan->target->sharding;
    struct tc_plan_options options = *measure->plan->options;
    struct tc_plan trial = *measure->plan;
    struct tc_output_file file = {.name = "", .count = count};
    /* A separate error, since one reason is no failure; it is too large for a small
     * stack. */
    struct tc_error *inner = calloc(1, sizeof *inner);
    if (!inner)
        return tc_fail_memory(error);
    options.write.compress = 0;
    trial.options = &options;
    trial.items = measure->items;
    trial.by_place = measure->by_place;
    trial.count = count;
    trial.file_count = shards;
    measure->measured += count;
    tc_arena_init(&trial.arena, measure->plan->readers[0]->options->limits.memory);
    bool ok =
        take_items(measure, &trial, first, inner) && tc_plan_file_metadata(&trial, &file, inner) &&
        (!sharding->shard_metadata || sharding->shard_metadata(&trial, &file, index, inner)) &&
        run_writer(&trial, &file, bytes, inner);
    tc_arena_release(&trial.arena);
    if (!ok && inner->reason == TC_REASON_HEADER_SIZE) {
        *bytes = UINT64_MAX;
        ok = true;
    }
    if (!ok)
        *error = *inner;
    free(inner);
    return ok;
}
