/*
 * The folder in which the Hub's clients keep what they fetched, in the layout that
 * Python's huggingface_hub has, so that each finds what the other fetched:
 *
 *     models--NS--NAME/blobs/HASH                  the contents
 *     models--NS--NAME/refs/REVISION               the commit that it stands for
 *     models--NS--NAME/snapshots/COMMIT/PATH       a link to ../../blobs/HASH
 *     .locks/models--NS--NAME/HASH.lock            held while a content is fetched
 *
 * A content that is not whole is HASH.incomplete, and fetching goes on where it ended.
 * Everything is made below the cache's folder, and no link on the way is followed.
 */
#ifndef TCONV_CORE_REMOTE_HUB_CACHE_H
#define TCONV_CORE_REMOTE_HUB_CACHE_H

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/io/progress.h"
#include "core/remote/address.h"
#include "core/remote/environment.h"
#include "core/remote/protocol.h"

struct tc_hub_cache {
    char *root; /* as it was named */
    char *name; /* of the repository's folder */
    int fd;     /* of the root; -1: not open */
    int repo;
    /* Called before it waits for another process that fetches the same content; may be NULL. */
    void (*waits)(const struct tc_hub_cache *cache);
};

/* Makes the folder of the cache, and those it lies in. */
bool tc_hub_cache_make(const char *root, struct tc_error *error);
/* The repository's folder in the cache `root`; it is made where it is not there. */
bool tc_hub_cache_open(struct tc_hub_cache *cache, const char *root,
                       const struct tc_hub_place *place, struct tc_error *error);
void tc_hub_cache_close(struct tc_hub_cache *cache);

/* Makes sure that a file is there, whole and with the hash that the Hub told: `input`
 * is it on the Hub, `facts` is what that said of it. A wrong hash is TC_INVALID, and nothing is
 * kept. *fetched says how many bytes came by the network. */
bool tc_hub_cache_fetch(struct tc_hub_cache *cache, const struct tc_remote_facts *facts,
                        struct tc_input *input, const char *path, const struct tc_watch *watch,
                        uint64_t *fetched, struct tc_error *error);
/* Notes which commit a branch or tag is. */
bool tc_hub_cache_set_ref(struct tc_hub_cache *cache, const char *revision, const char *commit,
                          struct tc_error *error);
/* Where the user's cache has what lies at a place, by the commit that its revision stood for
 * when it was fetched; from malloc. NULL: it does not have it. */
char *tc_hub_cache_find(const struct tc_hub_place *place);
/* The path of a file, or with an empty `path` of the folder, of a commit; from malloc. */
char *tc_hub_cache_path(const struct tc_hub_cache *cache, const char *commit, const char *path);

#endif
