/*
 * Fills chunks with the bytes of items as they are written: reads, decodes and casts them, on
 * several threads (core/io/flow.h). A job is a piece of an item or, where an item must be read in
 * sequence, the whole of it; where several can't be read side by side, all items are one job.
 */
#ifndef TCONV_CORE_CONVERT_FILL_H
#define TCONV_CORE_CONVERT_FILL_H

#include <pthread.h>

#include "core/base/error.h"
#include "core/convert/read_back.h"
#include "core/io/flow.h"
#include "core/plan/plan.h"

struct tc_fill {
    const struct tc_plan *plan;
    const size_t *visits; /* the items' positions in the plan, in the order in which they come */
    const bool *direct;   /* by visit: it is copied from file to file, and only its sum is taken */
    size_t visit_count;
    struct tc_read_back *read_back; /* gets the items' sums; NULL: they are not needed */
    bool wants_crc;                 /* chunks have the CRC-32 of their bytes */
    int deflate_level;              /* chunks are deflated; 0: they are not */
    /* The rest is for tc_fill_start. */
    struct tc_flow_work work;
    size_t scratch_bytes;
    bool *views;  /* by visit: it is a small view, of which a thread reads all at once */
    bool chained; /* some items can't be read side by side, so that there is one job for all */
    size_t visit; /* of the next job, and where it starts in the item */
    uint64_t at;
    pthread_mutex_t reporting; /* guards the items' reports of casts */
};

/* Whether anything is to be read at all. */
bool tc_fill_needed(const struct tc_fill *fill);
/* Starts the flow. Chunks have their visit as their item. `any_order`: they may come in another
 * order than the visits. To be ended with tc_fill_end, unless it fails. */
bool tc_fill_start(struct tc_fill *fill, struct tc_flow *flow, size_t threads, bool any_order,
                   struct tc_error *error);
void tc_fill_end(struct tc_fill *fill, struct tc_flow *flow);

#endif
