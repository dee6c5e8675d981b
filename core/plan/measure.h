/*
 * How large an output file will be, before it is written: the target's own
 * writer runs on a file that only counts, with room instead of data.
 */
#ifndef TCONV_CORE_PLAN_MEASURE_H
#define TCONV_CORE_PLAN_MEASURE_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* What measuring the files of one plan takes, again and again. */
struct tc_measure {
    const struct tc_plan *plan; /* with its items in the order in which they are cut */
    struct tc_item *items;
    size_t *by_place;
    uint64_t measured; /* items so far */
};

bool tc_measure_init(struct tc_measure *measure, const struct tc_plan *plan,
                     struct tc_error *error);
void tc_measure_release(struct tc_measure *measure);

/*
 * The bytes of a shard of items [first, first + count): the `index`th of
 * `shards`. Compressed data counts as if it were not. UINT64_MAX where its
 * header is larger than the format allows.
 */
bool tc_measure_shard(struct tc_measure *measure, size_t first, size_t count, size_t index,
                      size_t shards, uint64_t *bytes, struct tc_error *error);

#endif
