/*
 * The staging folder, next to the output, holds files until they are published.
 * It is recognised by its name; its lock is free once its process has ended.
 *
 *     .NAME.tconv-XXXXXX/
 *         lock       locked for as long as the process lives
 *         new/       the new files, under their final names
 *         old/       the files that they replace, until all are in place
 *         marker     the file that has the head's name meanwhile
 *         journal    which files these are (core/io/journal.h)
 *
 * For an output that is a folder and is not there yet, `new` becomes that folder. One
 * that takes the place of another changes places with it, so that `new` has the old
 * one; where the file system can't do that, the old one is first moved to `replaced`.
 */
#ifndef TCONV_CORE_IO_STAGING_H
#define TCONV_CORE_IO_STAGING_H

#include <sys/types.h>

#include "core/base/error.h"

#define TC_STAGING_JOURNAL "journal"
#define TC_STAGING_UNFINISHED "journal.part"
#define TC_STAGING_MARKER "marker"
#define TC_STAGING_REPLACED "replaced"

struct tc_staging {
    char *name; /* NULL: there is none */
    int folder; /* the folder that it lies in; not owned */
    int fd;
    int lock;
    int new_fd;
    int old_fd; /* -1 until tc_staging_make_old */
};

/* ".NAME.tconv-", where NAME is cut so that the random letters still fit a file
 * name; and that with random letters behind it. From malloc; NULL without memory. */
#define TC_TEMPORARY_LETTERS 6
char *tc_temporary_prefix(const char *name);
char *tc_temporary_name(const char *name);

/* Waits until no other run puts files in place in this folder, but only some
 * seconds, since other programs may lock it too. False where it can't be locked;
 * flock(folder, LOCK_UN) unlocks it. */
bool tc_folder_lock(int folder);

/* Makes a staging folder for an output of this name; `mode` is that of `new`.
 * Signals must be blocked, so that a handler never sees half of it. */
bool tc_staging_make(struct tc_staging *staging, int folder, const char *name, mode_t mode,
                     struct tc_error *error);
bool tc_staging_make_old(struct tc_staging *staging, struct tc_error *error);
/* Opens one that a process has left, and locks it. False where a running process
 * holds the lock, where it belongs to another user, or where locks don't work. */
bool tc_staging_adopt(struct tc_staging *staging, int folder, const char *name);
/* Removes all that is in `new`, `old` and `replaced`. */
bool tc_staging_discard(const struct tc_staging *staging);
/* Removes it; files in `new` and `old` must be gone. Safe in a signal handler. */
void tc_staging_unlink(const struct tc_staging *staging);
/* Closes it, and removes it first where that is wanted. */
void tc_staging_release(struct tc_staging *staging, bool remove);

#endif
