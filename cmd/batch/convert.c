/* Carries out a batch: which models are to be done, what is printed of each, and what
 * becomes of the sources. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/batch/batch.h"
#include "cmd/batch/child.h"
#include "cmd/batch/list.h"
#include "cmd/batch/log.h"
#include "cmd/batch/makes_way.h"
#include "cmd/batch/run.h"
#include "cmd/common.h"
#include "cmd/report.h"
#include "cmd/run_conversion.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/io/publish.h"

enum status { STATUS_DONE, STATUS_SKIPPED, STATUS_FAILED, STATUSES };
static const char *const status_names[] = {"done", "skipped", "failed"};

static const char *const reasons[] = {[CONVERSION_WRITTEN] = "",
                                      [CONVERSION_PLANNED] = "",
                                      [CONVERSION_EXISTS] = "exists",
                                      [CONVERSION_UP_TO_DATE] = "up-to-date",
                                      [CONVERSION_UNCHANGED] = "unchanged"};

struct work {
    struct batch *batch;
    size_t next;
    struct batch_words *words; /* by model, while its process runs */
    uint64_t *moved;           /* by model: bytes of its size that are done */
    bool *lacks;               /* by model: folders were made for an output that did not come */
    char *existing;            /* the folder that was there before DST was made */
    char *recovered;           /* the folder that was last cleaned up */
    struct report_progress progress;
    uint64_t total; /* bytes of all sources */
    uint64_t done;
    size_t counts[STATUSES];
    uint64_t bytes_in;
    uint64_t bytes_out;
    int code;
    bool stopped; /* --fail-fast */
    struct timespec started;
};

/* What is printed of a model. */
struct outcome {
    enum status status;
    const char *reason; /* why it was skipped; NULL: none */
    uint64_t bytes_in;
    uint64_t bytes_out;
    double seconds;
    struct tc_text digest;  /* no bytes: not known */
    struct tc_text changes; /* JSON arrays; no bytes: not known */
    struct tc_text losses;
    const struct tc_error *error;
    const struct tc_buffer *messages;
};

static void hide_bar(struct work *work) {
    if (work->progress.mode == PROGRESS_BAR && work->progress.shown) {
        struct tc_buffer clear = {0};
        tc_buffer_add_string(&clear, "\r\033[K");
        report_err(&clear);
        work->progress.shown = false;
    }
}

static void print_json(const struct work *work, const struct batch_model *model,
                       const struct outcome *outcome) {
    struct tc_buffer line = {0};
    struct tc_json_writer json = {.out = &line, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "input", model->input);
    tc_json_add_string(&json, "output", model->output);
    tc_json_add_string(&json, "status", status_names[outcome->status]);
    if (work->batch->convert.run.dry_run)
        tc_json_add_boolean(&json, "dry_run", true);
    if (outcome->reason)
        tc_json_add_string(&json, "reason", outcome->reason);
    tc_json_add_number(&json, "bytes_in", outcome->bytes_in);
    tc_json_add_number(&json, "bytes_out", outcome->bytes_out);
    tc_json_addf(&json, "seconds", "%.3f", outcome->seconds);
    if (outcome->digest.length)
        tc_json_add_text(&json, "digest", outcome->digest);
    if (outcome->changes.length)
        tc_json_add_raw(&json, "changes", outcome->changes);
    if (outcome->losses.length)
        tc_json_add_raw(&json, "losses", outcome->losses);
    if (outcome->error)
        report_add_error(&json, outcome->error);
    tc_json_end_line(&json);
    report_out(&line);
}

static void print_text(const struct work *work, const struct batch_model *model,
                       const struct outcome *outcome) {
    static const char *const words[] = {"done", "skipped", "failed"};
    bool dry = work->batch->convert.run.dry_run && outcome->status == STATUS_DONE;
    struct tc_buffer line = {0};
    tc_buffer_addf(&line, "%-8s ", dry ? "would do" : words[outcome->status]);
    tc_buffer_add_visible(&line, tc_text_of(model->input));
    tc_buffer_add_string(&line, " -> ");
    tc_buffer_add_visible(&line, tc_text_of(model->output));
    if (outcome->status == STATUS_DONE) {
        tc_buffer_add_string(&line, "  ");
        report_size(&line, outcome->bytes_out);
        tc_buffer_addf(&line, ", %.2f s", outcome->seconds);
    } else if (outcome->reason) {
        tc_buffer_addf(&line, "  (%s)", outcome->reason);
    }
    tc_buffer_add_string(&line, "\n");
    report_out(&line);
}

/* Whether a message begins with the model's name, as it is shown, or with a path in it. */
static bool names_model(struct tc_text text, struct tc_text model) {
    return tc_text_starts(text, model) && text.length > model.length &&
           (text.bytes[model.length] == ':' || text.bytes[model.length] == '/');
}

/* What a process printed, with the model's name behind "tconv: warning: ". */
static void print_messages(const struct batch_model *model, const struct tc_buffer *messages) {
    static const char *const starts[] = {"tconv: warning: ", "tconv: note: "};
    struct tc_buffer shown = {0};
    size_t at = 0;
    char *trimmed = tc_path_trim(model->input);
    tc_buffer_add_visible(&shown, tc_text_of(trimmed ? trimmed : model->input));
    free(trimmed);
    struct tc_text name = {shown.bytes, shown.length};
    while (messages && at < messages->length) {
        const char *line = messages->bytes + at;
        const char *stop = memchr(line, '\n', messages->length - at);
        struct tc_text text = {line, stop ? (size_t)(stop - line) : messages->length - at};
        struct tc_buffer out = {0};
        at += text.length + 1;
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
            if (tc_text_starts(text, tc_text_of(starts[i]))) {
                tc_buffer_add_string(&out, starts[i]);
                text.bytes += strlen(starts[i]);
                text.length -= strlen(starts[i]);
                if (!names_model(text, name)) {
                    tc_buffer_add_text(&out, name);
                    tc_buffer_add_string(&out, ": ");
                }
                break;
            }
        tc_buffer_add_visible(&out, text);
        tc_buffer_add_string(&out, "\n");
        report_err(&out);
    }
    tc_buffer_release(&shown);
}

static void report(struct work *work, size_t number, const struct outcome *outcome) {
    const struct batch_model *model = &work->batch->list.models[number];
    const struct common *common = &work->batch->convert.common;
    hide_bar(work);
    work->counts[outcome->status]++;
    work->bytes_in += outcome->bytes_in;
    work->bytes_out += outcome->bytes_out;
    work->done += model->size - work->moved[number];
    work->moved[number] = model->size;
    print_messages(model, outcome->messages);
    if (outcome->error) {
        int code = report_error(outcome->error, false);
        work->code = code > work->code ? code : work->code;
    }
    if (common->json)
        print_json(work, model, outcome);
    else if (!common->quiet || outcome->status == STATUS_FAILED)
        print_text(work, model, outcome);
    fflush(stdout);
    report_progress_step(&work->progress, work->done, work->total);
}

static void report_failure(struct work *work, size_t number, struct tc_error *error, double seconds,
                           const struct tc_buffer *messages) {
    struct outcome outcome = {
        .status = STATUS_FAILED, .seconds = seconds, .error = error, .messages = messages};
    tc_error_in_file(error, work->batch->list.models[number].input);
    report(work, number, &outcome);
    work->stopped |= work->batch->fail_fast;
}

/* Sources that go */

/* Whether a path that a process told is one of the model's own files: itself, a file beside it,
 * or one in it where it is a folder. */
static bool is_own_file(const struct batch_model *model, const char *path) {
    struct stat status;
    const char *name = tc_path_name(path);
    bool folder = stat(model->input, &status) == 0 && S_ISDIR(status.st_mode);
    char *own = folder ? tc_path_trim(model->input) : tc_path_folder(model->input);
    char *its = tc_path_folder(path);
    bool same = own && its && tc_path_is_plain(tc_text_of(name)) &&
                (strcmp(own, its) == 0 || (folder && strcmp(path, model->input) == 0));
    free(own);
    free(its);
    return same;
}

/* Looks whether a file that was read still is the same; false where that can't be found out. */
static bool look_again(const struct batch_file *file, bool *same, struct tc_error *error) {
    struct stat status;
    *same = false;
    if (stat(file->path, &status) != 0) {
        if (tc_path_missing(errno))
            return true;
        tc_fail_errno(error, errno, "read", "cannot find out whether it is what was converted");
        return tc_error_in_file(error, file->path);
    }
    *same = S_ISREG(status.st_mode) && (uint64_t)status.st_dev == file->device &&
            (uint64_t)status.st_ino == file->inode && (uint64_t)status.st_size == file->size &&
            status.st_mtim.tv_sec == file->seconds && status.st_mtim.tv_nsec == file->nanoseconds;
    return true;
}

/* A source that changed meanwhile is not in the log, so that it is done again. */
static bool log_done(struct batch *batch, const struct batch_model *model,
                     const struct batch_report *report, struct tc_error *error) {
    bool same = true;
    for (size_t i = 0; i < report->read_count && same; i++)
        if (!look_again(&report->read[i], &same, error))
            return false;
    return !same || batch_log_add(&batch->log, model, report, error);
}

/* Removes what was read, once all of it is known to be what was converted. */
static bool remove_sources(const struct batch_model *model, const struct batch_report *report,
                           struct tc_error *error) {
    if (report->reads_untold)
        return tc_fail(error, TC_UNSUPPORTED, "rm", "it stays: it has over %u files",
                       BATCH_MAX_FILES);
    for (size_t i = 0; i < report->read_count; i++) {
        const struct batch_file *file = &report->read[i];
        bool same = false;
        if (!look_again(file, &same, error))
            return false;
        if (same && is_own_file(model, file->path))
            continue;
        tc_fail(error, TC_IO, "rm", "it stays: it lies elsewhere, or is not what was converted");
        return tc_error_in_file(error, file->path);
    }
    for (size_t i = 0; i < report->read_count; i++)
        /* A file that is read in two places, as in a checkpoint of ZeRO, is gone by then. */
        if (unlink(report->read[i].path) != 0 && errno != ENOENT) {
            tc_fail_errno(error, errno, "rm", "cannot remove the source");
            return tc_error_in_file(error, report->read[i].path);
        }
    return true;
}

/* Folders of outputs */

/* Makes the folders of a path that are missing. */
static bool make_folders(const char *path, struct tc_error *error) {
    char *folder = tc_path_trim(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    bool ok = folder || tc_fail_memory(error);
    if (slash && slash != folder) {
        *slash = '\0';
        for (char *at = folder + 1; ok; at++) {
            char here = *at;
            if (here && here != '/')
                continue;
            *at = '\0';
            if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
                tc_fail_errno(error, errno, "output-folder", "cannot make the output's folder");
                ok = tc_error_in_file(error, folder);
            }
            *at = here;
            if (!here)
                break;
        }
    }
    free(folder);
    return ok;
}

/* Removes folders above an output that did not come, as far as they are empty and no others than
 * this batch may have made. Only once no process is left: another may be about to write into them.
 */
static void remove_empty_folders(const struct work *work, const char *output) {
    char *folder = tc_path_trim(output);
    const char *existing = work->existing ? work->existing : work->batch->list.destination;
    char *slash;
    while (folder && (slash = strrchr(folder, '/')) && slash != folder) {
        *slash = '\0';
        if (strcmp(folder, existing) == 0 || rmdir(folder) != 0)
            break;
    }
    free(folder);
}

/* One model after the other */

static void skip(struct work *work, size_t number, const char *reason,
                 const struct batch_log_line *line) {
    struct outcome outcome = {.status = STATUS_SKIPPED, .reason = reason};
    if (line)
        outcome.digest = line->digest;
    report(work, number, &outcome);
}

/* Cleans up after killed runs in the folder of an output that may be passed over: what they have
 * left is no output. Models of one folder follow each other. */
static void recover_beside(struct work *work, const char *output) {
    char *trimmed = tc_path_trim(output);
    char *folder = trimmed ? tc_path_folder(trimmed) : NULL;
    free(trimmed);
    if (folder && work->recovered && strcmp(folder, work->recovered) == 0) {
        free(folder);
        return;
    }
    if (folder)
        tc_publish_recover_folder(folder);
    free(work->recovered);
    work->recovered = folder;
}

/* Whether the folder of a model was made by this batch, which --update and --resume do again: where
 * it has changed since, or a kill came between the folder and its line in the log. One that is
 * something else stays, and is an error of its model, as without them. */
static bool let_folder_go(struct work *work, size_t number, struct tc_error *error) {
    struct batch *batch = work->batch;
    const struct batch_model *model = &batch->list.models[number];
    bool makes_way = false;
    if (!model->folder || batch->list.per_tensor || batch->convert.folder.replace ||
        !batch->log.was_there || !(batch->resume || batch->convert.run.update))
        return true;
    if (!batch_makes_way(model->output, batch->list.target, &makes_way, error))
        return false;
    if (makes_way)
        batch_words_add_option(&work->words[number], "--replace");
    return !work->words[number].failed || tc_fail_memory(error);
}

/* Whether a model needs a process; all others are reported here. */
static bool prepare(struct work *work, size_t number) {
    struct batch *batch = work->batch;
    const struct batch_model *model = &batch->list.models[number];
    struct tc_error error = {0};
    bool dry = batch->convert.run.dry_run;
    if (!dry && (batch->resume || batch->convert.run.skip_existing))
        recover_beside(work, model->output);
    /* With --rm a source that is still there is not done: a kill came before it went, or what is
     * there now was not verified. */
    const struct batch_log_line *line =
        batch->resume && !batch->remove ? batch_log_done(&batch->log, model) : NULL;
    if (work->stopped) {
        skip(work, number, "not begun after a failure", NULL);
        return false;
    }
    if (line) {
        skip(work, number, "done before", line);
        return false;
    }
    if (batch->convert.run.skip_existing && access(model->output, F_OK) == 0) {
        skip(work, number, "exists", NULL);
        return false;
    }
    work->lacks[number] = !dry && !model->problem;
    if (model->problem)
        tc_fail(&error, model->class, "source", "%s", model->problem);
    else if ((dry || make_folders(model->output, &error)) &&
             batch_words_make(&work->words[number], batch, model->input, model->output,
                              model->shards, &error) &&
             let_folder_go(work, number, &error))
        return true;
    report_failure(work, number, &error, 0, NULL);
    return false;
}

static bool next_task(void *context, struct batch_task *task) {
    struct work *work = context;
    const struct batch *batch = work->batch;
    while (work->next < batch->list.count) {
        size_t number = work->next++;
        if (!prepare(work, number))
            continue;
        *task = (struct batch_task){.number = number,
                                    .words = work->words[number].words,
                                    .count = work->words[number].count,
                                    .wants = {.root = batch->list.models[number].root}};
        return true;
    }
    return false;
}

static void task_moved(void *context, const struct batch_task *task,
                       const struct batch_report *told) {
    struct work *work = context;
    uint64_t size = work->batch->list.models[task->number].size;
    uint64_t moved =
        told->total ? (uint64_t)((double)size * ((double)told->done / (double)told->total)) : 0;
    moved = moved > size ? size : moved;
    if (moved > work->moved[task->number]) {
        work->done += moved - work->moved[task->number];
        work->moved[task->number] = moved;
    }
    report_progress_step(&work->progress, work->done, work->total);
}

static void report_success(struct work *work, const struct batch_task *task,
                           const struct batch_result *result) {
    const struct batch_report *told = &result->report;
    bool skipped = told->outcome != CONVERSION_WRITTEN && told->outcome != CONVERSION_PLANNED;
    struct outcome outcome = {.status = skipped ? STATUS_SKIPPED : STATUS_DONE,
                              .reason = skipped ? reasons[told->outcome] : NULL,
                              .bytes_in = skipped ? 0 : told->bytes_in,
                              .bytes_out = skipped ? 0 : told->bytes_out,
                              .seconds = result->seconds,
                              .digest = tc_text_of(told->digest),
                              .changes = {told->changes.bytes, told->changes.length},
                              .losses = {told->losses.bytes, told->losses.length},
                              .messages = &result->messages};
    report(work, task->number, &outcome);
}

static bool task_ended(void *context, const struct batch_task *task,
                       const struct batch_result *result) {
    struct work *work = context;
    struct batch *batch = work->batch;
    const struct batch_model *model = &batch->list.models[task->number];
    const struct batch_report *told = &result->report;
    struct tc_error *error = calloc(1, sizeof *error);
    bool written = told->ended && told->outcome == CONVERSION_WRITTEN;
    bool ok = error != NULL;
    /* Its output may be there all the same, as after a kill of the batch. */
    batch->log.kept |= result->crash.class != TC_OK && access(model->output, F_OK) == 0;
    if (ok && (result->crash.class || told->failed)) {
        *error = result->crash.class ? result->crash : *told->error;
        ok = false;
    }
    ok = ok && (!written || log_done(batch, model, told, error));
    ok = ok && (!batch->remove || !written || remove_sources(model, told, error));
    work->lacks[task->number] = !told->ended;
    if (ok)
        report_success(work, task, result);
    else if (error)
        report_failure(work, task->number, error, result->seconds, &result->messages);
    free(error);
    batch_words_release(&work->words[task->number]);
    /* Those that are left are reported by next_task. */
    return true;
}

static void print_summary(const struct work *work) {
    double seconds = report_seconds_since(&work->started);
    const struct common *common = &work->batch->convert.common;
    struct tc_buffer out = {0};
    if (common->json) {
        struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
        tc_json_open_object(&json, NULL);
        tc_json_open_object(&json, "summary");
        for (size_t i = 0; i < STATUSES; i++)
            tc_json_add_number(&json, status_names[i], work->counts[i]);
        tc_json_add_number(&json, "bytes_in", work->bytes_in);
        tc_json_add_number(&json, "bytes_out", work->bytes_out);
        tc_json_addf(&json, "seconds", "%.3f", seconds);
        tc_json_end_line(&json);
    } else if (!common->quiet) {
        tc_buffer_addf(&out, "%zu done, %zu skipped, %zu failed: ", work->counts[STATUS_DONE],
                       work->counts[STATUS_SKIPPED], work->counts[STATUS_FAILED]);
        report_size(&out, work->bytes_in);
        tc_buffer_add_string(&out, " in, ");
        report_size(&out, work->bytes_out);
        tc_buffer_addf(&out, " out, %.*f s\n", seconds < 10 ? 2 : 0, seconds);
    }
    report_out(&out);
}

static bool begin(struct work *work, struct tc_error *error) {
    struct batch *batch = work->batch;
    const struct batch_list *list = &batch->list;
    char *inside = NULL;
    work->words = calloc(list->count, sizeof *work->words);
    work->moved = calloc(list->count, sizeof *work->moved);
    work->lacks = calloc(list->count, sizeof *work->lacks);
    if (!work->words || !work->moved || !work->lacks)
        return tc_fail_memory(error);
    for (size_t i = 0; i < list->count; i++)
        work->total += list->models[i].size;
    if (list->links && !batch->convert.common.quiet) {
        struct tc_buffer line = {0};
        tc_buffer_addf(&line, "tconv: note: %zu link%s to folders not followed\n", list->links,
                       list->links == 1 ? "" : "s");
        report_err(&line);
    }
    if (batch->convert.run.dry_run)
        return true;
    work->existing = batch_existing_folder(list->destination, error);
    if (!work->existing)
        return false;
    bool ok = asprintf(&inside, "%s/.", list->destination) >= 0 ? make_folders(inside, error)
                                                                : tc_fail_memory(error);
    free(inside);
    return ok && batch_log_open(&batch->log, list->destination, batch->resume,
                                batch->convert.run.side_outputs.options, error);
}

static void clean_up(struct work *work) {
    const struct batch_list *list = &work->batch->list;
    char *inside = NULL;
    for (size_t i = 0; work->words && i < list->count; i++)
        batch_words_release(&work->words[i]);
    for (size_t i = 0; work->lacks && i < list->count; i++)
        if (work->lacks[i])
            remove_empty_folders(work, list->models[i].output);
    if (work->existing && asprintf(&inside, "%s/.", list->destination) >= 0)
        remove_empty_folders(work, inside); /* DST itself */
    free(inside);
    free(work->words);
    free(work->moved);
    free(work->lacks);
    free(work->existing);
    free(work->recovered);
}

int batch_convert(struct batch *batch) {
    struct work work = {.batch = batch};
    struct tc_error error = {0};
    struct batch_runner runner = {.context = &work,
                                  .next = next_task,
                                  .ended = task_ended,
                                  .moved = task_moved,
                                  .most = batch_processes(batch),
                                  .jobserver = &batch->jobserver};
    clock_gettime(CLOCK_MONOTONIC, &work.started);
    bool ok = begin(&work, &error);
    if (ok) {
        report_progress_start(&work.progress, &batch->convert.run.progress,
                              batch->convert.common.quiet);
        ok = batch_run(&runner, &error);
        report_progress_end(&work.progress, ok && work.code == 0);
        print_summary(&work);
    }
    if (!ok) {
        int code = report_error(&error, batch->convert.common.json);
        work.code = code > work.code ? code : work.code;
    }
    batch_log_close(&batch->log, batch->list.destination);
    clean_up(&work);
    return work.code;
}
