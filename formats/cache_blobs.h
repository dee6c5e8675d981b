/* Where a cache of Hugging Face keeps what the links of its snapshots lead to. */
#ifndef TCONV_FORMATS_CACHE_BLOBS_H
#define TCONV_FORMATS_CACHE_BLOBS_H

#include <stdbool.h>

/* Folders without links in their paths, from malloc; NULL: there is none. */
struct cache_blobs {
    char *own;    /* of one repository: CACHE/blobs for CACHE/snapshots/REVISION */
    char *shared; /* those that newer clients keep once for all repositories of the cache */
};

/* Of the snapshot that a folder is, or lies in. Returns 0, or why that can't be found out (an
 * errno); to be released either way. */
int cache_blobs_find(struct cache_blobs *blobs, const char *folder);
void cache_blobs_release(struct cache_blobs *blobs);

/* Whether a file, whose path has no links, lies there. */
bool cache_blobs_hold(const struct cache_blobs *blobs, const char *real);

#endif
