/*
 * The journal: which files a publication changes, written before the first of
 * them is touched, so that the next run can undo what a killed process has begun.
 * Where putting a file in place fails, the files before it are undone the same
 * way.
 *
 * Where a file is says how far it got (core/io/staging.h): a file still in `new`
 * was not put in place, and `old` has the file that it replaced. The head, which
 * readers open first, is put in place last, and a marker has its name meanwhile:
 * once the head has left `new`, the publication is complete.
 */
#ifndef TCONV_CORE_IO_JOURNAL_H
#define TCONV_CORE_IO_JOURNAL_H

#include <sys/types.h>

#include "core/base/error.h"
#include "core/io/staging.h"

enum tc_journal_kind { TC_JOURNAL_HEAD = 'H', TC_JOURNAL_FILE = 'F', TC_JOURNAL_REMOVAL = 'R' };

struct tc_journal_entry {
    enum tc_journal_kind kind;
    char *name;     /* in the output's folder; owned by the journal */
    ino_t inode;    /* of the new file */
    ino_t replaced; /* the inode of the file that had the name before; 0: none */
};

struct tc_journal {
    struct tc_journal_entry *entries;
    size_t count;
    size_t capacity;
    ino_t marker; /* its inode; 0: there is none */
};

/* Copies the entry and its name. */
bool tc_journal_add(struct tc_journal *journal, const struct tc_journal_entry *entry,
                    struct tc_error *error);
/* Writes it into the staging folder, whole or not at all. */
bool tc_journal_write(const struct tc_journal *journal, const struct tc_staging *staging, bool sync,
                      struct tc_error *error);
/* False where there is no complete journal: then no file was touched. *failed where one is there
 * that can't be read now: then nothing is known. */
bool tc_journal_read(struct tc_journal *journal, const struct tc_staging *staging, bool *failed);
/* The head's entry; NULL where there is none. */
const struct tc_journal_entry *tc_journal_head(const struct tc_journal *journal);
/* Puts the old files back. Files that somebody else has replaced since stay, and
 * then the marker stays, too. False where a system call failed. */
bool tc_journal_undo(const struct tc_journal *journal, const struct tc_staging *staging, bool sync);
void tc_journal_release(struct tc_journal *journal);

#endif
