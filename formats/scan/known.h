/* What a region is to the readers of formats. */
#ifndef TCONV_FORMATS_SCAN_KNOWN_H
#define TCONV_FORMATS_SCAN_KNOWN_H

#include "core/base/error.h"
#include "formats/scan/walk.h"

struct scan_known {
    bool opened;
    bool sure;            /* one that is sure could not read it */
    struct tc_error *why; /* could the first not */
};

/* Tries every format that sees its mark, the surest first, until one opens it;
 * regions are added for the files that such a one names. False only where the
 * system failed or memory is out. */
bool scan_formats(const struct scan_view *view, struct scan_known *known, struct tc_error *error);

#endif
