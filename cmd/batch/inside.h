/* Where files of a tree lie once their links are resolved. */
#ifndef TCONV_CMD_BATCH_INSIDE_H
#define TCONV_CMD_BATCH_INSIDE_H

#include <stdbool.h>

#include "core/base/error.h"

/* What a file that does not is refused with. */
#define BATCH_LINK_OUTSIDE "link-outside"
#define BATCH_LEADS_OUT "a link that leads out of the tree"

/* Whether a file lies in a tree once its links are resolved, or in the blobs of the cache that its
 * folder is a snapshot of: CACHE/snapshots/REVISION and CACHE/blobs. False where that can't be
 * found out. */
bool batch_stays_inside(const char *path, const char *root, bool *inside, struct tc_error *error);

#endif
