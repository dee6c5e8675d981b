/* Recognises files of formats that tconv does not read, by their first bytes, so
 * that the error message can say what they are. */
#ifndef TCONV_FORMATS_FOREIGN_H
#define TCONV_FORMATS_FOREIGN_H

#include "core/base/error.h"
#include "core/format/backend.h"

/* Whether the file is certainly not one of tconv's formats: another known
 * format, an empty file, or text. */
bool foreign_recognised(const struct tc_probe *probe);
/* Fills the error with what the file is or looks like; returns false. */
bool foreign_explain(const struct tc_probe *probe, struct tc_error *error);

#endif
