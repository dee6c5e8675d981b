#include "core/io/recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/journal.h"
#include "core/io/publish_step.h"
#include "core/io/staging.h"

static DIR *open_listing(int folder) {
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    if (!listing && fd >= 0)
        close(fd);
    return listing;
}

/* Removes a temporary name that a file had just before it replaced another. */
static void remove_file(int folder, const char *name) {
    struct stat held;
    struct stat named;
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &held) == 0 &&
        fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_ino == held.st_ino &&
        !tc_publish_step())
        unlinkat(folder, name, 0);
    close(fd);
}

/* Puts back a folder that had made way for a new one, which did not come. False where that can't be
 * done or there is no telling: what is in the staging folder may then be all there is. */
static bool restore_folder(const struct tc_staging *staging, int folder, const char *output) {
    struct stat status;
    if (fstatat(staging->fd, TC_STAGING_REPLACED, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT;
    if (fstatat(folder, output, &status, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    return errno == ENOENT && !tc_publish_step() &&
           renameat2(staging->fd, TC_STAGING_REPLACED, folder, output, RENAME_NOREPLACE) == 0;
}

static void recover_staging(int folder, const char *name, const char *output, bool sync) {
    struct tc_staging staging;
    struct tc_journal journal;
    struct stat status;
    if (!tc_staging_adopt(&staging, folder, name))
        return;
    bool failed;
    bool done = restore_folder(&staging, folder, output);
    if (tc_journal_read(&journal, &staging, &failed)) {
        const struct tc_journal_entry *head = tc_journal_head(&journal);
        /* Once the head has left `new`, all files are in place. */
        if (staging.new_fd >= 0 &&
            fstatat(staging.new_fd, head->name, &status, AT_SYMLINK_NOFOLLOW) == 0)
            done = tc_journal_undo(&journal, &staging, sync) && done;
        else if (staging.new_fd >= 0 && errno != ENOENT)
            failed = true;
        tc_journal_release(&journal);
    }
    /* Without knowing what the journal says, nothing may be removed. */
    done = done && !failed;
    if (done) {
        if (!tc_publish_step())
            unlinkat(staging.fd, TC_STAGING_JOURNAL, 0);
        tc_staging_discard(&staging);
    }
    tc_staging_release(&staging, done);
}

static bool is_leftover(int folder, const char *name, const char *prefix, mode_t *type) {
    struct stat status;
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0 || strlen(name) != length + TC_TEMPORARY_LETTERS ||
        fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 || status.st_uid != geteuid())
        return false;
    *type = status.st_mode & S_IFMT;
    return *type == S_IFREG || *type == S_IFDIR;
}

/* The name of the output that a temporary name was made from, from malloc; NULL where it is none,
 * or one that was cut short. */
static char *output_of(const char *name) {
    static const char mark[] = ".tconv-";
    size_t length = strlen(name);
    size_t ending = sizeof mark - 1 + TC_TEMPORARY_LETTERS;
    if (name[0] != '.' || length <= ending + 1 || length >= NAME_MAX ||
        memcmp(name + length - ending, mark, sizeof mark - 1) != 0)
        return NULL;
    return strndup(name + 1, length - ending - 1);
}

void tc_recover_all(int folder, bool sync) {
    DIR *listing = open_listing(folder);
    struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        char *output = output_of(entry->d_name);
        if (output)
            tc_recover(folder, output, sync);
        free(output);
    }
    if (listing)
        closedir(listing);
}

void tc_recover(int folder, const char *name, bool sync) {
    char *prefix = tc_temporary_prefix(name);
    DIR *listing = prefix ? open_listing(folder) : NULL;
    struct dirent *entry;
    bool locked = false;
    mode_t type;
    while (listing && (entry = readdir(listing))) {
        if (!is_leftover(folder, entry->d_name, prefix, &type))
            continue;
        /* Waits for runs that publish here now, and keeps others from beginning. */
        locked = locked || tc_folder_lock(folder);
        if (type == S_IFREG)
            remove_file(folder, entry->d_name);
        else
            recover_staging(folder, entry->d_name, name, sync);
    }
    if (locked)
        flock(folder, LOCK_UN);
    if (listing)
        closedir(listing);
    free(prefix);
}
