/* Files that are none of ours, told by their first bytes. */
#ifndef TCONV_FORMATS_FOREIGN_H
#define TCONV_FORMATS_FOREIGN_H

#include "core/base/error.h"
#include "core/format/backend.h"

/* Whether it is plainly something else: another format, nothing, or text. */
bool foreign_recognised(const struct tc_probe *probe);
/* Fails with what the file is or looks like. */
bool foreign_explain(const struct tc_probe *probe, struct tc_error *error);

#endif
