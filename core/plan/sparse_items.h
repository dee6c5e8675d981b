/* Sparse tensors in a plan: what happens when their parts are selected, renamed or
 * made dense. */
#ifndef TCONV_CORE_PLAN_SPARSE_ITEMS_H
#define TCONV_CORE_PLAN_SPARSE_ITEMS_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

/* For a part of a sparse tensor that has a new name: changes its parent's name
 * accordingly where the new name still ends in ".ROLE"; else the part is no longer
 * part of a sparse tensor, which is a loss. */
bool tc_sparse_rename(struct tc_plan *plan, struct tc_item *item, struct tc_error *error);
/* Adds a loss for each part of a sparse tensor whose other parts are not all taken. */
bool tc_sparse_note_broken(struct tc_plan *plan, struct tc_error *error);

/* Sets *whole where the tensor is part of a sparse one of which all parts are taken
 * and which is to become dense; *first is the part that comes first in the table. */
bool tc_sparse_find_group(const struct tc_plan *plan, const struct tc_table *table,
                          const struct tc_tensor *tensor, struct tc_sparse *sparse, bool *whole,
                          const struct tc_tensor **first, struct tc_error *error);
/* Adds what making a sparse tensor dense changes; fails where that takes more memory
 * or makes more bytes than allowed. */
bool tc_sparse_note_dense(struct tc_plan *plan, const struct tc_item *item, struct tc_error *error);

/* Whether the items are the parts of one sparse tensor in COO layout, unchanged, and nothing
 * else. */
bool tc_sparse_is_all(const struct tc_plan *plan);

#endif
