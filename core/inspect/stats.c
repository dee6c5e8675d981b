#include "core/inspect/stats.h"

#include <stdlib.h>

#include "core/inspect/parallel_read.h"

static void take(void *context, void *state, const struct tc_tensor *tensor, const void *bytes,
                 size_t length) {
    (void)context;
    tc_moments_add(state, tensor->dtype, bytes, length);
}

static void merge(void *into, const void *from) {
    tc_moments_merge(into, from);
}

static void done(void *context, void *state, size_t position) {
    struct tc_stats *stats = context;
    tc_moments_finish(state, &stats[position]);
}

bool *tc_stats_sources(const struct tc_table *table, const bool *wanted, struct tc_error *error) {
    bool *sources = calloc(table->count + 1, sizeof *sources);
    if (!sources)
        tc_fail_memory(error);
    for (size_t i = 0; i < table->count && sources; i++)
        if (wanted[i])
            sources[tc_table_source(table, i)] = true;
    return sources;
}

bool tc_stats_make(struct tc_reader *reader, const bool *wanted, struct tc_stats *stats,
                   void (*progress)(void *context, uint64_t done, uint64_t total), void *context,
                   struct tc_error *error) {
    const struct tc_table *table = &reader->table;
    bool *sources = tc_stats_sources(table, wanted, error);
    if (!sources)
        return false;
    const struct tc_parallel_read read = {
        .reader = reader,
        .wanted = sources,
        .context = stats,
        .state_size = sizeof(struct tc_moments),
        .take = take,
        .merge = merge,
        .done = done,
        .progress = progress,
        .progress_context = context,
    };
    bool ok = tc_parallel_read_run(&read, error);
    free(sources);
    for (size_t i = 0; i < table->count && ok; i++)
        if (wanted[i])
            stats[i] = stats[tc_table_source(table, i)];
    return ok;
}
