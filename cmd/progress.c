/* Progress of long work, for people and for programs. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/io/signals.h"

const char *const report_progress_modes[] = {"auto", "bar", "json", "none", NULL};

/* Checked before any file is opened: a number that is free now could become
 * that of an output. */
bool report_progress_check(const struct report_progress_options *options, struct tc_error *error) {
    return !options->fd || options->mode == PROGRESS_JSON ||
           tc_fail(error, TC_USAGE, "usage", "--progress-fd goes with --progress=json");
}

double report_seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

void report_progress_start(struct report_progress *progress,
                           const struct report_progress_options *options, bool quiet) {
    *progress =
        (struct report_progress){.mode = options ? options->mode : PROGRESS_AUTO,
                                 .fd = options && options->fd ? options->fd : STDERR_FILENO};
    if (progress->mode == PROGRESS_AUTO)
        progress->mode = !quiet && isatty(STDERR_FILENO) ? PROGRESS_BAR : PROGRESS_NONE;
    clock_gettime(CLOCK_MONOTONIC, &progress->started);
    progress->last = progress->started;
}

/* A reader that goes away ends the reports and not the work. */
static void write_line(struct report_progress *progress, struct tc_buffer *line) {
    if (line->bytes && !tc_write_quietly(progress->fd, line->bytes, line->length))
        progress->mode = PROGRESS_NONE;
    tc_buffer_release(line);
}

/* `ok` is NULL while the work goes on. */
static void print_event(struct report_progress *progress, const bool *ok, double elapsed) {
    struct tc_buffer line = {0};
    struct tc_json_writer json = {.out = &line, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "event", ok ? "done" : "progress");
    if (ok)
        tc_json_add_boolean(&json, "ok", *ok);
    tc_json_add_number(&json, "done", progress->done);
    tc_json_add_number(&json, "total", progress->total);
    tc_json_addf(&json, "rate", "%.0f", elapsed > 0 ? (double)progress->done / elapsed : 0);
    tc_json_addf(&json, "seconds", "%.3f", elapsed);
    tc_json_end_line(&json);
    write_line(progress, &line);
}

static void print_bar(const struct report_progress *progress, double elapsed) {
    double share = progress->total ? (double)progress->done / (double)progress->total : 1;
    double rate = (double)progress->done / elapsed;
    double left = rate > 0 ? (double)(progress->total - progress->done) / rate : 0;
    char bar[31];
    int filled = (int)(share * 30);
    for (int i = 0; i < 30; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[30] = '\0';
    struct tc_buffer line = {0};
    tc_buffer_addf(&line, "\r[%s] %3.0f%%  ", bar, share * 100);
    report_size(&line, progress->done);
    tc_buffer_add_string(&line, " of ");
    report_size(&line, progress->total);
    tc_buffer_add_string(&line, ", ");
    report_size(&line, (uint64_t)rate);
    tc_buffer_addf(&line, "/s, %.0f s left  \033[K", left);
    report_err(&line);
}

void report_progress_step(void *context, uint64_t done, uint64_t total) {
    struct report_progress *progress = context;
    progress->done = done;
    progress->total = total;
    if (progress->mode == PROGRESS_NONE)
        return;
    double elapsed = report_seconds_since(&progress->started);
    bool due = progress->shown ? report_seconds_since(&progress->last) >= 0.1
                               : progress->mode == PROGRESS_JSON || elapsed >= 1;
    if (!due)
        return;
    clock_gettime(CLOCK_MONOTONIC, &progress->last);
    progress->shown = true;
    if (progress->mode == PROGRESS_JSON)
        print_event(progress, NULL, elapsed);
    else
        print_bar(progress, elapsed);
}

void report_progress_end(struct report_progress *progress, bool ok) {
    struct tc_buffer line = {0};
    if (progress->mode == PROGRESS_JSON)
        print_event(progress, &ok, report_seconds_since(&progress->started));
    else if (progress->mode == PROGRESS_BAR && progress->shown)
        tc_buffer_add_string(&line, "\r\033[K");
    report_err(&line);
    progress->shown = false;
}
