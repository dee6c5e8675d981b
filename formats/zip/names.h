/*
 * The names of an archive's members, for probes: looking at them is cheap and opens nothing. Only
 * names count, never the bytes between them, which may be any tensor's.
 */
#ifndef TCONV_FORMATS_ZIP_NAMES_H
#define TCONV_FORMATS_ZIP_NAMES_H

#include "core/base/text.h"
#include "core/format/backend.h"

typedef void zip_name_visitor(void *context, struct tc_text name);

/* Calls `visit` for the name of the first member, which the first bytes of the file have, and for
 * those in the directory: of a long one, for those that the last ZIP_NAMES_BYTES of it have. A file
 * that is cut short has no directory, and one that is no archive no names. */
#define ZIP_NAMES_BYTES ((size_t)1 << 16)
void zip_visit_names(const struct tc_probe *probe, zip_name_visitor *visit, void *context);

#endif
