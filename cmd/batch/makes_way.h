/*
 * Model folders that a batch may put a new one in the place of.
 */
#ifndef TCONV_CMD_BATCH_MAKES_WAY_H
#define TCONV_CMD_BATCH_MAKES_WAY_H

#include <stdbool.h>

#include "core/base/error.h"
#include "core/format/backend.h"

/* Whether an output's folder may make way for a new one without being asked for: nothing is there,
 * or nothing in it, or a model of the format, as an earlier run leaves it, and not something else
 * of the user's. False where that can't be found out. */
bool batch_makes_way(const char *output, const struct tc_backend *target, bool *makes_way,
                     struct tc_error *error);

#endif
