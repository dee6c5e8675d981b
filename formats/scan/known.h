/* Opening a region with the readers of known formats. */
#ifndef TCONV_FORMATS_SCAN_KNOWN_H
#define TCONV_FORMATS_SCAN_KNOWN_H

#include "core/base/error.h"
#include "formats/scan/walk.h"

struct scan_known {
    bool opened;          /* some format opened it */
    bool sure;            /* a format whose probe was sure could not open it */
    struct tc_error *why; /* why the first format could not open it */
};

/* Tries every format whose probe recognises the region, the surest first, until
 * one opens it. The files that it names (shards, external data) become regions.
 * False only where the system failed or memory is out. */
bool scan_formats(const struct scan_view *view, struct scan_known *known, struct tc_error *error);

#endif
