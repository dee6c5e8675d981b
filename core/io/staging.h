/*
 * Where files wait for their names: a folder beside the output, known by its
 * name and told by its lock from one that a killed process has left.
 *
 *     .NAME.tconv-XXXXXX/
 *         lock       locked for as long as the process lives
 *         new/       files, called what they will be called
 *         old/       what they take the place of, until all are in place
 *         marker     what stands in the place of the first file meanwhile
 *         journal    which files these are (core/io/journal.h)
 *
 * For an output that is a folder and is not there yet, `new` becomes that folder.
 */
#ifndef TCONV_CORE_IO_STAGING_H
#define TCONV_CORE_IO_STAGING_H

#include <sys/types.h>

#include "core/base/error.h"

#define TC_STAGING_JOURNAL "journal"
#define TC_STAGING_UNFINISHED "journal.part"
#define TC_STAGING_MARKER "marker"

struct tc_staging {
    char *name; /* NULL: there is none */
    int folder; /* that it lies in; not its own */
    int fd;
    int lock;
    int new_fd;
    int old_fd; /* -1 until tc_staging_make_old */
};

/* ".NAME.tconv-", NAME cut so that a few more letters fit a directory entry; and
 * with random ones behind it. From malloc; NULL without memory. */
#define TC_TEMPORARY_LETTERS 6
char *tc_temporary_prefix(const char *name);
char *tc_temporary_name(const char *name);

/* Waits until no other run puts files in place in this folder, but not for ever:
 * the lock may be somebody else's. False where it can't be had; flock releases it. */
bool tc_folder_lock(int folder);

/* Makes it for an output of this name; `mode` is that of `new`. Signals must be
 * blocked until the caller has noted it. */
bool tc_staging_make(struct tc_staging *staging, int folder, const char *name, mode_t mode,
                     struct tc_error *error);
bool tc_staging_make_old(struct tc_staging *staging, struct tc_error *error);
/* Opens one that lies there and locks it. False where a process that lives holds
 * its lock, where it is not the user's own, or where locks don't work. */
bool tc_staging_adopt(struct tc_staging *staging, int folder, const char *name);
/* Removes it; files in `new` and `old` must be gone. A signal handler may do so. */
void tc_staging_unlink(const struct tc_staging *staging);
/* Closes it, and removes it first where that is wanted. */
void tc_staging_release(struct tc_staging *staging, bool remove);

#endif
