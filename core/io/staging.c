#include "core/io/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/sodium.h"
#include "core/io/publish_step.h"
#include "core/io/remove_tree.h"

#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

char *tc_temporary_prefix(const char *name) {
    char *prefix = NULL;
    int keep = NAME_MAX - (int)strlen("..tconv-") - TC_TEMPORARY_LETTERS;
    return asprintf(&prefix, ".%.*s.tconv-", keep, name) < 0 ? NULL : prefix;
}

char *tc_temporary_name(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[TC_TEMPORARY_LETTERS] = {0};
    tc_random(random, sizeof random);
    char suffix[TC_TEMPORARY_LETTERS + 1] = {0};
    for (size_t i = 0; i < sizeof random; i++)
        suffix[i] = letters[random[i] % (sizeof letters - 1)];
    char *temporary = NULL;
    char *prefix = tc_temporary_prefix(name);
    if (!prefix || asprintf(&temporary, "%s%s", prefix, suffix) < 0)
        temporary = NULL;
    free(prefix);
    return temporary;
}

bool tc_folder_lock(int folder) {
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int attempt = 0; attempt < 500; attempt++) {
        if (flock(folder, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false; /* the file system can't lock folders */
        nanosleep(&pause, NULL);
    }
    return false;
}

enum lock { LOCKED, HELD, NO_LOCKS, FAILED };

/* The lock is a file, since not every file system locks folders (NFS). */
static enum lock take_lock(struct tc_staging *staging) {
    struct stat status;
    staging->lock = openat(staging->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (staging->lock < 0)
        return errno == ENOENT ? HELD : FAILED;
    if (flock(staging->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? HELD : NO_LOCKS;
    /* Between opening and locking, the process that held it may have removed it. */
    if (fstat(staging->lock, &status) != 0)
        return FAILED;
    return status.st_nlink ? LOCKED : HELD;
}

static void close_all(struct tc_staging *staging) {
    int *const descriptors[] = {&staging->fd, &staging->lock, &staging->new_fd, &staging->old_fd};
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++) {
        if (*descriptors[i] >= 0)
            close(*descriptors[i]);
        *descriptors[i] = -1;
    }
    free(staging->name);
    staging->name = NULL;
}

/* One attempt. HELD: another run took the folder for a leftover before it was
 * locked here, and will remove it. */
static enum lock make_locked(struct tc_staging *staging, const char *name) {
    staging->name = tc_temporary_name(name);
    if (!staging->name) {
        errno = ENOMEM;
        return FAILED;
    }
    if (tc_publish_step() || mkdirat(staging->folder, staging->name, 0700) != 0) {
        int errnum = errno;
        free(staging->name);
        staging->name = NULL;
        errno = errnum;
        return errnum == EEXIST ? HELD : FAILED;
    }
    staging->fd = openat(staging->folder, staging->name, OPEN_FOLDER);
    if (staging->fd < 0)
        return errno == ENOENT ? HELD : FAILED;
    return take_lock(staging);
}

static bool make_part(const struct tc_staging *staging, const char *name, mode_t mode, int *fd) {
    if (tc_publish_step() || mkdirat(staging->fd, name, mode) != 0)
        return false;
    *fd = openat(staging->fd, name, OPEN_FOLDER);
    return *fd >= 0;
}

bool tc_staging_make(struct tc_staging *staging, int folder, const char *name, mode_t mode,
                     struct tc_error *error) {
    *staging = (struct tc_staging){.folder = folder, .fd = -1, .lock = -1, .new_fd = -1};
    staging->old_fd = -1;
    enum lock lock = HELD;
    for (int attempt = 0; attempt < 100 && lock == HELD; attempt++) {
        close_all(staging);
        lock = make_locked(staging, name);
    }
    if ((lock == LOCKED || lock == NO_LOCKS) && make_part(staging, "new", mode, &staging->new_fd))
        return true;
    tc_fail_errno(error, errno, "output", "cannot create the output");
    tc_staging_release(staging, true);
    return false;
}

bool tc_staging_make_old(struct tc_staging *staging, struct tc_error *error) {
    return staging->old_fd >= 0 || make_part(staging, "old", 0700, &staging->old_fd) ||
           tc_fail_errno(error, errno, "output", "cannot create the output");
}

/* A folder that is not there yet, or no longer, is none; one that can't be opened is a failure. */
static bool open_part(const struct tc_staging *staging, const char *name, int *fd) {
    *fd = openat(staging->fd, name, OPEN_FOLDER);
    return *fd >= 0 || errno == ENOENT;
}

bool tc_staging_adopt(struct tc_staging *staging, int folder, const char *name) {
    struct stat status;
    *staging = (struct tc_staging){.folder = folder, .lock = -1, .new_fd = -1, .old_fd = -1};
    staging->name = strdup(name);
    staging->fd = staging->name ? openat(folder, name, OPEN_FOLDER) : -1;
    /* A folder that others could write to may not be one that a run has left. */
    bool ok = staging->fd >= 0 && fstat(staging->fd, &status) == 0 && status.st_uid == geteuid() &&
              !(status.st_mode & 022) && take_lock(staging) == LOCKED;
    ok = ok && open_part(staging, "new", &staging->new_fd) &&
         open_part(staging, "old", &staging->old_fd);
    if (!ok)
        close_all(staging);
    return ok;
}

bool tc_staging_discard(const struct tc_staging *staging) {
    if (!tc_remove_tree(staging->fd, "new") || !tc_remove_tree(staging->fd, "old") ||
        tc_publish_step())
        return false;
    /* Under another name: what is half removed must not be put back. */
    if (renameat(staging->fd, TC_STAGING_REPLACED, staging->fd, "old") != 0)
        return errno == ENOENT;
    return tc_remove_tree(staging->fd, "old");
}

/* The journal goes first: without it nothing is left to put back. */
void tc_staging_unlink(const struct tc_staging *staging) {
    if (!staging->name)
        return;
    if (staging->fd >= 0) {
        (void)(tc_publish_step() || unlinkat(staging->fd, TC_STAGING_JOURNAL, 0));
        (void)(tc_publish_step() || unlinkat(staging->fd, TC_STAGING_UNFINISHED, 0));
        (void)(tc_publish_step() || unlinkat(staging->fd, TC_STAGING_MARKER, 0));
        (void)(tc_publish_step() || unlinkat(staging->fd, "new", AT_REMOVEDIR));
        (void)(tc_publish_step() || unlinkat(staging->fd, "old", AT_REMOVEDIR));
        (void)(tc_publish_step() || unlinkat(staging->fd, "lock", 0));
    }
    (void)(tc_publish_step() || unlinkat(staging->folder, staging->name, AT_REMOVEDIR));
}

void tc_staging_release(struct tc_staging *staging, bool remove) {
    if (!staging->name)
        return;
    if (remove)
        tc_staging_unlink(staging);
    close_all(staging);
}
