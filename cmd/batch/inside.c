#include "cmd/batch/inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/path.h"
#include "formats/cache_blobs.h"

/* Whether one folder lies in another, or is it; both without links. */
static bool is_below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 &&
           (path[length] == '/' || path[length] == '\0' || folder[length - 1] == '/');
}

/* The folder that a path lies in is asked for the cache's blobs, and not the tree: the tree may
 * hold several snapshots. */
bool batch_stays_inside(const char *path, const char *root, bool *inside, struct tc_error *error) {
    struct cache_blobs blobs = {0};
    char *real = realpath(path, NULL);
    char *folder = NULL;
    int failed = real || tc_path_missing(errno) ? 0 : errno;
    *inside = real && is_below(real, root);
    if (real && !*inside) {
        folder = tc_path_folder(path);
        failed = folder ? cache_blobs_find(&blobs, folder) : ENOMEM;
        *inside = !failed && cache_blobs_hold(&blobs, real);
    }
    cache_blobs_release(&blobs);
    free(real);
    free(folder);
    if (!failed)
        return true;
    tc_fail_errno(error, failed, "open", "cannot find out where it leads");
    return tc_error_in_file(error, path);
}
