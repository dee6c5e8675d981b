/* Makes a plan: every step of it, in their order. */
#ifndef TCONV_CORE_PLAN_MAKE_PLAN_H
#define TCONV_CORE_PLAN_MAKE_PLAN_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"

/* `output` is the path given, which names the parts. On failure the plan may
 * hold more problems of the same kind. */
bool tc_plan_make(struct tc_plan *plan, struct tc_reader *const *readers, size_t reader_count,
                  const struct tc_backend *target, const char *output,
                  const struct tc_plan_options *options, struct tc_error *error);

#endif
