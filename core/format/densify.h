/*
 * Reads a sparse tensor as a dense one: gives the C-order bytes of the dense
 * tensor, for a group of tensors that tc_sparse_of recognises (COO, CSR, CSC, BSR,
 * BSC; hybrid and batched ones too).
 *
 * The dense bytes are computed for each range that is read, so that they are never
 * in memory as a whole. The group, its indices and values, is: from the first read
 * to tc_densify_unload, since entries may come in any order.
 *
 * A value that is alone in its place keeps its bits. Several are summed as
 * torch's to_dense does: from zero, in the order they come, rounded to their
 * dtype at each step; integers wrap around, truth values are or-ed.
 */
#ifndef TCONV_CORE_FORMAT_DENSIFY_H
#define TCONV_CORE_FORMAT_DENSIFY_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

struct tc_segment;

struct tc_densify {
    struct tc_reader *reader;
    struct tc_tensor tensor; /* the dense one; its name is the parent's */
    /* The parts. COO: `first` has the indices, `plain` is NULL. A compressed layout:
     * `first` has where each row (column) starts, `plain` the column (row) of each
     * entry. */
    const struct tc_tensor *first;
    const struct tc_tensor *plain;
    const struct tc_tensor *values;
    const struct tc_tensor *shape;
    bool by_column;       /* CSC, BSC */
    uint64_t batches;     /* each of `stored` entries */
    uint64_t stored;      /* entries, or blocks, of one batch */
    uint64_t rows;        /* of one batch, counted in blocks */
    uint64_t columns;     /* of one batch, counted in blocks */
    uint64_t block_rows;  /* rows of a block: 1 except in BSR and BSC */
    unsigned sparse_rank; /* COO: how many dimensions have indices */
    uint64_t unit;        /* bytes that are contiguous in the values and in the dense tensor */
    uint64_t nbytes;      /* of the group */
    uint64_t memory;      /* bytes that the group takes once it is loaded */
    /* Set from the first read to tc_densify_unload. */
    unsigned char *bytes; /* the values */
    struct tc_segment *segments;
    size_t count;
};

/* Reads the dense shape and checks the shapes of the parts; NULL on failure. The
 * result is in the arena. */
struct tc_densify *tc_densify_make(struct tc_reader *reader, const struct tc_sparse *sparse,
                                   struct tc_arena *arena, struct tc_error *error);
/* The same for parts that are known, in the layout's order, without the metadata of the dense
 * tensor; their values may be of a dtype that can't be made dense. */
struct tc_densify *tc_densify_measure(struct tc_reader *reader,
                                      const struct tc_sparse_layout *layout,
                                      const struct tc_tensor *const *parts, struct tc_text name,
                                      struct tc_arena *arena, struct tc_error *error);
/* Bytes of the dense tensor's stream, whole elements. The first call loads and
 * checks the group. One thread at a time may call it. */
bool tc_densify_read(struct tc_densify *densify, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error);
/* Whether all indices lie within the dense tensor; loads the group for it. */
bool tc_densify_check(struct tc_densify *densify, struct tc_error *error);
/* A part that does not fit the others: TC_INVALID, because of TC_REASON_SPARSE. */
bool tc_sparse_fail(const struct tc_tensor *part, struct tc_error *error, const char *what);
/* Frees what was loaded. */
void tc_densify_unload(struct tc_densify *densify);

#endif
