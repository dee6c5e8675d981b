/* Prints what a plan makes of each tensor, what changes and what is lost, on
 * standard output: for --dry-run and for --json. */
#ifndef TCONV_CMD_LEDGER_H
#define TCONV_CMD_LEDGER_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* `done`: the plan was carried out, so that the errors of lossy casts are known. */
bool ledger_print(const struct tc_plan *plan, const char *output, bool json, bool done,
                  struct tc_error *error);

#endif
