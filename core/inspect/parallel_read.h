/*
 * Reads every byte of the wanted tensors once, on all cores. Pieces of a tensor
 * may go to several threads and be merged in any order, so what is gathered must
 * not depend on it: counts, exact sums, extremes. A tensor that must be read in
 * sequence is read by one thread and worked on by another.
 */
#ifndef TCONV_CORE_INSPECT_PARALLEL_READ_H
#define TCONV_CORE_INSPECT_PARALLEL_READ_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/tensor/table.h"

struct tc_parallel_read {
    struct tc_reader *reader;
    const bool *wanted; /* by table position; of those that share data, the first */
    void *context;
    /* What is gathered of one tensor, zeroed to begin with. */
    size_t state_size;
    /* Bytes of a tensor: a multiple of 48, but for its end. From any thread. */
    void (*take)(void *context, void *state, const struct tc_tensor *tensor, const void *bytes,
                 size_t length);
    void (*merge)(void *into, const void *from);
    /* Once a tensor, also of an empty one, when all of it was taken. From any
     * thread, of different tensors at the same time. */
    void (*done)(void *context, void *state, size_t position);
    /* As it goes, in bytes; may be NULL. */
    void (*progress)(void *context, uint64_t done, uint64_t total);
    void *progress_context;
    bool again;     /* checksums were checked when the same was read before */
    size_t threads; /* 0: as many as are worth while */
};

/* Also checks the checksums that cover the wanted tensors, and that no file
 * changed meanwhile. */
bool tc_parallel_read_run(const struct tc_parallel_read *read, struct tc_error *error);

#endif
