/*
 * Tensors that share their data, in a plan: written once and shared, once with the others' names
 * as aliases in the metadata (core/format/aliases.h), or each with data of its own.
 */
#ifndef TCONV_CORE_PLAN_TIES_H
#define TCONV_CORE_PLAN_TIES_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* Decides about each item that shares its data with one before it; items are
 * in source order, and the plan's metadata is collected. */
bool tc_ties_plan(struct tc_plan *plan, struct tc_error *error);
/* Once the parts are known and the items are in their last order: no sharing
 * across files. */
bool tc_ties_split(struct tc_plan *plan, struct tc_error *error);
/* The item whose data a tied one shares, in the same file; NULL where it has
 * data of its own. */
const struct tc_item *tc_ties_kept(const struct tc_plan *plan, const struct tc_item *item);

#endif
