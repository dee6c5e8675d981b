/*
 * Finds how large an output file will be, before it is written: runs the target's
 * own writer on an output that only counts bytes, and skips the data.
 */
#ifndef TCONV_CORE_PLAN_MEASURE_H
#define TCONV_CORE_PLAN_MEASURE_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* The memory for measuring the files of one plan, used again for each. */
struct tc_measure {
    const struct tc_plan *plan; /* with its items in the order in which they are divided */
    struct tc_item *items;
    size_t *by_place;
    uint64_t measured; /* how many items were measured so far */
};

bool tc_measure_init(struct tc_measure *measure, const struct tc_plan *plan,
                     struct tc_error *error);
void tc_measure_release(struct tc_measure *measure);

/*
 * The bytes of a shard of items [first, first + count): number `index` of `shards`.
 * Data that will be compressed counts with its full size. UINT64_MAX where its
 * header is larger than the format allows.
 */
bool tc_measure_shard(struct tc_measure *measure, size_t first, size_t count, size_t index,
                      size_t shards, uint64_t *bytes, struct tc_error *error);

#endif
