/* Makes a plan: runs all its steps in their order. */
#ifndef TCONV_CORE_PLAN_MAKE_PLAN_H
#define TCONV_CORE_PLAN_MAKE_PLAN_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"

/* `output` is the path that the user gave, from which the files get their names.
 * After a failure plan->problems may have more reasons. The readers and options must
 * outlive the plan; call tc_plan_release also where this fails. */
bool tc_plan_make(struct tc_plan *plan, struct tc_reader *const *readers, size_t reader_count,
                  const struct tc_backend *target, const char *output,
                  const struct tc_plan_options *options, struct tc_error *error);

#endif
