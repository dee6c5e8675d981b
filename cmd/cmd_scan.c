/* tconv scan PATH...: whether loading files would run anything. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/common.h"
#include "cmd/findings.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "cmd/tree_walk.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/json_writer.h"
#include "core/base/memory.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/remote/address.h"
#include "core/remote/hub.h"
#include "formats/cache_blobs.h"
#include "formats/model_open.h"
#include "formats/scan/scan.h"

static const char *const verdicts[] = {"clean", "other", "broken", "code", "unsafe"};
#define VERDICTS (sizeof verdicts / sizeof *verdicts)

enum allowance { ALLOW_NONE, ALLOW_TORCHSCRIPT, ALLOW_CODE };
static const char *const allowances[] = {"none", "torchscript", "code", NULL};

struct job {
    struct common common;
    struct findings_run reports;
    enum allowance allow;
    size_t counts[VERDICTS];
    size_t failed; /* could not be read */
    size_t links;
    char *top;      /* the folder that is walked, without links */
    size_t special; /* pipes, devices and sockets */
    int error;      /* the highest exit code of what could not be read */
    struct tc_arena arena;
    size_t capacity; /* of reports.files */
};

static enum scan_level allowed_level(const struct job *job) {
    return job->allow == ALLOW_NONE          ? SCAN_ALLOWED
           : job->allow == ALLOW_TORCHSCRIPT ? SCAN_SCRIPT
                                             : SCAN_PROGRAM;
}

static const char *severity(const struct scan_finding *finding) {
    static const char *const words[] = {"allowed", "code", "code", "unknown", "dangerous"};
    return words[finding->level];
}

static const char *kind(const struct scan_finding *finding) {
    return finding->kind == SCAN_IMPORT ? "imports"
           : finding->kind == SCAN_CALL ? "calls"
                                        : "holds";
}

/* For programs */

static void add_finding_json(struct tc_json_writer *json, const struct scan_finding *finding) {
    tc_json_open_object(json, NULL);
    tc_json_add_text(json, "name", finding->name);
    tc_json_add_number(json, "offset", finding->offset);
    if (finding->relative)
        tc_json_add_boolean(json, "relative", true);
    if (finding->member.bytes)
        tc_json_add_text(json, "member", finding->member);
    if (finding->code)
        tc_json_add_string(json, "code", finding->code);
    if (finding->what)
        tc_json_add_string(json, "message", finding->what);
    tc_json_add_boolean(json, "allowed", finding->level == SCAN_ALLOWED);
    tc_json_add_string(json, "severity", severity(finding));
    tc_json_close(json);
}

static void add_findings_json(struct tc_json_writer *json, const char *key, const struct scan *scan,
                              enum scan_kind kind) {
    tc_json_open_array(json, key);
    for (size_t i = 0; i < scan->count; i++)
        if (scan->findings[i].kind == kind)
            add_finding_json(json, &scan->findings[i]);
    tc_json_close(json);
}

static void add_reason_json(struct tc_json_writer *json, const char *key, const char *member_key,
                            const struct tc_error *reason, struct tc_text member) {
    if (reason->class == TC_OK)
        return;
    tc_json_add_string(json, key, reason->message);
    if (member.bytes)
        tc_json_add_text(json, member_key, member);
    if (reason->hint[0])
        tc_json_add_string(json, "hint", reason->hint);
}

static void scan_json(struct tc_buffer *out, const struct scan *scan, enum scan_verdict verdict,
                      const char *path) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_add_string(&json, "file", path);
    tc_json_add_string(&json, "verdict", verdicts[verdict]);
    tc_json_add_number(&json, "pickles", scan->pickles);
    add_findings_json(&json, "globals", scan, SCAN_IMPORT);
    add_findings_json(&json, "calls", scan, SCAN_CALL);
    add_findings_json(&json, "findings", scan, SCAN_OTHERWISE);
    if (scan->left_out)
        tc_json_add_number(&json, "left_out", scan->left_out);
    add_reason_json(&json, "broken", "broken_member", scan->broken, scan->broken_in);
    add_reason_json(&json, "other", "other_member", scan->other, scan->other_in);
    tc_json_end_line(&json);
}

/* For people */

static void add_finding_text(struct tc_buffer *out, const struct scan_finding *finding) {
    tc_buffer_addf(out, "  %-9s  %-7s  ", severity(finding), kind(finding));
    tc_buffer_add_visible(out, finding->name);
    if (finding->what)
        tc_buffer_addf(out, "%s%s", finding->name.length ? ": " : "", finding->what);
    tc_buffer_addf(out, "  at %s0x%" PRIx64, finding->relative ? "+" : "", finding->offset);
    if (finding->member.bytes && !tc_text_equal(finding->member, finding->name)) {
        tc_buffer_add_string(out, "  in ");
        tc_buffer_add_visible(out, finding->member);
    }
    tc_buffer_add_string(out, "\n");
}

static void add_reason_text(struct tc_buffer *out, const char *word, const struct tc_error *reason,
                            struct tc_text member) {
    if (reason->class == TC_OK)
        return;
    tc_buffer_addf(out, "  %s: ", word);
    tc_buffer_add_visible(out, tc_text_of(reason->message));
    if (reason->has_offset)
        tc_buffer_addf(out, "  at 0x%" PRIx64, reason->offset);
    if (member.bytes) {
        tc_buffer_add_string(out, "  in ");
        tc_buffer_add_visible(out, member);
    }
    tc_buffer_add_string(out, "\n");
    if (reason->hint[0]) {
        tc_buffer_add_string(out, "  hint: ");
        tc_buffer_add_visible(out, tc_text_of(reason->hint));
        tc_buffer_add_string(out, "\n");
    }
}

/* A line for each finding that is not allowed, with -v for all. */
static void scan_text(struct tc_buffer *out, const struct scan *scan, enum scan_verdict verdict,
                      const char *path, bool verbose) {
    size_t found = 0;
    for (size_t i = 0; i < scan->count; i++)
        found += scan->findings[i].level != SCAN_ALLOWED;
    tc_buffer_add_visible(out, tc_text_of(path));
    tc_buffer_addf(out, ": %s, %zu pickle%s", verdicts[verdict], scan->pickles,
                   scan->pickles == 1 ? "" : "s");
    if (found)
        tc_buffer_addf(out, ", %zu finding%s", found, found == 1 ? "" : "s");
    tc_buffer_add_string(out, "\n");
    for (size_t i = 0; i < scan->count; i++)
        if (scan->findings[i].level != SCAN_ALLOWED || verbose)
            add_finding_text(out, &scan->findings[i]);
    if (scan->left_out)
        tc_buffer_addf(out, "  %zu more are left out\n", scan->left_out);
    add_reason_text(out, "broken", scan->broken, scan->broken_in);
    add_reason_text(out, "other", scan->other, scan->other_in);
}

/* For CI systems */

static struct checked_file *add_report(struct job *job, const char *path) {
    struct findings_run *run = &job->reports;
    if (run->count == job->capacity) {
        size_t capacity = job->capacity ? job->capacity * 2 : 16;
        struct checked_file *files = reallocarray(run->files, capacity, sizeof *files);
        if (!files)
            return NULL;
        run->files = files;
        job->capacity = capacity;
    }
    struct tc_error ignored = {0};
    struct checked_file *file = &run->files[run->count];
    *file = (struct checked_file){.path = tc_arena_copy(&job->arena, path, strlen(path), &ignored)};
    if (!file->path)
        return NULL;
    tc_findings_init(&file->findings);
    run->count++;
    return file;
}

static void report_findings(struct checked_file *file, const struct scan *scan,
                            enum scan_level allowed) {
    struct tc_findings *findings = &file->findings;
    for (size_t i = 0; i < scan->count; i++) {
        const struct scan_finding *finding = &scan->findings[i];
        const char *code = finding->code                ? finding->code
                           : finding->kind == SCAN_CALL ? "pickle-call"
                                                        : "pickle-global";
        if (finding->level <= allowed)
            continue;
        tc_findings_add(findings, code, NULL, finding->member, "%s %s: %s%s%.*s", severity(finding),
                        kind(finding), finding->what ? finding->what : "",
                        finding->what && finding->name.length ? ": " : "",
                        tc_text_shown(finding->name, 300), finding->name.bytes);
    }
    if (scan->broken->class != TC_OK)
        tc_findings_add(findings, scan->broken->code, NULL, (struct tc_text){0}, "broken: %s",
                        scan->broken->message);
    if (scan->other->class != TC_OK)
        tc_findings_note(findings, scan->other->code, NULL, (struct tc_text){0},
                         "no known format: %s", scan->other->message);
    tc_findings_sort(findings);
}

/* Files */

static bool wants_reports(const struct job *job) {
    return job->reports.junit || job->reports.sarif;
}

static void file_failed(struct job *job, const char *path, const struct tc_error *error) {
    int code = report_error(error, job->common.json);
    struct checked_file *file = wants_reports(job) ? add_report(job, path) : NULL;
    job->failed++;
    job->error = code > job->error ? code : job->error;
    if (file && (file->error = malloc(sizeof *file->error)))
        *file->error = *error;
}

static void memory_failed(struct job *job, const char *path) {
    struct tc_error error = {0};
    tc_fail_memory(&error);
    tc_error_in_file(&error, path);
    file_failed(job, path, &error);
}

static void file_done(struct job *job, const struct scan *scan, const char *path, bool named) {
    struct tc_buffer out = {0};
    enum scan_verdict verdict = scan_verdict(scan, allowed_level(job));
    bool quiet = !named && (verdict == SCAN_CLEAN || verdict == SCAN_OTHER);
    struct checked_file *file = wants_reports(job) ? add_report(job, path) : NULL;
    job->counts[verdict]++;
    if (verdict == SCAN_OTHER && named)
        job->error = job->error > TC_INVALID ? job->error : TC_INVALID;
    if (job->common.json)
        scan_json(&out, scan, verdict, path);
    else if (!quiet || job->common.verbose)
        scan_text(&out, scan, verdict, path, job->common.verbose);
    if (file)
        report_findings(file, scan, allowed_level(job));
    struct tc_error error = {0};
    if (!tc_buffer_ok(&out, &error))
        job->error = report_error(&error, job->common.json);
    report_out(&out);
}

/* A file that was named by the user, or one in a folder that was: then it must be the file of
 * `found`. A file of a repository is neither. */
static void scan_one(struct job *job, const char *path, const struct stat *found, bool named) {
    struct scan scan;
    tc_memory_begin_file();
    struct tc_error *error = calloc(1, sizeof *error);
    scan_init(&scan, &job->common.format);
    scan.found = found;
    if (!error)
        memory_failed(job, path);
    else if (scan_file(&scan, path, error))
        file_done(job, &scan, path, named);
    else {
        sandbox_hint(error);
        file_failed(job, path, error);
    }
    scan_release(&scan);
    free(error);
}

/* It went away, or can't be looked at. */
static void status_failed(struct job *job, const char *path) {
    struct tc_error error = {0};
    tc_fail_errno(&error, errno, "open", "cannot open");
    tc_error_in_file(&error, path);
    file_failed(job, path, &error);
}

/* Folders: every regular file below is scanned, whatever its name. */

static void found_file(void *context, const char *path, const struct stat *status) {
    scan_one(context, path, status, false);
}

/* Whether a link leads to a file among the blobs of the cache that its folder is a snapshot of, and
 * that file is not below the folder at hand: then nothing else looks at it. Returns 0, or why that
 * can't be found out (an errno). */
static int find_blob(const struct job *job, const char *path, struct stat *status, bool *blob) {
    struct cache_blobs blobs = {0};
    size_t length = job->top ? strlen(job->top) : 0;
    char *real = realpath(path, NULL);
    *blob = false;
    if (!real)
        return tc_path_missing(errno) ? 0 : errno;
    char *folder = tc_path_folder(path);
    int failed = folder ? cache_blobs_find(&blobs, folder) : ENOMEM;
    bool below = job->top && strncmp(real, job->top, length) == 0 && real[length] == '/';
    if (!failed && !below && cache_blobs_hold(&blobs, real)) {
        failed = stat(real, status) == 0 ? 0 : errno;
        *blob = !failed && S_ISREG(status->st_mode);
    }
    cache_blobs_release(&blobs);
    free(folder);
    free(real);
    return failed;
}

static void found_link(void *context, const char *path) {
    struct job *job = context;
    struct tc_buffer out = {0};
    struct stat status;
    bool blob;
    int failed = find_blob(job, path, &status, &blob);
    if (failed) {
        errno = failed;
        status_failed(job, path);
        return;
    }
    if (blob) {
        scan_one(job, path, &status, false);
        return;
    }
    job->links++;
    if (job->common.json || job->common.quiet)
        return;
    tc_buffer_add_visible(&out, tc_text_of(path));
    tc_buffer_add_string(&out, ": a link, not followed\n");
    report_out(&out);
}

static void found_special(void *context, const char *path) {
    struct job *job = context;
    (void)path;
    job->special++;
}

static void walk_failed(void *context, const char *path, const struct tc_error *error) {
    file_failed(context, path, error);
}

static void scan_folder(struct job *job, const char *top) {
    const struct tree_visitor visitor = {.context = job,
                                         .file = found_file,
                                         .link = found_link,
                                         .special = found_special,
                                         .failed = walk_failed};
    job->top = realpath(top, NULL);
    tree_walk(top, &visitor);
    free(job->top);
    job->top = NULL;
}

/* Every file of a repository, or of a folder in one. */
static void scan_repository(struct job *job, const char *address) {
    struct tc_hub_place place;
    struct tc_hub_files files = {0};
    struct tc_error error = {0};
    bool ok = tc_hub_parse(&place, address, &error) &&
              tc_hub_list(job->common.format.remote, &place, true, &files, &error);
    size_t prefix = ok && place.path[0] ? strlen(place.path) + 1 : 0;
    for (size_t i = 0; ok && i < files.count; i++) {
        char *path = NULL;
        if (files.list[i].folder)
            continue;
        if (asprintf(&path, "%s/%s", address, files.list[i].path + prefix) < 0) {
            ok = tc_fail_memory(&error);
            break;
        }
        scan_one(job, path, NULL, false);
        free(path);
    }
    if (!ok) {
        tc_error_in_file(&error, address);
        file_failed(job, address, &error);
    }
    tc_hub_files_release(&files);
    tc_hub_place_release(&place);
}

static void add_summary_json(struct tc_buffer *out, const struct job *job, size_t files) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_object(&json, NULL);
    tc_json_open_object(&json, "summary");
    tc_json_add_number(&json, "files", files);
    for (size_t i = VERDICTS; i > 0; i--)
        tc_json_add_number(&json, verdicts[i - 1], job->counts[i - 1]);
    tc_json_add_number(&json, "failed", job->failed);
    tc_json_add_number(&json, "links", job->links);
    tc_json_add_number(&json, "skipped", job->special);
    tc_json_end_line(&json);
}

static void print_summary(const struct job *job) {
    struct tc_buffer out = {0};
    size_t files = job->failed;
    for (size_t i = 0; i < VERDICTS; i++)
        files += job->counts[i];
    if (job->common.json) {
        add_summary_json(&out, job, files);
    } else {
        tc_buffer_addf(&out, "%zu file%s:", files, files == 1 ? "" : "s");
        const char *comma = " ";
        for (size_t i = VERDICTS; i > 0; i--)
            if (job->counts[i - 1]) {
                tc_buffer_addf(&out, "%s%zu %s", comma, job->counts[i - 1], verdicts[i - 1]);
                comma = ", ";
            }
        if (job->failed)
            tc_buffer_addf(&out, "%s%zu not read", comma, job->failed);
        if (job->links)
            tc_buffer_addf(&out, "; %zu link%s not followed", job->links,
                           job->links == 1 ? "" : "s");
        tc_buffer_add_string(&out, "\n");
    }
    report_out(&out);
}

/* The worst of all files: unsafe, code, then what could not be read or proven. */
static int exit_code(const struct job *job) {
    if (job->counts[SCAN_UNSAFE] || job->counts[SCAN_CODE])
        return TC_DIFFERENT;
    return job->error ? job->error : job->counts[SCAN_BROKEN] ? TC_INVALID : TC_OK;
}

/* A file or folder that the user named; whether it is a folder. */
static bool scan_named(struct job *job, const char *path) {
    struct stat status;
    if (tc_address_is(path)) {
        bool repository = model_is_folder(path, &job->common.format);
        if (repository)
            scan_repository(job, path);
        else
            scan_one(job, path, NULL, true);
        return repository;
    }
    bool standard = strcmp(path, "-") == 0;
    int failed = standard || stat(path, &status) == 0 ? 0 : errno;
    if (failed && !tc_path_missing(failed))
        status_failed(job, path);
    else if (standard || failed || !S_ISDIR(status.st_mode))
        scan_one(job, path, NULL, true);
    else
        scan_folder(job, path);
    return !standard && !failed && S_ISDIR(status.st_mode);
}

static int scan_all(struct job *job, const struct arguments *arguments) {
    struct tc_error error = {0};
    bool folders = false;
    if (!findings_check_output(job->reports.junit, arguments, &error) ||
        !findings_check_output(job->reports.sarif, arguments, &error))
        return report_error(&error, job->common.json);
    struct sandbox sandbox = common_sandbox(&job->common);
    sandbox_add_output(&sandbox, job->reports.junit);
    sandbox_add_output(&sandbox, job->reports.sarif);
    if (!sandbox_enter(&sandbox, arguments->names, arguments->count, &error))
        return report_error(&error, job->common.json);
    tc_arena_init(&job->arena, 0);
    for (size_t i = 0; i < arguments->count; i++)
        folders |= scan_named(job, arguments->names[i]);
    if (folders)
        print_summary(job);
    int reports = findings_write_reports(&job->reports, &job->common);
    int code = exit_code(job);
    findings_run_release(&job->reports);
    tc_arena_release(&job->arena);
    if (!report_flush(&error))
        return report_error(&error, false);
    return code > reports ? code : reports;
}

int cmd_scan(int argc, char **argv) {
    struct job job = {.common = COMMON_DEFAULTS,
                      .reports = {.command = "scan", .damaged = "not clean"}};
    struct option_table table;
    const struct option rows[] = {
        CHOICE_OPTION(
            "allow", &job.allow, allowances, .argument = "torchscript|code",
            .help = "functions of TorchScript, or also those of ONNX and others, are no finding"),
    };
    options_init(&table);
    options_add(&table, NULL, rows, OPTION_COUNT(rows));
    findings_add_options(&table, &job.reports);
    common_add_options(&table, &job.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && !job.common.help && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no file given");
    if (!ok)
        code = report_error(&error, job.common.json);
    else if (job.common.help)
        help_print(
            job.common.help, "tconv scan [options] FILE|FOLDER...",
            "Tells whether loading a file could run anything, and runs nothing. Clean is only\n"
            "what opens whole as a known format, with every pickle in it run to its end as\n"
            "data. Exits with 1 where something is unsafe, or a program (code) that --allow\n"
            "does not name; with 3 where a file is broken or of no known format; with 0 where\n"
            "all is clean. In a folder files of no known format are only counted.",
            &table);
    else
        code = scan_all(&job, &arguments);
    arguments_release(&arguments);
    options_release(&table);
    return code;
}
