/* Sparse tensors in a plan: what becomes of a group when its parts are chosen,
 * renamed or made dense. */
#ifndef TCONV_CORE_PLAN_SPARSE_ITEMS_H
#define TCONV_CORE_PLAN_SPARSE_ITEMS_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

/* A part of a sparse tensor that has a new name: its parent follows where all
 * parts can, PARENT.ROLE; else the role is lost. */
bool tc_sparse_rename(struct tc_plan *plan, struct tc_item *item, struct tc_error *error);
/* A part of a sparse tensor is of little use without the others: a loss. */
bool tc_sparse_note_broken(struct tc_plan *plan, struct tc_error *error);

/* Whether a tensor that is taken is part of a sparse one that is taken whole
 * and is to become dense; *first: that of its parts which comes first. */
bool tc_sparse_find_group(const struct tc_plan *plan, const struct tc_table *table,
                          const struct tc_tensor *tensor, struct tc_sparse *sparse, bool *whole,
                          const struct tc_tensor **first, struct tc_error *error);
/* What making a group dense changes, and whether it may take the memory. */
bool tc_sparse_note_dense(struct tc_plan *plan, const struct tc_item *item, struct tc_error *error);

#endif
