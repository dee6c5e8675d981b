/*
 * Large files, by the batch interface of git LFS that the Hub has: it says where each
 * goes, in one piece ("basic") or several ("multipart"), or that it has it already.
 */
#ifndef TCONV_CORE_REMOTE_HUB_LFS_H
#define TCONV_CORE_REMOTE_HUB_LFS_H

#include "core/base/error.h"
#include "core/io/progress.h"
#include "core/remote/address.h"
#include "core/remote/client.h"

/* A file to send. */
struct tc_hub_upload {
    const char *path; /* in the repository */
    uint64_t size;
    char sha256[65]; /* of its content */
    /* Gives its bytes, in any order and more than once; unless `once`: then from the
     * start to the end, one time. */
    bool (*read)(void *context, uint64_t offset, void *bytes, size_t length,
                 struct tc_error *error);
    void *context;
    bool once;
    unsigned char sample[512]; /* its first bytes */
    size_t sampled;
    bool told;    /* the Hub has said how it is sent: */
    bool large;   /* to its store of large files */
    bool ignored; /* the repository's .gitignore names it */
};

/* Sends those that are large and not ignored. */
bool hub_lfs_upload(struct tc_remote *remote, const struct tc_hub_place *place,
                    const struct tc_hub_upload *uploads, size_t count, const struct tc_watch *watch,
                    struct tc_error *error);

#endif
