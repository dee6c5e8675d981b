/*
 * Which files a publication changes, written down before the first of them is
 * touched: what a killed process has begun is undone by it. Files are undone the
 * same way where a later one fails.
 *
 * The state of each file is told by where it lies (core/io/staging.h): what is
 * still in `new` was not put in place; what it took the place of is in `old`. The
 * head, which readers open first, goes last, and a marker stands in its place
 * meanwhile: once the head has left `new`, all is done.
 */
#ifndef TCONV_CORE_IO_JOURNAL_H
#define TCONV_CORE_IO_JOURNAL_H

#include <sys/types.h>

#include "core/base/error.h"
#include "core/io/staging.h"

enum tc_journal_kind { TC_JOURNAL_HEAD = 'H', TC_JOURNAL_FILE = 'F', TC_JOURNAL_REMOVAL = 'R' };

struct tc_journal_entry {
    enum tc_journal_kind kind;
    char *name;     /* in the output's folder; the journal's own */
    ino_t inode;    /* of the new file */
    ino_t replaced; /* of the one that had its name before; 0: there was none */
};

struct tc_journal {
    struct tc_journal_entry *entries;
    size_t count;
    size_t capacity;
    ino_t marker; /* 0: there is none */
};

/* Copies the entry and its name. */
bool tc_journal_add(struct tc_journal *journal, const struct tc_journal_entry *entry,
                    struct tc_error *error);
/* Writes it into the staging folder, whole or not at all. */
bool tc_journal_write(const struct tc_journal *journal, const struct tc_staging *staging, bool sync,
                      struct tc_error *error);
/* False where there is none that is whole: then nothing was touched. */
bool tc_journal_read(struct tc_journal *journal, const struct tc_staging *staging);
/* The head's entry; NULL where there is none. */
const struct tc_journal_entry *tc_journal_head(const struct tc_journal *journal);
/* Puts back what was there before. Files that somebody else has replaced since
 * stay, and then the marker does, too. False where that failed. */
bool tc_journal_undo(const struct tc_journal *journal, const struct tc_staging *staging, bool sync);
void tc_journal_release(struct tc_journal *journal);

#endif
