/*
 * Shards of an earlier run that lie beside a new index and that it does not name:
 * when a model comes to have three of them, four may be there from before.
 */
#ifndef TCONV_CORE_CONVERT_STALE_SHARDS_H
#define TCONV_CORE_CONVERT_STALE_SHARDS_H

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"

/* Tells them in the plan's notes, and with `prune` has them go when the output is
 * published. Only regular files that are called as the plan's own shards are, with
 * other numbers, and that are none of the inputs. */
bool tc_stale_shards(struct tc_plan *plan, struct tc_publish *publish,
                     struct tc_input *const *inputs, size_t input_count, bool prune,
                     struct tc_error *error);

#endif
