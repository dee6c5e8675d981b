/*
 * Sparse tensors as groups of plain ones: which parts each layout has, and which tensors of a
 * table belong together.
 */
#ifndef TCONV_CORE_TENSOR_SPARSE_GROUP_H
#define TCONV_CORE_TENSOR_SPARSE_GROUP_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"

/* The parts of a sparse tensor: each is called PARENT.ROLE; the shape is last. */
struct tc_sparse_layout {
    const char *name;
    const char *roles[4];
    unsigned parts;
};
/* coo, csr, csc, bsr, bsc; NULL for any other. */
const struct tc_sparse_layout *tc_sparse_layout(struct tc_text name);

/* A tensor that is part of a sparse one, told by its role metadata. */
struct tc_sparse {
    struct tc_text parent;
    struct tc_text role;
    struct tc_text layout;
};
/* Its parts in the layout's order; NULL behind the last. */
const struct tc_tensor *tc_sparse_part(const struct tc_table *table, const struct tc_sparse *sparse,
                                       unsigned index);
/* The metadata that makes a tensor a part of one; NULL on failure. The texts
 * must outlive it. */
struct tc_metadata *tc_sparse_metadata(struct tc_arena *arena, const char *layout,
                                       struct tc_text parent, const char *role,
                                       struct tc_error *error);
/* False where the tensor is no part of a complete group in this table. */
bool tc_sparse_of(const struct tc_table *table, const struct tc_tensor *tensor,
                  struct tc_sparse *sparse);

#endif
