/* The metadata of the index that a plan writes (TC_INDEX_METADATA_KEY). */
#ifndef TCONV_CORE_PLAN_INDEX_METADATA_H
#define TCONV_CORE_PLAN_INDEX_METADATA_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* Removes total_parameters from it where the plan does not take all tensors, since
 * the number would be wrong. */
bool tc_index_metadata_update(struct tc_plan *plan, struct tc_error *error);
/* Moves it from the plan's metadata to plan->index_metadata, where an index with a
 * place for it is written. */
bool tc_index_metadata_take(struct tc_plan *plan, struct tc_error *error);

#endif
