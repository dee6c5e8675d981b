/*
 * Walks through a folder with all that lies below it, in the order of names, and hands every entry
 * to a visitor. Links are told of and not followed; pipes and devices are never opened.
 *
 * Each folder is held open until all that is in it is done, and its entries are looked at by way of
 * it: a folder that somebody turns into a link meanwhile leads nowhere else. A file is handed over
 * by its path, with what it was when it was looked at; who opens it compares.
 */
#ifndef TCONV_CMD_TREE_WALK_H
#define TCONV_CMD_TREE_WALK_H

#include <sys/stat.h>

#include "core/base/error.h"

struct tree_visitor {
    void *context;
    void (*file)(void *context, const char *path, const struct stat *status);
    void (*link)(void *context, const char *path);
    void (*special)(void *context, const char *path);
    /* What could not be looked at, or was too much; the walk goes on with the rest. */
    void (*failed)(void *context, const char *path, const struct tc_error *error);
};

/* `top` may be a link to a folder: the user named it. */
void tree_walk(const char *top, const struct tree_visitor *visitor);

#endif
