/*
 * A sparse tensor as a dense one: a source of C-order bytes in place of the
 * reader's own, for a group of tensors that tc_sparse_of knows (COO, CSR, CSC,
 * BSR, BSC; hybrid and batched ones too).
 *
 * The dense bytes are made window by window, so that they never lie in memory
 * as a whole; the group itself does, indices and values, from the first read
 * to tc_densify_unload: entries may come in any order.
 *
 * A value that is alone in its place keeps its bits. Several are summed as
 * torch's to_dense does: from zero, in the order they come, rounded to their
 * dtype at each step; integers wrap, truths are or-ed.
 */
#ifndef TCONV_CORE_FORMAT_DENSIFY_H
#define TCONV_CORE_FORMAT_DENSIFY_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

struct tc_segment;

struct tc_densify {
    struct tc_reader *reader;
    struct tc_tensor tensor; /* the dense one; its name is the parent's */
    /* Indices or, of a compressed layout, where each row (column) starts;
     * columns (rows), NULL for COO; values; shape. */
    const struct tc_tensor *first;
    const struct tc_tensor *plain;
    const struct tc_tensor *values;
    const struct tc_tensor *shape;
    bool by_column;       /* CSC, BSC */
    uint64_t batches;     /* each of `stored` entries */
    uint64_t stored;      /* entries, or blocks */
    uint64_t rows;        /* of one batch, in blocks */
    uint64_t columns;     /* likewise */
    uint64_t block_rows;  /* 1 but for BSR and BSC */
    unsigned sparse_rank; /* COO: dimensions that indices have */
    uint64_t unit;        /* bytes that lie together, in the values and in the dense tensor */
    uint64_t nbytes;      /* of the group */
    uint64_t memory;      /* what it takes once it is loaded */
    /* Loaded. */
    unsigned char *bytes; /* the values */
    struct tc_segment *segments;
    size_t count;
};

/* Reads the group's shape and checks those of its parts; NULL on failure. The
 * result is the arena's. */
struct tc_densify *tc_densify_make(struct tc_reader *reader, const struct tc_sparse *sparse,
                                   struct tc_arena *arena, struct tc_error *error);
/* Bytes of the dense tensor's stream, whole elements. The first call loads and
 * checks the group. From one thread at a time. */
bool tc_densify_read(struct tc_densify *densify, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error);
/* Whether all indices lie within the dense tensor; loads the group for it. */
bool tc_densify_check(struct tc_densify *densify, struct tc_error *error);
/* Frees what was loaded. */
void tc_densify_unload(struct tc_densify *densify);

#endif
