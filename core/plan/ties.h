/*
 * Tensors that share their data ("ties") in a plan. Their data is written once and shared, or once
 * with the other names as aliases in the metadata (core/format/aliases.h), or each gets a copy.
 */
#ifndef TCONV_CORE_PLAN_TIES_H
#define TCONV_CORE_PLAN_TIES_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* Decides about each item that shares its data with one before it. The items must be
 * in source order, and the plan's metadata must be complete. */
bool tc_ties_plan(struct tc_plan *plan, struct tc_error *error);
/* Ends sharing between items of different files. The plan's files must be known, and
 * the items in their final order. */
bool tc_ties_split(struct tc_plan *plan, struct tc_error *error);
/* The item of the same file whose data an item shares; NULL where it has data of its
 * own. */
const struct tc_item *tc_ties_kept(const struct tc_plan *plan, const struct tc_item *item);

#endif
