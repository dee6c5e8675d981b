/* What a written index says of the model beside its size, in a plan. */
#ifndef TCONV_CORE_PLAN_INDEX_METADATA_H
#define TCONV_CORE_PLAN_INDEX_METADATA_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* Of a plan that does not take all tensors: without the number of parameters,
 * which is not theirs. */
bool tc_index_metadata_update(struct tc_plan *plan, struct tc_error *error);
/* Moves it from the plan's metadata to its index's, where there is one. */
bool tc_index_metadata_take(struct tc_plan *plan, struct tc_error *error);

#endif
