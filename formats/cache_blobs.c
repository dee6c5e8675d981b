#include "formats/cache_blobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/path.h"

/* What is not there is no failure. */
static int real_path(const char *path, char **real) {
    *real = realpath(path, NULL);
    return *real || tc_path_missing(errno) ? 0 : errno;
}

static int find_own(const char *folder, char **own) {
    static const char snapshots[] = "/snapshots/";
    struct stat status;
    char *root = NULL;
    char *blobs = NULL;
    const char *last = NULL;
    int failed = real_path(folder, &root);
    for (const char *at = root; at && (at = strstr(at, snapshots)); at++)
        last = at;
    if (last && asprintf(&blobs, "%.*s/blobs", (int)(last - root), root) < 0) {
        blobs = NULL;
        failed = ENOMEM;
    }
    free(root);
    /* A cache's own is no link: one from a stranger could make all that it leads to look like it.
     */
    bool there = blobs && lstat(blobs, &status) == 0;
    if (blobs && !there && !tc_path_missing(errno))
        failed = errno;
    if (there && S_ISDIR(status.st_mode)) {
        *own = blobs;
        return failed;
    }
    free(blobs);
    return failed;
}

static int find_shared(const char *own, char **shared) {
    static const char marker[] = ".huggingface-shared-blobs";
    char *path = NULL;
    char *marked = NULL;
    if (asprintf(&path, "%s/../../blobs", own) < 0)
        return ENOMEM;
    int failed = real_path(path, shared);
    free(path);
    if (!*shared)
        return failed;
    if (asprintf(&marked, "%s/%s", *shared, marker) < 0)
        return ENOMEM;
    bool is_one = access(marked, F_OK) == 0;
    if (!is_one && !tc_path_missing(errno))
        failed = errno;
    free(marked);
    if (!is_one) {
        free(*shared);
        *shared = NULL;
    }
    return failed;
}

int cache_blobs_find(struct cache_blobs *blobs, const char *folder) {
    *blobs = (struct cache_blobs){0};
    int failed = find_own(folder, &blobs->own);
    return failed || !blobs->own ? failed : find_shared(blobs->own, &blobs->shared);
}

void cache_blobs_release(struct cache_blobs *blobs) {
    free(blobs->own);
    free(blobs->shared);
    *blobs = (struct cache_blobs){0};
}

static bool lies_in(const char *path, const char *folder) {
    size_t length = folder ? strlen(folder) : 0;
    return length && strncmp(path, folder, length) == 0 && path[length] == '/';
}

bool cache_blobs_hold(const struct cache_blobs *blobs, const char *real) {
    return lies_in(real, blobs->own) || lies_in(real, blobs->shared);
}
