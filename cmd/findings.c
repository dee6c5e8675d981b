#include "cmd/findings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/report.h"
#include "core/base/json_writer.h"
#include "core/base/memory.h"
#include "core/base/path.h"
#include "core/io/publish.h"

void findings_add_options(struct option_table *table, struct findings_run *run) {
    const struct option rows[] = {
        TEXT_OPTION("junit", &run->junit, .argument = "OUT.xml",
                    .help = "write what was found as JUnit XML"),
        TEXT_OPTION("sarif", &run->sarif, .argument = "OUT.sarif",
                    .help = "write what was found as SARIF 2.1.0"),
    };
    options_add(table, "Reports for CI systems:", rows, OPTION_COUNT(rows));
}

/* The file that a finding is in, where it is not the one that was asked about. */
static const char *other_file(const struct checked_file *file, const struct tc_finding *finding) {
    return finding->file && strcmp(finding->file, file->path) != 0 ? finding->file : NULL;
}

static void add_finding(struct tc_json_writer *json, const struct checked_file *file,
                        const struct tc_finding *finding) {
    tc_json_open_object(json, NULL);
    tc_json_add_string(json, "code", finding->code);
    tc_json_add_string(json, "severity", finding->note ? "note" : "error");
    if (other_file(file, finding))
        tc_json_add_string(json, "file", finding->file);
    if (finding->tensor.bytes)
        tc_json_add_text(json, "tensor", finding->tensor);
    if (finding->has_offset)
        tc_json_add_number(json, "offset", finding->offset);
    tc_json_add_string(json, "message", finding->message);
    tc_json_close(json);
}

static void add_json(struct tc_buffer *out, const struct checked_file *file) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "file", file->path);
    tc_json_add_boolean(&json, "ok", !file->findings.failures);
    tc_json_open_array(&json, "findings");
    for (size_t i = 0; i < file->findings.count; i++)
        add_finding(&json, file, &file->findings.list[i]);
    tc_json_close(&json);
    if (file->skipped.length)
        tc_json_add_raw(&json, "skipped",
                        (struct tc_text){file->skipped.bytes, file->skipped.length});
    tc_json_end_line(&json);
}

void findings_keep_skipped(struct checked_file *file, const struct tc_reader *reader) {
    struct tc_json_writer json = {.out = &file->skipped, .escape = TC_ESCAPE_DISPLAY};
    report_skipped(&json, NULL, reader, NULL);
}

static void add_line(struct tc_buffer *out, const struct checked_file *file,
                     const struct tc_finding *finding) {
    tc_buffer_addf(out, "  %s%s: ", finding->note ? "note: " : "", finding->code);
    if (other_file(file, finding)) {
        tc_buffer_add_visible(out, tc_text_of(finding->file));
        tc_buffer_add_string(out, ": ");
    }
    if (finding->tensor.bytes) {
        tc_buffer_add_string(out, "tensor \"");
        tc_buffer_add_visible(out, finding->tensor);
        tc_buffer_add_string(out, "\"");
    }
    if (finding->has_offset)
        tc_buffer_addf(out, "%sat 0x%" PRIx64, finding->tensor.bytes ? " " : "", finding->offset);
    if (finding->tensor.bytes || finding->has_offset)
        tc_buffer_add_string(out, ": ");
    tc_buffer_add_visible(out, tc_text_of(finding->message));
    tc_buffer_add_string(out, "\n");
}

static void add_text(struct tc_buffer *out, const struct findings_run *run,
                     const struct checked_file *file, bool quiet) {
    size_t failures = file->findings.failures;
    if (quiet && failures == 0)
        return;
    tc_buffer_add_visible(out, tc_text_of(file->path));
    if (failures)
        tc_buffer_addf(out, ": %s, %zu finding%s\n", run->damaged, failures,
                       failures == 1 ? "" : "s");
    else
        tc_buffer_add_string(out, ": ok\n");
    for (size_t i = 0; i < file->findings.count; i++)
        if (!quiet || !file->findings.list[i].note)
            add_line(out, file, &file->findings.list[i]);
}

static int check_one(const struct findings_run *run, const struct common *common,
                     struct checked_file *file, findings_action *action, void *context) {
    struct tc_error error = {0};
    struct tc_buffer out = {0};
    tc_findings_init(&file->findings);
    bool ok = action(context, file, &error);
    tc_findings_sort(&file->findings);
    ok = ok && tc_buffer_ok(&file->skipped, &error);
    if (ok && common->json)
        add_json(&out, file);
    else if (ok)
        add_text(&out, run, file, common->quiet);
    ok = ok && tc_buffer_ok(&out, &error);
    if (ok)
        report_out(&out);
    tc_buffer_release(&out);
    if (ok)
        return file->findings.failures ? TC_DIFFERENT : TC_OK;
    tc_error_in_file(&error, file->path);
    file->error = malloc(sizeof error);
    if (file->error)
        *file->error = error;
    return report_error(&error, common->json);
}

static bool status_failed(const char *path, struct tc_error *error) {
    tc_fail_errno(error, errno, "open", "cannot find out which file this is");
    return tc_error_in_file(error, path);
}

bool findings_check_output(const char *path, const struct arguments *arguments,
                           struct tc_error *error) {
    struct stat out;
    struct stat in;
    if (!path)
        return true;
    if (stat(path, &out) != 0)
        return tc_path_missing(errno) || status_failed(path, error);
    for (size_t i = 0; i < arguments->count; i++) {
        if (stat(arguments->names[i], &in) != 0) {
            if (!tc_path_missing(errno))
                return status_failed(arguments->names[i], error);
        } else if (in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
            return tc_fail(error, TC_USAGE, "same-file", "it would replace an input: %s", path);
        }
    }
    return true;
}

bool findings_publish(const char *path, const struct tc_buffer *text, struct tc_error *error) {
    struct tc_publish publish;
    const char *name = tc_path_name(path);
    bool ok = tc_publish_begin(&publish, path, false, (struct tc_publish_options){0}, error) &&
              tc_publish_check(&publish, name, NULL, 0, error) &&
              tc_publish_text(&publish, name, text, error) && tc_publish_commit(&publish, error);
    tc_publish_end(&publish);
    return ok || tc_error_in_file(error, path);
}

typedef void add_report(struct tc_buffer *out, const struct findings_run *run);

static int write_report(const struct findings_run *run, const struct common *common,
                        const char *path, add_report *add) {
    struct tc_error error = {0};
    struct tc_buffer text = {0};
    if (!path)
        return TC_OK;
    add(&text, run);
    bool ok = tc_buffer_ok(&text, &error) && findings_publish(path, &text, &error);
    tc_buffer_release(&text);
    return ok ? TC_OK : report_error(&error, common->json);
}

static int highest(int a, int b) {
    return a > b ? a : b;
}

int findings_write_reports(const struct findings_run *run, const struct common *common) {
    int junit = write_report(run, common, run->junit, findings_add_junit);
    return highest(junit, write_report(run, common, run->sarif, findings_add_sarif));
}

void findings_run_release(struct findings_run *run) {
    for (size_t i = 0; i < run->count; i++) {
        tc_findings_release(&run->files[i].findings);
        tc_buffer_release(&run->files[i].skipped);
        free(run->files[i].error);
    }
    free(run->files);
}

int findings_each_file(struct findings_run *run, const struct common *common,
                       const struct arguments *arguments, findings_action *action, void *context) {
    struct tc_error error = {0};
    int worst = 0;
    if (!findings_check_output(run->junit, arguments, &error) ||
        !findings_check_output(run->sarif, arguments, &error))
        return report_error(&error, common->json);
    run->files = calloc(arguments->count, sizeof *run->files);
    if (!run->files) {
        tc_fail_memory(&error);
        return report_error(&error, common->json);
    }
    for (run->count = 0; run->count < arguments->count; run->count++) {
        struct checked_file *file = &run->files[run->count];
        file->path = arguments->names[run->count];
        tc_memory_begin_file();
        worst = highest(worst, check_one(run, common, file, action, context));
    }
    worst = highest(worst, findings_write_reports(run, common));
    findings_run_release(run);
    return report_flush(&error) ? worst : highest(worst, report_error(&error, false));
}
