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

/* The metadata keys that make a tensor a part of a sparse one, and their common prefix. */
#define TC_SPARSE_LAYOUT TC_TEXT("sparse_layout")
#define TC_SPARSE_PARENT TC_TEXT("sparse_parent")
#define TC_SPARSE_ROLE TC_TEXT("sparse_role")
#define TC_SPARSE_KEYS TC_TEXT("sparse_")

enum tc_sparse_kind {
    TC_SPARSE_COO,
    TC_SPARSE_CSR,
    TC_SPARSE_CSC,
    TC_SPARSE_BSR,
    TC_SPARSE_BSC,
    TC_SPARSE_KINDS
};

/* A way to store a sparse tensor, and the parts that it takes: first the indices, then the values,
 * last the shape. Each part is called PARENT.ROLE. */
struct tc_sparse_layout {
    const char *name;
    const char *roles[4];
    unsigned parts;
    bool compressed; /* two parts of indices: where each row (column) starts, and the column (row)
                      * of each value */
    bool by_column;  /* columns are compressed; else rows */
    bool blocks;     /* each value is a block of the matrix */
};
extern const struct tc_sparse_layout tc_sparse_layouts[TC_SPARSE_KINDS];
/* By its name: coo, csr, csc, bsr, bsc; NULL for any other. */
const struct tc_sparse_layout *tc_sparse_layout(struct tc_text name);

/* What the metadata of a tensor says of the sparse tensor that it is part of. */
struct tc_sparse {
    struct tc_text parent;
    struct tc_text role;
    struct tc_text layout;
};
/* The part of this index, in the layout's order; NULL behind the last. */
const struct tc_tensor *tc_sparse_part(const struct tc_table *table, const struct tc_sparse *sparse,
                                       unsigned index);
/* The parent's name in the metadata of a part; NULL where the tensor is part of none. */
const struct tc_text *tc_sparse_parent(const struct tc_metadata *metadata);
/* The first part that a table has of a sparse tensor of this name, whatever its layout; NULL where
 * there is none. */
const struct tc_tensor *tc_sparse_first(const struct tc_table *table, struct tc_text parent);
/* PARENT.ROLE of a part, in the arena; its bytes are NULL on failure. */
struct tc_text tc_sparse_name(struct tc_arena *arena, const struct tc_sparse_layout *layout,
                              struct tc_text parent, unsigned part, struct tc_error *error);
/* The metadata that makes a tensor this part of a sparse one; NULL on failure. The
 * parent's name must outlive it. */
struct tc_metadata *tc_sparse_metadata(struct tc_arena *arena,
                                       const struct tc_sparse_layout *layout, struct tc_text parent,
                                       unsigned part, struct tc_error *error);
/* Fills *sparse; false where the tensor is not part of a complete sparse tensor in
 * this table. */
bool tc_sparse_of(const struct tc_table *table, const struct tc_tensor *tensor,
                  struct tc_sparse *sparse);

#endif
