/*
 * Stale shards: shards of an earlier run next to a new index that does not name them.
 * When a model that had four shards is written with three, the old four are left.
 */
#ifndef TCONV_CORE_CONVERT_STALE_SHARDS_H
#define TCONV_CORE_CONVERT_STALE_SHARDS_H

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"

/* Adds a warning about them to the plan's notes, and with `prune` lets them be removed
 * when the output is published. Only regular files count that are named like the
 * plan's own shards, with other numbers, and are not among the inputs. */
bool tc_stale_shards(struct tc_plan *plan, struct tc_publish *publish,
                     struct tc_input *const *inputs, size_t input_count, bool prune,
                     struct tc_error *error);

#endif
