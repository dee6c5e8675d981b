/* What a plan does, on standard output: --dry-run, and --json. */
#ifndef TCONV_CMD_LEDGER_H
#define TCONV_CMD_LEDGER_H

#include "core/base/error.h"
#include "core/plan/plan.h"

/* `done`: it was carried out, so that errors of lossy casts are known. */
bool ledger_print(const struct tc_plan *plan, const char *output, bool json, bool done,
                  struct tc_error *error);

#endif
