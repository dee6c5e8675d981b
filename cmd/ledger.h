/* What a plan would do, on standard output: --dry-run. */
#ifndef TCONV_CMD_LEDGER_H
#define TCONV_CMD_LEDGER_H

#include "core/plan.h"

bool ledger_print(const struct tc_plan *plan, const char *output, bool json,
                  struct tc_error *error);

#endif
