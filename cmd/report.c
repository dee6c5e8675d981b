#include "cmd/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void emit(struct tc_buffer *buffer, FILE *stream) {
    if (buffer->bytes)
        fwrite(buffer->bytes, 1, buffer->length, stream);
    tc_buffer_release(buffer);
}

static void error_json(const struct tc_error *error) {
    struct tc_buffer line = {0};
    tc_buffer_addf(&line, "{\"error\":{\"class\":\"%s\",\"code\":\"%s\",\"file\":",
                   tc_class_name(error->class), error->code ? error->code : "error");
    if (error->file[0])
        tc_buffer_add_json(&line, tc_text_of(error->file), TC_ESCAPE_DISPLAY);
    else
        tc_buffer_add_string(&line, "null");
    tc_buffer_add_string(&line, ",\"tensor\":");
    if (error->has_tensor)
        tc_buffer_add_json(&line, tc_text_of(error->tensor), TC_ESCAPE_DISPLAY);
    else
        tc_buffer_add_string(&line, "null");
    if (error->has_offset)
        tc_buffer_addf(&line, ",\"offset\":%" PRIu64, error->offset);
    else
        tc_buffer_add_string(&line, ",\"offset\":null");
    tc_buffer_add_string(&line, ",\"message\":");
    tc_buffer_add_json(&line, tc_text_of(error->message), TC_ESCAPE_DISPLAY);
    tc_buffer_add_string(&line, "}}\n");
    emit(&line, stdout);
}

int report_error(const struct tc_error *error, bool json) {
    struct tc_buffer line = {0};
    fflush(stdout);
    tc_buffer_add_string(&line, "tconv: error: ");
    if (error->file[0]) {
        tc_buffer_add_visible(&line, tc_text_of(error->file));
        tc_buffer_add_string(&line, ": ");
    }
    if (error->has_tensor) {
        tc_buffer_add_string(&line, "tensor \"");
        size_t length = strlen(error->tensor);
        bool cut = length > 256;
        tc_buffer_add_visible(&line, (struct tc_text){error->tensor, cut ? 256 : length});
        tc_buffer_add_string(&line, cut ? "…\"" : "\"");
    }
    if (error->has_offset)
        tc_buffer_addf(&line, error->has_tensor ? " at 0x%" PRIx64 : "at 0x%" PRIx64,
                       error->offset);
    if (error->has_tensor || error->has_offset)
        tc_buffer_add_string(&line, ": ");
    tc_buffer_add_visible(&line, tc_text_of(error->message));
    tc_buffer_add_string(&line, "\n");
    if (error->hint[0]) {
        tc_buffer_add_string(&line, "hint: ");
        tc_buffer_add_visible(&line, tc_text_of(error->hint));
        tc_buffer_add_string(&line, "\n");
    }
    emit(&line, stderr);
    if (json)
        error_json(error);
    return (int)error->class;
}

static void warn_line(const struct tc_reader *reader, const char *before, struct tc_text text) {
    struct tc_buffer line = {0};
    tc_buffer_add_string(&line, "tconv: warning: ");
    tc_buffer_add_visible(&line, tc_text_of(reader->input->path));
    tc_buffer_addf(&line, ": %s", before);
    tc_buffer_add_visible(&line, text);
    tc_buffer_add_string(&line, "\n");
    emit(&line, stderr);
}

#define MOST_WARNINGS 20

static void warn_lines(const struct tc_reader *reader, const struct tc_buffer *lines) {
    const char *at = lines->bytes;
    struct tc_text line;
    size_t count = 0;
    for (; tc_text_line(&at, &line); count++)
        if (count < MOST_WARNINGS)
            warn_line(reader, "", line);
    if (count > MOST_WARNINGS) {
        char more[64];
        snprintf(more, sizeof more, "and %zu warnings more", count - MOST_WARNINGS);
        warn_line(reader, "", tc_text_of(more));
    }
}

void report_warnings(const struct tc_reader *reader) {
    warn_lines(reader, &reader->warnings);
    warn_lines(reader, &reader->losses);
    if (reader->skipped.length)
        warn_line(reader, "not a tensor, left out: ",
                  (struct tc_text){reader->skipped.bytes, reader->skipped.length});
}

void report_problems(const struct tc_plan *plan) {
    struct tc_buffer out = {0};
    const char *at = plan->problems.bytes;
    struct tc_text line;
    size_t shown = 0;
    for (; tc_text_line(&at, &line); shown++) {
        tc_buffer_add_string(&out, "tconv: also: ");
        tc_buffer_add_visible(&out, line);
        tc_buffer_add_string(&out, "\n");
    }
    if (plan->problem_count > shown)
        tc_buffer_addf(&out, "tconv: also: %zu tensors more\n", plan->problem_count - shown);
    emit(&out, stderr);
}

/* What happens every time, or was said before, is told only when asked. */
static bool is_routine(const char *kind) {
    return strcmp(kind, "order") == 0 || strcmp(kind, "member") == 0 || strcmp(kind, "input") == 0;
}

/* What lossy casts did, over all tensors, and to which one most. */
static void report_errors(const struct tc_plan *plan) {
    struct tc_cast_report sum = {0};
    const struct tc_item *worst = NULL;
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_cast_report *report = plan->items[i].report;
        if (!report || !plan->items[i].lossy || plan->items[i].tied)
            continue;
        sum.inexact += report->inexact;
        sum.overflow += report->overflow;
        sum.underflow += report->underflow;
        sum.nan_made += report->nan_made;
        if (!worst || report->max_rel > worst->report->max_rel)
            worst = &plan->items[i];
    }
    if (!worst)
        return;
    struct tc_buffer line = {0};
    tc_buffer_addf(&line,
                   "tconv: warning: values: %" PRIu64 " changed, %" PRIu64 " overflowed, %" PRIu64
                   " became zero, %" PRIu64 " became NaN; largest error %.3g (relative %.3g) in \"",
                   sum.inexact, sum.overflow, sum.underflow, sum.nan_made, worst->report->max_abs,
                   worst->report->max_rel);
    tc_buffer_add_visible(&line, worst->name);
    tc_buffer_add_string(&line, "\"\n");
    emit(&line, stderr);
}

void report_ledger(const struct tc_plan *plan, bool verbose) {
    /* Kinds are few, so each is looked for from its first entry: the details'
     * order is that of their first entries. */
    for (size_t d = 0; d < plan->detail_count; d++) {
        size_t first = 0;
        size_t count = 0;
        for (size_t i = plan->entry_count; i > 0; i--)
            if (plan->entries[i - 1].detail == plan->details[d]) {
                first = i - 1;
                count++;
            }
        const struct tc_entry *entry = &plan->entries[first];
        if (count == 0 || (is_routine(entry->kind) && !verbose))
            continue;
        struct tc_buffer line = {0};
        tc_buffer_addf(&line, "tconv: %s: %s: ", entry->severity == TC_LOSS ? "warning" : "note",
                       entry->kind);
        tc_buffer_add_visible(&line, tc_text_of(entry->detail));
        const char *unit = entry->tensor.bytes ? "tensor" : "key";
        if (count > 1 || entry->tensor.bytes)
            tc_buffer_addf(&line, " (%zu %s%s)", count, unit, count == 1 ? "" : "s");
        tc_buffer_add_string(&line, "\n");
        emit(&line, stderr);
    }
    report_errors(plan);
}

void report_size(struct tc_buffer *buffer, uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)bytes;
    size_t unit = 0;
    if (bytes < 1024) {
        tc_buffer_add_number(buffer, bytes);
        tc_buffer_add_string(buffer, " B");
        return;
    }
    while (size >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        size /= 1024;
        unit++;
    }
    tc_buffer_addf(buffer, "%.1f %s", size, units[unit]);
}

void report_out(struct tc_buffer *buffer) {
    emit(buffer, stdout);
}

void report_show(struct tc_buffer *buffer) {
    emit(buffer, stderr);
    fflush(stderr);
}

bool report_flush(struct tc_error *error) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    return tc_fail_errno(error, errno ? errno : EIO, "stdout", "cannot write to standard output");
}

size_t report_width(void) {
    struct winsize size;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        return size.ws_col;
    return 80;
}
