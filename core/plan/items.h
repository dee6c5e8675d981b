/* Which tensors a plan writes: selects them, renames them, takes rows, makes sparse ones dense and
 * decides on dtypes. */
#ifndef TCONV_CORE_PLAN_ITEMS_H
#define TCONV_CORE_PLAN_ITEMS_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* Fills the items from the readers' tables. */
bool tc_plan_collect_items(struct tc_plan *plan, struct tc_error *error);

#endif
