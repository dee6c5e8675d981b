#include "core/io/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/memory.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/io/publish_step.h"

#define FIRST_LINE "tconv journal 1"
#define LAST_LINE "end"
/* A journal of 100,000 names of the greatest length takes a quarter of this. */
#define LARGEST_JOURNAL (UINT64_C(128) << 20)

bool tc_journal_add(struct tc_journal *journal, const struct tc_journal_entry *entry,
                    struct tc_error *error) {
    if (journal->count == journal->capacity) {
        size_t capacity = journal->capacity ? 2 * journal->capacity : 16;
        void *grown = reallocarray(journal->entries, capacity, sizeof *journal->entries);
        if (!grown)
            return tc_fail_memory(error);
        journal->entries = grown;
        journal->capacity = capacity;
    }
    char *name = strdup(entry->name);
    if (!name)
        return tc_fail_memory(error);
    journal->entries[journal->count] = *entry;
    journal->entries[journal->count++].name = name;
    return true;
}

void tc_journal_release(struct tc_journal *journal) {
    for (size_t i = 0; i < journal->count; i++)
        free(journal->entries[i].name);
    free(journal->entries);
    *journal = (struct tc_journal){0};
}

const struct tc_journal_entry *tc_journal_head(const struct tc_journal *journal) {
    for (size_t i = 0; i < journal->count; i++)
        if (journal->entries[i].kind == TC_JOURNAL_HEAD)
            return &journal->entries[i];
    return NULL;
}

/* Lines end in NUL, which no name has. */
static void print(struct tc_buffer *text, const struct tc_journal *journal) {
    tc_buffer_addf(text, "%s %llu", FIRST_LINE, (unsigned long long)journal->marker);
    tc_buffer_add(text, "", 1);
    for (size_t i = 0; i < journal->count; i++) {
        const struct tc_journal_entry *entry = &journal->entries[i];
        tc_buffer_addf(text, "%c %llu %llu ", (char)entry->kind, (unsigned long long)entry->inode,
                       (unsigned long long)entry->replaced);
        tc_buffer_add(text, entry->name, strlen(entry->name) + 1);
    }
    tc_buffer_add(text, LAST_LINE, sizeof LAST_LINE);
}

bool tc_journal_write(const struct tc_journal *journal, const struct tc_staging *staging, bool sync,
                      struct tc_error *error) {
    struct tc_buffer text = {0};
    print(&text, journal);
    int fd = tc_publish_step() ? -1
                               : openat(staging->fd, TC_STAGING_UNFINISHED,
                                        O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = tc_buffer_ok(&text, error);
    if (ok && (fd < 0 || tc_publish_step()))
        ok = tc_fail_errno(error, errno, "output", "cannot create the output's journal");
    ok = ok && tc_write_all(fd, text.bytes, text.length, error);
    if (ok && ((sync && (tc_publish_step() || fsync(fd) != 0)) || tc_publish_step() ||
               renameat(staging->fd, TC_STAGING_UNFINISHED, staging->fd, TC_STAGING_JOURNAL) != 0))
        ok = tc_fail_errno(error, errno, errno == ENOSPC ? "no-space" : "write",
                           "cannot write the output's journal");
    if (!ok && fd >= 0)
        unlinkat(staging->fd, TC_STAGING_UNFINISHED, 0);
    if (fd >= 0 && close(fd) != 0 && ok)
        ok = tc_fail_errno(error, errno, "write", "cannot write the output's journal");
    tc_buffer_release(&text);
    return ok;
}

/* The whole file, from malloc; NULL where there is none or, with *failed, where it can't be
 * read. */
static char *load(const struct tc_staging *staging, size_t *length, bool *failed) {
    struct stat status;
    struct tc_error ignored = {0};
    int fd = openat(staging->fd, TC_STAGING_JOURNAL, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char *text = NULL;
    *failed = fd < 0 ? !tc_path_missing(errno) : fstat(fd, &status) != 0;
    if (fd >= 0 && !*failed && S_ISREG(status.st_mode) && status.st_size > 0 &&
        (uint64_t)status.st_size <= LARGEST_JOURNAL) {
        struct tc_input *input =
            tc_input_adopt(fd, "journal", (uint64_t)status.st_size, NULL, &ignored);
        *length = (size_t)status.st_size;
        text = input ? tc_input_load(input, 0, *length, &ignored) : NULL;
        *failed = !text;
        tc_input_close(input);
    } else if (fd >= 0) {
        close(fd);
    }
    return text;
}

/* "F INODE REPLACED NAME". */
static bool read_line(struct tc_journal *journal, char *line) {
    struct tc_error ignored = {0};
    char kind;
    unsigned long long inode;
    unsigned long long replaced;
    int length = 0;
    if (sscanf(line, "%c %llu %llu%n", &kind, &inode, &replaced, &length) != 3 ||
        !strchr("HFR", kind) || line[length] != ' ' ||
        !tc_path_is_plain(tc_text_of(line + length + 1)))
        return false;
    return tc_journal_add(journal,
                          &(struct tc_journal_entry){.kind = (enum tc_journal_kind)kind,
                                                     .name = line + length + 1,
                                                     .inode = (ino_t)inode,
                                                     .replaced = (ino_t)replaced},
                          &ignored);
}

bool tc_journal_read(struct tc_journal *journal, const struct tc_staging *staging, bool *failed) {
    *journal = (struct tc_journal){0};
    size_t length = 0;
    char *text = load(staging, &length, failed);
    bool ok =
        text && text[length - 1] == '\0' && strncmp(text, FIRST_LINE, sizeof FIRST_LINE - 1) == 0;
    bool ended = false;
    if (ok)
        journal->marker = (ino_t)strtoull(text + sizeof FIRST_LINE - 1, NULL, 10);
    for (size_t at = ok ? strlen(text) + 1 : 0; ok && at < length; at += strlen(text + at) + 1) {
        ended = strcmp(text + at, LAST_LINE) == 0;
        ok = ended || read_line(journal, text + at);
    }
    free(text);
    *failed = *failed || tc_memory_lacked();
    if (ok && ended && tc_journal_head(journal))
        return true;
    tc_journal_release(journal);
    return false;
}

/* The inode of the file of this name; 0 where there is none. False where that can't be found out,
 * which must not be taken for a file that is gone. */
static bool find_inode(int folder, const char *name, ino_t *inode) {
    struct stat status;
    bool there = folder >= 0 && fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    *inode = there ? status.st_ino : 0;
    return there || folder < 0 || errno == ENOENT;
}

static bool put_back(const struct tc_staging *staging, const char *name) {
    return !tc_publish_step() && renameat(staging->old_fd, name, staging->folder, name) == 0;
}

/* False where a system call failed; sets *foreign where somebody else has put a
 * file of this name there. */
static bool undo_entry(const struct tc_journal *journal, const struct tc_journal_entry *entry,
                       const struct tc_staging *staging, bool *foreign) {
    ino_t now;
    ino_t old;
    ino_t waiting;
    if (!find_inode(staging->folder, entry->name, &now) ||
        !find_inode(staging->old_fd, entry->name, &old) ||
        !find_inode(staging->new_fd, entry->name, &waiting))
        return false;
    bool ours = now == 0 || (now == entry->inode && !waiting) ||
                (entry->kind == TC_JOURNAL_HEAD && journal->marker && now == journal->marker);
    if (now && (now == old || now == entry->replaced))
        return true; /* the old file is in its place still, or again */
    if (entry->kind == TC_JOURNAL_REMOVAL)
        return now || !old || put_back(staging, entry->name);
    if (!ours) {
        *foreign = true;
        return true;
    }
    if (old)
        return put_back(staging, entry->name);
    if (!now || entry->replaced)
        return true;
    return !tc_publish_step() && unlinkat(staging->folder, entry->name, 0) == 0;
}

static bool sync_folder(const struct tc_staging *staging, bool sync) {
    return !sync || (!tc_publish_step() && (fsync(staging->folder) == 0 || errno == EINVAL));
}

/* Where the new head is in place, it goes first: whoever finds it there takes the output for whole,
 * and so does tc_recover. */
static bool take_head_away(const struct tc_journal_entry *head, const struct tc_staging *staging,
                           bool sync) {
    ino_t now;
    if (!find_inode(staging->folder, head->name, &now))
        return false;
    if (now != head->inode || staging->new_fd < 0)
        return true;
    return !tc_publish_step() &&
           renameat(staging->folder, head->name, staging->new_fd, head->name) == 0 &&
           sync_folder(staging, sync);
}

bool tc_journal_undo(const struct tc_journal *journal, const struct tc_staging *staging,
                     bool sync) {
    const struct tc_journal_entry *head = tc_journal_head(journal);
    bool foreign = false;
    bool ok = !head || take_head_away(head, staging, sync);
    if (!ok)
        return false;
    for (size_t i = journal->count; i-- > 0;)
        if (journal->entries[i].kind != TC_JOURNAL_HEAD)
            ok = undo_entry(journal, &journal->entries[i], staging, &foreign) && ok;
    ok = ok && sync_folder(staging, sync);
    if (ok && head && !foreign)
        ok = undo_entry(journal, head, staging, &foreign);
    return ok && sync_folder(staging, sync);
}
