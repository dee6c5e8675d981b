/* tconv check --schema S.json FILE...: whether files are what they must be. */
#include <stdlib.h>

#include "cmd/common.h"
#include "cmd/findings.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/schema.h"

struct check {
    struct common common;
    struct findings_run run;
    const char *schema_path;
    const char *output;
    bool write;
    struct tc_schema schema;
};

static bool check_file(void *context, struct checked_file *file, struct tc_error *error) {
    struct check *check = context;
    struct tc_reader *reader = common_open(&check->common, file->path, error);
    bool ok = reader && tc_schema_check(&check->schema, reader, &file->findings, error);
    if (reader)
        findings_keep_skipped(file, reader);
    tc_reader_close(reader);
    return ok;
}

static int write_schema(struct check *check, const char *path) {
    struct tc_error error = {0};
    struct tc_buffer text = {0};
    struct tc_reader *reader = common_open(&check->common, path, &error);
    bool ok = reader != NULL;
    if (ok)
        tc_schema_write(&text, &reader->table);
    ok = ok && tc_buffer_ok(&text, &error);
    if (ok && check->output)
        ok = findings_publish(check->output, &text, &error);
    else if (ok)
        report_out(&text);
    tc_buffer_release(&text);
    tc_reader_close(reader);
    return ok && report_flush(&error) ? TC_OK : report_error(&error, check->common.json);
}

static bool check_usage(const struct check *check, const struct arguments *arguments,
                        struct tc_error *error) {
    if (arguments->count == 0)
        return tc_fail(error, TC_USAGE, "usage", "no file given");
    if (check->write && (check->schema_path || arguments->count > 1))
        return tc_fail(error, TC_USAGE, "usage",
                       "--write-schema takes one file and goes without --schema");
    if (check->output && !check->write)
        return tc_fail(error, TC_USAGE, "usage", "-o goes with --write-schema");
    if (!check->write && !check->schema_path) {
        tc_fail(error, TC_USAGE, "usage", "no schema given");
        return tc_error_hint(error, "--schema names one, --write-schema makes one from a file");
    }
    return findings_check_output(check->output, arguments, error);
}

static bool confine(const struct check *check, const struct arguments *arguments,
                    struct tc_error *error) {
    struct sandbox sandbox = common_sandbox(&check->common);
    sandbox_add_output(&sandbox, check->output);
    sandbox_add_output(&sandbox, check->run.junit);
    sandbox_add_output(&sandbox, check->run.sarif);
    sandbox_add_file(&sandbox, check->schema_path);
    return sandbox_enter(&sandbox, arguments->names, arguments->count, error);
}

static int run(struct check *check, struct option_table *table, int argc, char **argv) {
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = TC_OK;
    bool ok = options_parse(table, argc, argv, &arguments, &error);
    bool help = ok && check->common.help;
    ok = ok && (help || check_usage(check, &arguments, &error));
    ok = ok && (help || confine(check, &arguments, &error));
    if (ok && !help && !check->write)
        ok = tc_schema_load(&check->schema, check->schema_path, &error);
    if (!ok)
        code = report_error(&error, check->common.json);
    else if (help)
        help_print(check->common.help,
                   "tconv check --schema S.json [options] FILE...\n"
                   "       tconv check --write-schema [-o S.json] FILE",
                   "Tells whether files have the tensors, dtypes, shapes and metadata keys that a\n"
                   "schema asks for, and all that they have not. Exits with 1 where one differs.\n"
                   "Reads headers only, unless the schema wants finite values.",
                   table);
    else if (check->write)
        code = write_schema(check, arguments.names[0]);
    else
        code = findings_each_file(&check->run, &check->common, &arguments, check_file, check);
    arguments_release(&arguments);
    tc_schema_release(&check->schema);
    return code;
}

int cmd_check(int argc, char **argv) {
    struct check check = {.common = COMMON_DEFAULTS,
                          .run = {.command = "check", .damaged = "not as the schema says"}};
    struct option_table table;
    const struct option rows[] = {
        TEXT_OPTION("schema", &check.schema_path, .argument = "S.json",
                    .help = "what the files must be"),
        FLAG_OPTION("write-schema", &check.write,
                    .help = "write a schema that FILE satisfies, instead of checking"),
        TEXT_OPTION("output", &check.output, .letter = 'o', .argument = "S.json",
                    .help = "where to write that schema (default: stdout)"),
    };
    options_init(&table);
    options_add(&table, "Checking:", rows, OPTION_COUNT(rows));
    common_add_no_verify(&table, &check.common);
    findings_add_options(&table, &check.run);
    common_add_options(&table, &check.common);
    int code = run(&check, &table, argc, argv);
    options_release(&table);
    return code;
}
