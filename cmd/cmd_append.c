#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/rewrite.h"
#include "cmd/run_conversion.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"

struct append {
    struct common common;
    struct run_conversion run;
    struct tc_plan_options plan;
    struct tc_metadata metadata;
    bool keep_given;
};

static bool check_file(const struct tc_reader *file, struct tc_error *error) {
    const struct tc_backend *format = file->backend;
    if (file->shard_count || file->shard_backend)
        tc_fail(error, TC_UNSUPPORTED, "shards", "tensors are added to one file, not to shards");
    else if (format->caps & TC_CAN_WRITE && !(format->caps & TC_CAN_HOLD_MANY))
        tc_fail(error, TC_UNSUPPORTED, "many-tensors", "%s holds one tensor", format->name);
    else
        return rewrite_check(file, "write another file: tconv FILE IN... -o OUT", error);
    return tc_error_in_file(error, file->input->path);
}

static bool run_append(struct append *append, struct tc_reader **readers, size_t count,
                       struct tc_error *error) {
    const struct tc_reader *file = readers[0];
    if (!check_file(file, error))
        return false;
    rewrite_keep(file, append->keep_given, &append->plan);
    append->plan.extra_metadata = &append->metadata;
    append->run.convert.in_place = true;
    if (run_conversion(&append->run, readers, count, file->backend, &append->plan, error))
        return true;
    if (error->reason == TC_REASON_DUPLICATE_NAME)
        tc_error_hint(error, "--replace takes the one that is added");
    return false;
}

static bool append_files(struct append *append, const char *const *paths, size_t count,
                         struct tc_error *error) {
    struct tc_reader **readers = calloc(count, sizeof(struct tc_reader *));
    struct common plain = append->common;
    if (!readers)
        return tc_fail_memory(error);
    append->run.output = paths[0];
    plain.from = NULL;            /* -f is the format of the files that are added */
    tc_publish_recover(paths[0]); /* an append that was killed has left FILE incomplete */
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        readers[i] = common_open(i ? &append->common : &plain, paths[i], error);
        ok = readers[i] != NULL;
    }
    ok = ok && run_append(append, readers, count, error);
    for (size_t i = 0; i < count; i++)
        tc_reader_close(readers[i]);
    free(readers);
    return ok;
}

static bool check_arguments(const struct append *append, const struct arguments *arguments,
                            struct tc_error *error) {
    if (arguments->count == 0 || (arguments->count < 2 && !append->metadata.count)) {
        tc_fail(error, TC_USAGE, "usage", "a file and what to add to it are needed");
        return tc_error_hint(error, "files with tensors, or --metadata KEY=VALUE, or both");
    }
    if (strcmp(arguments->names[0], "-") == 0)
        return tc_fail(error, TC_USAGE, "usage", "nothing is added to standard input");
    return true;
}

static bool confine(struct append *append, const struct arguments *arguments,
                    struct tc_error *error) {
    append->run.output = arguments->names[0];
    struct sandbox sandbox = run_conversion_sandbox(&append->run);
    return sandbox_enter(&sandbox, arguments->names, arguments->count, error);
}

int cmd_append(int argc, char **argv) {
    struct append append = {.common = COMMON_DEFAULTS};
    struct tc_error error = {0};
    struct arguments arguments = {0};
    append.run.common = &append.common;
    struct option_table table;
    const struct option rows[] = {
        FLAG_OPTION("replace", &append.plan.replace,
                    .help = "a tensor takes the place of one that has its name"),
        METADATA_OPTION("metadata", &append.metadata, .argument = "KEY=VALUE",
                        .help = "add or replace a metadata entry of the file"),
        CHOICE_OPTION("keep-metadata", &append.plan.keep_metadata, run_conversion_keeps,
                      .argument = "HOW", .given = &append.keep_given,
                      .help = "auto, sidecar, drop, as in converting"),
        CHOICE_OPTION("order", &append.plan.order, run_conversion_orders, .argument = "HOW",
                      .help =
                          "target (default): the format's own, else new ones last; source, name"),
    };
    options_init(&table);
    options_add(&table, "Adding:", rows, OPTION_COUNT(rows));
    run_conversion_add_options(&table, &append.run, false);
    common_add_options(&table, &append.common);
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && append.common.help)
        help_print(append.common.help, "tconv append [options] FILE [IN...]",
                   "Adds the tensors of IN, and --metadata, to FILE, in FILE's format, "
                   "checksum and compression kept.\nFILE is written anew beside itself and then "
                   "replaced, whole or not at all.",
                   &table);
    else if (ok)
        ok = run_conversion_note_options(&append.run, &table, &arguments, &error) &&
             check_arguments(&append, &arguments, &error) && confine(&append, &arguments, &error) &&
             append_files(&append, arguments.names, arguments.count, &error);
    int code = ok ? 0 : report_error(&error, append.common.json);
    arguments_release(&arguments);
    options_release(&table);
    run_conversion_release(&append.run);
    return code;
}
