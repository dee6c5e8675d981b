/*
 * Sending files to the Hub, as one commit: the Hub is asked which of them are large;
 * those go to its store by the batch interface of git LFS, in one piece or several;
 * then the commit is made, which holds the small ones itself.
 */
#ifndef TCONV_CORE_REMOTE_HUB_PUSH_H
#define TCONV_CORE_REMOTE_HUB_PUSH_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/progress.h"
#include "core/remote/address.h"
#include "core/remote/client.h"
#include "core/remote/hub_lfs.h"

struct tc_hub_push {
    const struct tc_hub_place *place;
    struct tc_hub_upload *uploads;
    size_t count;
    const char *const *deleted; /* files to remove in the same commit */
    size_t deleted_count;
    const char *message;
    bool create_pr;
    const struct tc_watch *watch; /* of the bytes that are sent; may be NULL */
    /* What came of it, to be released. */
    struct tc_buffer commit; /* the commit */
    struct tc_buffer url;    /* the page of the commit, or of the pull request */
};

/* Makes the repository. That it exists already is no failure. */
bool tc_hub_create(struct tc_remote *remote, const struct tc_hub_place *place, bool private,
                   struct tc_error *error);
bool tc_hub_push(struct tc_remote *remote, struct tc_hub_push *push, struct tc_error *error);
void tc_hub_push_release(struct tc_hub_push *push);

#endif
