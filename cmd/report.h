/*
 * The only code that prints for people: errors, warnings, the ledger,
 * progress; and JSON for programs. Whatever came from a file or an argument
 * is escaped on the way out.
 */
#ifndef TCONV_CMD_REPORT_H
#define TCONV_CMD_REPORT_H

#include <time.h>

#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"

/* `json`: also as an object on standard output. Returns the exit code. */
int report_error(const struct tc_error *error, bool json);
/* Adds the error as the member "error" of an object. */
void report_add_error(struct tc_json_writer *json, const struct tc_error *error);
/* Warnings about what was asked for. */
void report_notes(const struct tc_notes *notes);
/* Prints a reader's warnings and losses, a line for each kind; with `quiet` only
 * those of members that were left out. */
void report_warnings(const struct tc_reader *reader, bool quiet, bool verbose);
/* Adds an array of {"name","reason"} where the reader left members out, else
 * nothing; those that are too many to list are {"count","reason"}. With a second
 * reader, which may be NULL, each also has "file". */
void report_skipped(struct tc_json_writer *json, const char *key, const struct tc_reader *reader,
                    const struct tc_reader *other);
/* Prints the other problems of a plan that failed; the error itself follows. */
void report_problems(const struct tc_plan *plan);
/* Prints one line for each kind of change or loss. */
void report_ledger(const struct tc_plan *plan, bool verbose);
/* Adds "1.5 GiB". */
void report_size(struct tc_buffer *buffer, uint64_t bytes);

/* Writes the buffer to standard output and empties it. */
void report_out(struct tc_buffer *buffer);
/* Writes the buffer to standard error and empties it. */
void report_err(struct tc_buffer *buffer);
/* Whether everything reached standard output; fills the error if not. */
bool report_flush(struct tc_error *error);
/* Characters a line of standard output has: the terminal's, or 80. */
size_t report_width(void);

/*
 * Progress. Auto: a bar on a terminal, for work that takes over a second, and
 * never under -q; bar: the same wherever standard error goes; json: lines
 *     {"event":"progress","done":N,"total":N,"rate":BYTES_PER_SECOND,"seconds":S}
 * a few times a second, and {"event":"done","ok":BOOL,…} at the end.
 */
enum report_progress_mode { PROGRESS_AUTO, PROGRESS_BAR, PROGRESS_JSON, PROGRESS_NONE };
extern const char *const report_progress_modes[];

struct report_progress_options {
    enum report_progress_mode mode;
    int fd; /* for json; 0: standard error */
};
bool report_progress_check(const struct report_progress_options *options, struct tc_error *error);

struct report_progress {
    enum report_progress_mode mode; /* bar, json or none */
    int fd;
    bool shown;
    uint64_t done;
    uint64_t total;
    struct timespec started;
    struct timespec last;
};
double report_seconds_since(const struct timespec *start);
/* Options NULL: auto. */
void report_progress_start(struct report_progress *progress,
                           const struct report_progress_options *options, bool quiet);
void report_progress_step(void *progress, uint64_t done, uint64_t total);
void report_progress_end(struct report_progress *progress, bool ok);

#endif
