/*
 * The only code that prints for people: errors, warnings, the ledger,
 * progress; and JSON for programs. Whatever came from a file or an argument
 * is escaped on the way out.
 */
#ifndef TCONV_CMD_REPORT_H
#define TCONV_CMD_REPORT_H

#include <time.h>

#include "core/plan.h"

/* `json`: also as an object on standard output. Returns the exit code. */
int report_error(const struct tc_error *error, bool json);
void report_warnings(const struct tc_reader *reader);
/* What else is wrong with a plan that failed, before the error itself. */
void report_problems(const struct tc_plan *plan);
/* One line for each kind of change or loss. */
void report_ledger(const struct tc_plan *plan, bool verbose);
/* "1.5 GiB" */
void report_size(struct tc_buffer *buffer, uint64_t bytes);

/* Writes the buffer to standard output and empties it. */
void report_out(struct tc_buffer *buffer);
/* Whether everything reached standard output; fills the error if not. */
bool report_flush(struct tc_error *error);
/* Characters a line of standard output has: the terminal's, or 80. */
size_t report_width(void);

/* A bar on a terminal, for work that takes over a second. */
struct report_progress {
    bool enabled;
    bool shown;
    struct timespec started;
    struct timespec last;
};
void report_progress_start(struct report_progress *progress, bool quiet);
void report_progress_step(void *progress, uint64_t done, uint64_t total);
void report_progress_end(struct report_progress *progress);

#endif
