/*
 * The nesting of a checkpoint in a plan: its tree (core/format/tree.h) is kept where the target has
 * a place for it, in its metadata or by being nested itself. Otherwise its tensors are written
 * under names that are joined with dots, and the ledger says so.
 */
#ifndef TCONV_CORE_PLAN_NESTING_H
#define TCONV_CORE_PLAN_NESTING_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"

/* Finds out whether there is a tree that may be kept, which the items' dtypes depend on. */
void tc_nesting_expect(struct tc_plan *plan);
/* Finds the tree, checks it, and adds it to the plan's metadata. The items must be known. */
bool tc_nesting_plan(struct tc_plan *plan, struct tc_error *error);
/* Decides whether the output itself is nested; the output files must be known. */
bool tc_nesting_settle(struct tc_plan *plan, struct tc_error *error);
/* Removes what a nested output has as values of its own: the tree, and metadata that reading these
 * values gives again. */
bool tc_nesting_leave_out(const struct tc_plan *plan, struct tc_metadata *metadata,
                          struct tc_error *error);
/* Whether the tree holds a value that the user wants out of the metadata: as one of the object's
 * own it would stay. */
bool tc_nesting_is_dropped(const struct tc_plan *plan, bool *dropped, struct tc_error *error);

#endif
