/*
 * Reads every byte of the wanted tensors once, on all cores. Pieces of a tensor may
 * go to several threads and be merged in any order, so the result must not depend
 * on it: counts, exact sums, extremes. Where a tensor must be read in sequence, one
 * thread reads and another does the work.
 */
#ifndef TCONV_CORE_INSPECT_PARALLEL_READ_H
#define TCONV_CORE_INSPECT_PARALLEL_READ_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/tensor/table.h"

struct tc_parallel_read {
    struct tc_reader *reader;
    const bool *wanted; /* by table position; of tensors that share data only the first */
    void *context;
    /* Bytes of the state of one tensor, which starts zeroed. */
    size_t state_size;
    /* Adds bytes of a tensor to its state: a multiple of 48, except at its end; of a
     * block dtype, whole blocks. Called in any thread. */
    void (*take)(void *context, void *state, const struct tc_tensor *tensor, const void *bytes,
                 size_t length);
    void (*merge)(void *into, const void *from);
    /* Called once for each tensor, also an empty one, when all of it was taken; in any
     * thread, for different tensors at the same time. */
    void (*done)(void *context, void *state, size_t position);
    /* Reports bytes done and in all, in the caller's thread; may be NULL. */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *progress_context;
    bool again;     /* the same was read before, so checksums are not checked again */
    size_t threads; /* 0: as many as are useful */
};

/* Also checks the checksums that cover the wanted tensors, and that no file
 * changed meanwhile. */
bool tc_parallel_read_run(const struct tc_parallel_read *read, struct tc_error *error);

#endif
