/* Gives output files their names (core/io/publish.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/io/input.h"
#include "core/io/journal.h"
#include "core/io/publish.h"
#include "core/io/publish_step.h"
#include "core/io/signals.h"
#include "core/io/staging.h"

#define MARKER_TEXT                                                                                \
    "{\"" TC_INCOMPLETE_KEY "\": \"The files of this model are being replaced, or that was "       \
    "interrupted: run the same conversion again.\"}\n"

static bool fail(const struct tc_publish *publish, struct tc_error *error) {
    tc_fail_errno(error, errno, errno == ENOSPC ? "no-space" : "rename",
                  "cannot put the output in place");
    return tc_error_in_file(error, publish->path);
}

static bool sync_folder(const struct tc_publish *publish, int fd, struct tc_error *error) {
    if (publish->options.no_sync ||
        (!tc_publish_step() && (fsync(fd) == 0 || errno == EINVAL || errno == EROFS)))
        return true;
    tc_fail_errno(error, errno, "sync", "cannot sync the output's folder");
    return tc_error_in_file(error, publish->path);
}

/* How many names it gives and removes. */
static size_t count_names(const struct tc_publish *publish) {
    size_t count = publish->removal_count;
    for (const struct tc_outfile *out = publish->files; out; out = out->next)
        count += out->place != TC_OUTFILE_DIRECT;
    return count;
}

static bool has_work(const struct tc_publish *publish) {
    return publish->new_folder || count_names(publish);
}

/* Gives an unnamed file a name; fails where the name is taken. */
static int link_unnamed(const struct tc_outfile *out, int folder, const char *name) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", out->fd);
    return tc_publish_step() ? -1 : linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW);
}

static int move(int from, const char *name, int to, const char *target, bool replace) {
    if (tc_publish_step())
        return -1;
    int failed = renameat2(from, name, to, target, replace ? 0 : RENAME_NOREPLACE);
    if (!failed || (errno != EINVAL && errno != ENOSYS))
        return failed;
    if (replace)
        return renameat(from, name, to, target);
    /* Not every file system has the flag; a link does not replace either. */
    failed = linkat(from, name, to, target, 0);
    return failed ? failed : unlinkat(from, name, 0);
}

/* An unnamed file can replace another only by way of a temporary name: this is the
 * one moment in which a kill leaves a name behind. The lock tells other runs that
 * it is not a leftover. */
static bool replace_by_unnamed(const struct tc_outfile *out, struct tc_error *error) {
    int folder = out->publish->folder_fd;
    char *name = NULL;
    int failed = -1;
    flock(out->fd, LOCK_EX | LOCK_NB);
    for (int attempt = 0; attempt < 100 && failed; attempt++) {
        free(name);
        name = tc_temporary_name(out->name);
        if (!name)
            return tc_fail_memory(error);
        failed = link_unnamed(out, folder, name);
        if (failed && errno != EEXIST)
            break;
    }
    bool ok = !failed && move(folder, name, folder, out->name, true) == 0;
    if (!ok) {
        fail(out->publish, error);
        if (!failed)
            unlinkat(folder, name, 0);
    }
    free(name);
    return ok;
}

/* Gives a single file its name. */
static bool place_single(struct tc_publish *publish, struct tc_error *error) {
    struct tc_outfile *out = publish->files;
    bool replace = !publish->options.no_clobber;
    bool ok;
    while (out->place == TC_OUTFILE_DIRECT)
        out = out->next;
    if (out->place == TC_OUTFILE_STAGED)
        ok = move(publish->staging.new_fd, out->name, publish->folder_fd, out->name, replace) == 0;
    else if (link_unnamed(out, publish->folder_fd, out->name) == 0)
        ok = true;
    else if (errno == EEXIST && replace)
        return replace_by_unnamed(out, error);
    else
        ok = false;
    return ok || fail(publish, error);
}

/* Brings all files into the staging folder, under their final names. */
static bool stage_all(struct tc_publish *publish, struct tc_error *error) {
    if (!tc_publish_stage(publish, error))
        return tc_error_in_file(error, publish->path);
    for (struct tc_outfile *out = publish->files; out; out = out->next) {
        if (out->place != TC_OUTFILE_UNNAMED)
            continue;
        if (link_unnamed(out, publish->staging.new_fd, out->name) != 0)
            return fail(publish, error);
        close(out->fd);
        out->fd = -1;
        out->place = TC_OUTFILE_STAGED;
    }
    for (size_t i = publish->folder_count; i-- > 0;) {
        int fd = openat(publish->staging.new_fd, publish->folders[i],
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        bool ok = fd >= 0 ? sync_folder(publish, fd, error) : fail(publish, error);
        if (fd >= 0)
            close(fd);
        if (!ok)
            return false;
    }
    return sync_folder(publish, publish->staging.new_fd, error);
}

static bool note_entry(struct tc_publish *publish, enum tc_journal_kind kind, char *name,
                       struct tc_error *error) {
    struct stat status;
    struct tc_journal_entry entry = {.kind = kind, .name = name};
    if (kind != TC_JOURNAL_REMOVAL) {
        if (fstatat(publish->staging.new_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            return fail(publish, error);
        entry.inode = status.st_ino;
    }
    if (fstatat(publish->folder_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
        entry.replaced = status.st_ino;
    else if (errno != ENOENT)
        return fail(publish, error);
    if (entry.replaced && publish->options.no_clobber && kind != TC_JOURNAL_REMOVAL) {
        errno = EEXIST;
        return fail(publish, error);
    }
    return tc_journal_add(&publish->journal, &entry, error);
}

static const struct tc_outfile *find_head(const struct tc_publish *publish) {
    const struct tc_outfile *head = publish->head ? tc_publish_find(publish, publish->head) : NULL;
    for (const struct tc_outfile *out = publish->files; out && !head; out = out->next)
        if (out->place != TC_OUTFILE_DIRECT)
            head = out;
    return head;
}

static bool write_marker(struct tc_publish *publish, const struct tc_outfile *head,
                         struct tc_error *error) {
    struct stat status;
    int fd = tc_publish_step() ? -1
                               : openat(publish->staging.fd, TC_STAGING_MARKER,
                                        O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && fchmod(fd, head->mode) == 0 && fstat(fd, &status) == 0;
    ok = ok ? tc_write_all(fd, MARKER_TEXT, sizeof MARKER_TEXT - 1, error) : fail(publish, error);
    ok = ok && sync_folder(publish, fd, error);
    if (ok)
        publish->journal.marker = status.st_ino;
    if (fd >= 0 && close(fd) != 0 && ok)
        ok = fail(publish, error);
    return ok;
}

/* Does everything that can fail before the first file is put in place. */
static bool prepare(struct tc_publish *publish, struct tc_error *error) {
    if (!stage_all(publish, error))
        return false;
    if (publish->new_folder)
        return true;
    const struct tc_outfile *head = find_head(publish);
    bool several = count_names(publish) > 1;
    bool ok = tc_staging_make_old(&publish->staging, error);
    for (struct tc_outfile *out = publish->files; out && ok; out = out->next)
        if (out->place != TC_OUTFILE_DIRECT)
            ok = note_entry(publish, out == head ? TC_JOURNAL_HEAD : TC_JOURNAL_FILE, out->name,
                            error);
    for (size_t i = 0; i < publish->removal_count && ok; i++)
        ok = note_entry(publish, TC_JOURNAL_REMOVAL, publish->removals[i], error);
    ok = ok && (!several || !head || write_marker(publish, head, error)) &&
         tc_journal_write(&publish->journal, &publish->staging, !publish->options.no_sync, error) &&
         sync_folder(publish, publish->staging.fd, error) &&
         sync_folder(publish, publish->folder_fd, error);
    return ok ? true : tc_error_in_file(error, publish->path);
}

/* Gives the files that will be replaced a second name in `old`, so that they can be
 * put back. Where there are no hard links, make_way moves them there. */
static bool keep_old(struct tc_publish *publish, struct tc_error *error) {
    for (size_t i = 0; i < publish->journal.count; i++) {
        const struct tc_journal_entry *entry = &publish->journal.entries[i];
        if (!entry->replaced || tc_publish_lacks("TCONV_TEST_NO_LINKS"))
            continue;
        if (tc_publish_step())
            return fail(publish, error);
        if (linkat(publish->folder_fd, entry->name, publish->staging.old_fd, entry->name, 0) != 0 &&
            (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EROFS))
            return fail(publish, error);
    }
    return sync_folder(publish, publish->staging.old_fd, error);
}

/* Whether a file that is replaced has a second name in `old`. */
static bool find_kept(const struct tc_publish *publish, const struct tc_journal_entry *entry,
                      bool *kept, struct tc_error *error) {
    struct stat status;
    *kept = entry->replaced &&
            fstatat(publish->staging.old_fd, entry->name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    return *kept || !entry->replaced || errno == ENOENT || fail(publish, error);
}

/* Moves an old file to `old`, unless it has a second name there already: then *kept is true. */
static bool make_way(struct tc_publish *publish, const struct tc_journal_entry *entry, bool *kept,
                     struct tc_error *error) {
    int folder = publish->folder_fd;
    if (!find_kept(publish, entry, kept, error))
        return false;
    if (!entry->replaced || *kept)
        return true;
    if (tc_publish_step() ||
        (renameat(folder, entry->name, publish->staging.old_fd, entry->name) != 0 &&
         errno != ENOENT))
        return fail(publish, error);
    return true;
}

static bool place_entry(struct tc_publish *publish, const struct tc_journal_entry *entry,
                        struct tc_error *error) {
    int folder = publish->folder_fd;
    bool linked;
    bool replace = !publish->options.no_clobber;
    if (!make_way(publish, entry, &linked, error))
        return false;
    int failed = 0;
    if (entry->kind != TC_JOURNAL_REMOVAL)
        failed = move(publish->staging.new_fd, entry->name, folder, entry->name,
                      replace || (entry->kind == TC_JOURNAL_HEAD && publish->journal.marker));
    else if (linked)
        failed = tc_publish_step() || (unlinkat(folder, entry->name, 0) != 0 && errno != ENOENT);
    return !failed || fail(publish, error);
}

static bool place_marker(struct tc_publish *publish, const struct tc_journal_entry *head,
                         struct tc_error *error) {
    bool kept;
    if (!make_way(publish, head, &kept, error))
        return false;
    if (move(publish->staging.fd, TC_STAGING_MARKER, publish->folder_fd, head->name,
             !publish->options.no_clobber) != 0)
        return fail(publish, error);
    return sync_folder(publish, publish->folder_fd, error);
}

static bool place_files(struct tc_publish *publish, struct tc_error *error) {
    const struct tc_journal *journal = &publish->journal;
    const struct tc_journal_entry *head = tc_journal_head(journal);
    if (!keep_old(publish, error) || (journal->marker && !place_marker(publish, head, error)))
        return false;
    for (size_t i = 0; i < journal->count; i++)
        if (&journal->entries[i] != head && !place_entry(publish, &journal->entries[i], error))
            return false;
    if (journal->count > 1 && !sync_folder(publish, publish->folder_fd, error))
        return false;
    return (!head || place_entry(publish, head, error)) &&
           sync_folder(publish, publish->folder_fd, error);
}

static bool lacks_flag(void) {
    return errno == EINVAL || errno == ENOSYS;
}

static int exchange(const struct tc_publish *publish) {
    if (tc_publish_step())
        return -1;
    if (tc_publish_lacks("TCONV_TEST_NO_EXCHANGE")) {
        errno = EINVAL;
        return -1;
    }
    return renameat2(publish->staging.fd, "new", publish->folder_fd, publish->new_folder,
                     RENAME_EXCHANGE);
}

/* Puts a folder in the place of another: in one step or, where the file system can't
 * do that, in two, between which the next run to the same output puts back the old
 * one (core/io/recover.h). */
static int replace_folder(struct tc_publish *publish) {
    const struct tc_staging *staging = &publish->staging;
    if (exchange(publish) == 0) {
        publish->exchanged = true;
        return 0;
    }
    if (!lacks_flag() || tc_publish_step() ||
        renameat(publish->folder_fd, publish->new_folder, staging->fd, TC_STAGING_REPLACED) != 0)
        return -1;
    return tc_publish_step()
               ? -1
               : renameat(staging->fd, "new", publish->folder_fd, publish->new_folder);
}

static bool place(struct tc_publish *publish, struct tc_error *error) {
    if (!publish->new_folder)
        return place_files(publish, error);
    int failed = tc_publish_step() || renameat2(publish->staging.fd, "new", publish->folder_fd,
                                                publish->new_folder, RENAME_NOREPLACE) != 0;
    if (failed && errno == EEXIST && publish->options.replace_folder) {
        failed = replace_folder(publish);
        publish->replaced = !failed;
    }
    /* Without the flag only an empty folder can be replaced. */
    else if (failed && (lacks_flag() || (errno == EEXIST && publish->options.whole_folder)))
        failed = renameat(publish->staging.fd, "new", publish->folder_fd, publish->new_folder);
    return failed ? fail(publish, error) : sync_folder(publish, publish->folder_fd, error);
}

/* Puts back a folder that was replaced, or takes away one that was not there. */
static bool undo_folder(struct tc_publish *publish) {
    struct stat status;
    const struct tc_staging *staging = &publish->staging;
    if (publish->exchanged) {
        publish->exchanged = exchange(publish) != 0;
        return !publish->exchanged;
    }
    bool placed =
        staging->new_fd >= 0 && fstatat(staging->fd, "new", &status, AT_SYMLINK_NOFOLLOW) != 0;
    if (placed && renameat(publish->folder_fd, publish->new_folder, staging->fd, "new") != 0)
        return false;
    return renameat(staging->fd, TC_STAGING_REPLACED, publish->folder_fd, publish->new_folder) ==
               0 ||
           errno == ENOENT;
}

/* False where it failed, so that the next run must clean up. */
static bool undo(struct tc_publish *publish) {
    const struct tc_staging *staging = &publish->staging;
    if (!staging->name)
        return true;
    return publish->new_folder
               ? undo_folder(publish)
               : tc_journal_undo(&publish->journal, staging, !publish->options.no_sync);
}

/* Removes the staging folder with whatever is left in it. */
static void remove_staging(struct tc_publish *publish) {
    const struct tc_staging *staging = &publish->staging;
    if (!staging->name)
        return;
    if (!tc_publish_step())
        unlinkat(staging->fd, TC_STAGING_JOURNAL, 0);
    for (size_t i = 0; i < publish->journal.count; i++)
        if (staging->old_fd >= 0 && publish->journal.entries[i].replaced && !tc_publish_step())
            unlinkat(staging->old_fd, publish->journal.entries[i].name, 0);
    for (struct tc_outfile *out = publish->files; out; out = out->next)
        if (out->place == TC_OUTFILE_STAGED && !out->published)
            unlinkat(staging->new_fd, out->name, 0);
    /* What a whole folder has replaced, or a folder that was not put in place. */
    if (publish->new_folder)
        publish->left_over = !tc_staging_discard(staging) && publish->replaced;
    tc_staging_release(&publish->staging, true);
}

static void finish(struct tc_publish *publish, bool ok) {
    for (struct tc_outfile *out = publish->files; out && ok; out = out->next)
        out->published = true;
    bool clean = ok || undo(publish);
    if (clean)
        remove_staging(publish);
    else
        tc_staging_release(&publish->staging, false);
}

/* Whether the folder that was opened is still the one of that name: an output in a folder that was
 * moved away would not be where it was asked for. */
static bool folder_stands(const struct tc_publish *publish, struct tc_error *error) {
    struct stat opened;
    struct stat named;
    if (fstat(publish->folder_fd, &opened) == 0 && stat(publish->base, &named) == 0 &&
        opened.st_dev == named.st_dev && opened.st_ino == named.st_ino)
        return true;
    tc_fail(error, TC_IO, "output-folder", "the output's folder was moved or replaced meanwhile");
    return tc_error_in_file(error, publish->path);
}

static bool folders_stand(struct tc_publish *const *publishes, size_t count,
                          struct tc_error *error) {
    for (size_t i = 0; i < count; i++)
        if (has_work(publishes[i]) && !folder_stands(publishes[i], error))
            return false;
    return true;
}

static bool commit_together(struct tc_publish *const *publishes, size_t count,
                            struct tc_error *error) {
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++)
        ok = !has_work(publishes[i]) || prepare(publishes[i], error);
    for (size_t i = 0; i < count && ok; i++)
        ok = !has_work(publishes[i]) || place(publishes[i], error);
    return ok;
}

bool tc_publish_commit_all(struct tc_publish *const *publishes, size_t count,
                           struct tc_error *error) {
    size_t works = 0;
    size_t names = 0;
    struct tc_publish *last = NULL;
    int locked = -1;
    if (tc_memory_lacked())
        return tc_fail_memory(error);
    for (size_t i = 0; i < count; i++) {
        if (!has_work(publishes[i]))
            continue;
        works++;
        last = publishes[i];
        names += count_names(last);
        /* Two runs must not put files of one model in place at the same time. Only
         * one folder is locked, so that two runs never wait for each other. */
        if (locked < 0 && count_names(last) > 1 && !last->new_folder &&
            tc_folder_lock(last->folder_fd))
            locked = last->folder_fd;
    }
    sigset_t old;
    tc_signals_block(&old);
    bool single = works == 1 && names == 1 && !last->new_folder && !last->removal_count;
    bool ok = folders_stand(publishes, count, error) &&
              (single ? place_single(last, error) : commit_together(publishes, count, error));
    for (size_t i = count; i-- > 0;)
        finish(publishes[i], ok);
    tc_signals_unblock(&old);
    if (locked >= 0)
        flock(locked, LOCK_UN);
    if (ok)
        tc_memory_settle();
    return ok && (!single || sync_folder(last, last->folder_fd, error));
}

bool tc_publish_commit(struct tc_publish *publish, struct tc_error *error) {
    return tc_publish_commit_all(&publish, 1, error);
}
