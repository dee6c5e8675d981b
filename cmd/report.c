#include "cmd/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/memory.h"
#include "core/remote/address.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/table.h"

/* Whether a part of the results could not be printed, for lack of memory. */
static bool incomplete;

static void emit(struct tc_buffer *buffer, FILE *stream) {
    if (buffer->bytes)
        fwrite(buffer->bytes, 1, buffer->length, stream);
    if (buffer->failed && stream == stdout)
        incomplete = true;
    else if (buffer->failed)
        fprintf(stream, "%stconv: warning: out of memory: something could not be told\n",
                buffer->length ? "\n" : "");
    tc_buffer_release(buffer);
}

void report_add_error(struct tc_json_writer *json, const struct tc_error *error) {
    tc_json_open_object(json, "error");
    tc_json_add_string(json, "class", tc_class_name(error->class));
    tc_json_add_string(json, "code", error->code ? error->code : "error");
    if (error->file[0])
        tc_json_add_string(json, "file", error->file);
    else
        tc_json_add_null(json, "file");
    if (error->has_tensor)
        tc_json_add_string(json, "tensor", error->tensor);
    else
        tc_json_add_null(json, "tensor");
    if (error->has_offset)
        tc_json_add_number(json, "offset", error->offset);
    else
        tc_json_add_null(json, "offset");
    tc_json_add_string(json, "message", error->message);
    tc_json_close(json);
}

static void error_json(const struct tc_error *error, struct tc_buffer line) {
    struct tc_json_writer json = {.out = &line, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    report_add_error(&json, error);
    tc_json_end_line(&json);
    emit(&line, stdout);
}

#ifdef TCONV_TEST_HOOKS
/* In test builds TCONV_TEST_CODES=FILE appends the error's code to a file: the text
 * on standard error does not show it. */
static void record_code(const struct tc_error *error) {
    const char *path = getenv("TCONV_TEST_CODES");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file)
        return;
    fprintf(file, "%s\n", error->code ? error->code : "error");
    fclose(file);
}
#endif

/* Where memory was lacking, a caller may have gone on without it, and other errors may only be
 * what came of that. */
static void lack_of_memory(const struct tc_error *error, struct tc_error *lack) {
    *lack = *error;
    if (error->class == TC_IO || tc_memory_refused() || !tc_memory_lacked())
        return;
    *lack = (struct tc_error){0};
    tc_fail_memory(lack);
    tc_error_in_file(lack, error->file);
}

int report_error(const struct tc_error *reported, bool json) {
    /* An error is told without taking memory. Names grow up to six times when they are escaped. */
    static char storage[1 << 16];
    struct tc_buffer line = {.bytes = storage, .capacity = sizeof storage, .fixed = true};
    struct tc_error told;
    const struct tc_error *error = &told;
    lack_of_memory(reported, &told);
    tc_address_redact(told.file);
#ifdef TCONV_TEST_HOOKS
    record_code(error);
#endif
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
        error_json(error,
                   (struct tc_buffer){.bytes = storage, .capacity = sizeof storage, .fixed = true});
    return (int)error->class;
}

#define MOST_LINES 20u
#define MOST_NAMES 5u

/* When notes of each kind are printed, and how. */
static const struct note_rule {
    bool always;       /* with -q too: data is missing that the user may count on */
    bool routine;      /* of every conversion, or printed before: only with -v */
    bool without_kind; /* a reader's warning does not name the kind */
} note_rules[TC_KINDS] = {
    [TC_KIND_INPUT] = {.routine = true, .without_kind = true},
    [TC_KIND_SKIPPED] = {.always = true, .routine = true},
    [TC_KIND_MEMBER] = {.routine = true, .without_kind = true},
    [TC_KIND_ORDER] = {.routine = true},
    [TC_KIND_KEPT] = {.routine = true},
};

/* DETAIL: "a", "b" and 3 more; without names DETAIL (3 times). */
static void add_group(struct tc_buffer *line, const struct tc_note_group *group, bool verbose) {
    size_t shown = verbose || group->name_count < MOST_NAMES ? group->name_count : MOST_NAMES;
    tc_buffer_add_visible(line, tc_text_of(group->detail));
    for (size_t i = 0; i < shown; i++) {
        tc_buffer_add_string(line, i ? ", \"" : ": \"");
        tc_buffer_add_visible(line, group->names[i]);
        tc_buffer_add_string(line, "\"");
    }
    if (shown && group->count > shown)
        tc_buffer_addf(line, " and %zu more", group->count - shown);
    else if (!shown && group->count > 1)
        tc_buffer_addf(line, " (%zu times)", group->count);
    tc_buffer_add_string(line, "\n");
}

/* The first groups of a severity, a line each, and how many notes there are
 * beside them; those that are told always are all told. */
static void report_groups(const struct tc_reader *reader, enum tc_severity severity, bool quiet,
                          bool verbose) {
    const struct tc_notes *notes = &reader->notes;
    struct tc_buffer out = {0};
    size_t shown = 0;
    size_t left = 0;
    for (size_t i = 0; i < notes->count; i++) {
        const struct tc_note_group *group = &notes->groups[i];
        struct note_rule rule = note_rules[group->kind];
        if (group->severity != severity || (quiet && !rule.always))
            continue;
        if (shown++ >= MOST_LINES && !verbose) {
            left += group->count;
            continue;
        }
        tc_buffer_add_string(&out, "tconv: warning: ");
        tc_buffer_add_visible(&out, tc_text_of(reader->input->path));
        tc_buffer_addf(&out, ": %s%s", rule.without_kind ? "" : tc_kind_name(group->kind),
                       rule.without_kind ? "" : ": ");
        add_group(&out, group, verbose);
    }
    if (left) {
        tc_buffer_add_string(&out, "tconv: warning: ");
        tc_buffer_add_visible(&out, tc_text_of(reader->input->path));
        tc_buffer_addf(&out, ": and %zu of other kinds; -v tells them\n", left);
    }
    emit(&out, stderr);
}

void report_warnings(const struct tc_reader *reader, bool quiet, bool verbose) {
    report_groups(reader, TC_WARNING, quiet, verbose);
    report_groups(reader, TC_LOSS, quiet, verbose);
}

/* A member that was left out, or where `name` is NULL the count of those that are
 * not listed. */
static void add_skipped(struct tc_json_writer *json, const char *file, const struct tc_text *name,
                        const struct tc_note_group *group) {
    tc_json_open_object(json, NULL);
    if (file)
        tc_json_add_string(json, "file", file);
    if (name)
        tc_json_add_text(json, "name", *name);
    else
        tc_json_add_number(json, "count", group->count - group->name_count);
    tc_json_add_string(json, "reason", group->detail);
    tc_json_close(json);
}

void report_skipped(struct tc_json_writer *json, const char *key, const struct tc_reader *reader,
                    const struct tc_reader *other) {
    bool any = false;
    for (const struct tc_reader *each = reader; each; each = each == other ? NULL : other) {
        const char *file = other ? each->input->path : NULL;
        for (size_t i = 0; i < each->notes.count; i++) {
            const struct tc_note_group *group = &each->notes.groups[i];
            if (group->severity != TC_LOSS || group->kind != TC_KIND_SKIPPED)
                continue;
            if (!any)
                tc_json_open_array(json, key);
            any = true;
            for (size_t n = 0; n < group->name_count + (group->count > group->name_count); n++)
                add_skipped(json, file, n < group->name_count ? &group->names[n] : NULL, group);
        }
    }
    if (any)
        tc_json_close(json);
}

static void report_note(const struct tc_note_group *group, bool verbose) {
    struct tc_buffer line = {0};
    tc_buffer_addf(&line, "tconv: warning: %s: ", tc_kind_name(group->kind));
    add_group(&line, group, verbose);
    emit(&line, stderr);
}

void report_notes(const struct tc_notes *notes) {
    for (size_t i = 0; i < notes->count; i++)
        report_note(&notes->groups[i], false);
}

void report_problems(const struct tc_plan *plan) {
    struct tc_buffer out = {0};
    size_t left = 0;
    for (size_t i = 0; i < plan->problems.count; i++) {
        if (i >= MOST_LINES) {
            left += plan->problems.groups[i].count;
            continue;
        }
        tc_buffer_add_string(&out, "tconv: also: ");
        add_group(&out, &plan->problems.groups[i], false);
    }
    if (left)
        tc_buffer_addf(&out, "tconv: also: %zu tensors more\n", left);
    emit(&out, stderr);
}

/* Prints what lossy casts changed in all tensors, and where the largest error is. */
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

/* Whether a loss was not printed when the inputs were opened: values that a checkpoint tree would
 * have held. */
static bool is_of_trees(const struct tc_plan *plan, const struct tc_note_group *group) {
    bool found = false;
    for (size_t r = 0; r < plan->reader_count && !found; r++)
        found = tc_notes_tell(&plan->readers[r]->tree_notes, group->severity, group->detail) &&
                !tc_notes_tell(&plan->readers[r]->notes, group->severity, group->detail);
    return found && group->kind == TC_KIND_SKIPPED;
}

/* Whether a loss of metadata was printed when the inputs were opened, with its keys. */
static bool was_told(const struct tc_plan *plan, const struct tc_note_group *group) {
    bool found = false;
    for (size_t r = 0; r < plan->reader_count && !found; r++)
        found = tc_notes_tell(&plan->readers[r]->notes, TC_LOSS, group->detail);
    return found && group->kind == TC_KIND_METADATA && group->severity == TC_LOSS;
}

/* What a note's names are names of: notes on metadata concern its keys, or tensors that have some.
 */
static const char *noun_of(const struct tc_plan *plan, const struct tc_note_group *group) {
    if (!group->name_count)
        return "key";
    for (size_t r = 0; r < plan->reader_count && group->kind == TC_KIND_METADATA; r++)
        if (tc_table_find(&plan->readers[r]->table, group->names[0]))
            return "tensor";
    for (size_t i = 0; i < plan->count && group->kind == TC_KIND_METADATA; i++)
        if (tc_text_equal(plan->items[i].name, group->names[0]))
            return "tensor";
    return group->kind == TC_KIND_METADATA ? "key" : "tensor";
}

void report_ledger(const struct tc_plan *plan, bool verbose) {
    for (size_t i = 0; i < plan->notes.count; i++) {
        const struct tc_note_group *group = &plan->notes.groups[i];
        bool of_trees = is_of_trees(plan, group);
        bool told = of_trees || (group->severity == TC_WARNING && group->kind != TC_KIND_KEPT);
        if ((note_rules[group->kind].routine && !told && !verbose) || was_told(plan, group))
            continue;
        if (group->severity == TC_WARNING || of_trees) {
            report_note(group, verbose);
            continue;
        }
        struct tc_buffer line = {0};
        tc_buffer_addf(&line, "tconv: %s: %s: ", group->severity == TC_CHANGE ? "note" : "warning",
                       tc_kind_name(group->kind));
        tc_buffer_add_visible(&line, tc_text_of(group->detail));
        if (group->count > 1 || group->name_count)
            tc_buffer_addf(&line, " (%zu %s%s)", group->count, noun_of(plan, group),
                           group->count == 1 ? "" : "s");
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

void report_err(struct tc_buffer *buffer) {
    emit(buffer, stderr);
    fflush(stderr);
}

bool report_flush(struct tc_error *error) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout) && !incomplete)
        return true;
    if (incomplete)
        errno = ENOMEM;
    return tc_fail_errno(error, errno ? errno : EIO, "stdout", "cannot write to standard output");
}

size_t report_width(void) {
    struct winsize size;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        return size.ws_col;
    return 80;
}
