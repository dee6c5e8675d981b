/*
 * Which files a plan writes, and their names: one file, several shards with an
 * index, or a folder with one file per tensor.
 */
#ifndef TCONV_CORE_PLAN_OUTPUT_FILES_H
#define TCONV_CORE_PLAN_OUTPUT_FILES_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* Whether there are shards, and their largest size (plan->sharded, plan->shard_size). An
 * output that is named as an index has shards even where the user gave no size. */
void tc_output_files_choose(struct tc_plan *plan, const char *output);
/* Fills plan->files, from items in the order in which they are divided. */
bool tc_output_files_make(struct tc_plan *plan, const char *output, struct tc_error *error);

#endif
