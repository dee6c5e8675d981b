/*
 * The types of an output's metadata (core/format/restore_metadata.h).
 */
#ifndef TCONV_CORE_PLAN_METADATA_TYPES_H
#define TCONV_CORE_PLAN_METADATA_TYPES_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* Joins the types of the inputs' metadata. That of a key which the user sets is dropped, unless
 * the user sets the types too, as the value of TC_METADATA_TYPES_KEY. They go to
 * plan->metadata_types where the target has types, else to that key. plan->metadata must be
 * complete. */
bool tc_metadata_types_plan(struct tc_plan *plan, struct tc_error *error);

#endif
