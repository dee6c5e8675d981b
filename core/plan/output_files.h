/*
 * Which files a plan writes: one, several shards and their index, or one a
 * tensor in a folder; and how they are called.
 */
#ifndef TCONV_CORE_PLAN_OUTPUT_FILES_H
#define TCONV_CORE_PLAN_OUTPUT_FILES_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* The size to cut at, 0 for no shards: an output named as an index has some. */
uint64_t tc_output_files_shard_size(const struct tc_plan *plan, const char *output);
/* Fills the plan's parts, from items in the order in which they are cut. */
bool tc_output_files_make(struct tc_plan *plan, const char *output, struct tc_error *error);

#endif
