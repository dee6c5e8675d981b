#include <string.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/naming.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/rewrite.h"
#include "cmd/run_conversion.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/listing.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"
#include "formats/registry.h"

struct edit {
    struct common common;
    struct run_conversion run;
    struct tc_plan_options plan;
    struct tc_metadata metadata;
    struct tc_select select;
    struct naming naming;
};

/* Whether the output's extension is one of the file's format, or of none. */
static bool check_extension(const char *output, const struct tc_backend *format,
                            struct tc_error *error) {
    char indexed[4096];
    const char *path = tc_registry_indexed_path(output, indexed, sizeof indexed) ? indexed : output;
    const struct tc_backend *named = tc_registry_for_path(path);
    if (!named || named == format)
        return true;
    tc_fail(error, TC_USAGE, "unknown-format", "the file stays %s, and the output's name says %s",
            format->name, named->name);
    return tc_error_hint(error, "to convert it, write tconv IN OUT");
}

/* Writes the file anew: in its own place, or with -o elsewhere. */
static bool run_edit(struct edit *edit, struct tc_reader *file, struct tc_error *error) {
    const struct tc_backend *format = file->shard_backend ? file->shard_backend : file->backend;
    bool elsewhere = edit->run.output != NULL;
    if (!rewrite_check(file, "write another file: tconv FILE OUT", error))
        return false;
    if (file->shards_differ || (file->input->is_list && !elsewhere)) {
        tc_fail(error, TC_UNSUPPORTED, "shards",
                file->shards_differ ? "its shards are of several formats"
                                    : "files without an index are not changed as one");
        tc_error_hint(error, "write another file: tconv FILE OUT");
        return tc_error_in_file(error, file->input->path);
    }
    if (elsewhere && !check_extension(edit->run.output, format, error))
        return false;
    rewrite_keep(file, false, &edit->plan);
    if (!edit->plan.write.align)
        edit->plan.write.align = rewrite_align(file, &edit->plan);
    edit->plan.order = TC_ORDER_SOURCE;
    edit->plan.as_input = elsewhere ? TC_SHARDS_AS_INPUT : TC_SHARDS_NAMED_AS_INPUT;
    edit->run.convert.in_place = !elsewhere;
    if (!elsewhere)
        edit->run.output = file->input->path;
    return run_conversion(&edit->run, &file, 1, format, &edit->plan, error);
}

static bool edit_file(struct edit *edit, const char *path, struct tc_error *error) {
    edit->plan.extra_metadata = &edit->metadata;
    edit->plan.select = &edit->select;
    if (!edit->run.output)
        tc_publish_recover(path); /* an edit that was killed has left FILE incomplete */
    struct tc_reader *reader = common_open(&edit->common, path, error);
    bool ok = reader && run_edit(edit, reader, error);
    tc_reader_close(reader);
    return ok;
}

static bool check_arguments(const struct edit *edit, const struct arguments *arguments,
                            struct tc_error *error) {
    const struct tc_select *select = &edit->select;
    if (arguments->count != 1)
        return tc_fail(error, TC_USAGE, "usage", "one file is needed");
    if (strcmp(arguments->names[0], "-") == 0)
        return tc_fail(error, TC_USAGE, "usage", "standard input is not edited");
    const char *output = edit->run.output;
    if (output && (tc_is_folder(output) || (output[0] && output[strlen(output) - 1] == '/'))) {
        tc_fail(error, TC_USAGE, "usage",
                "edit writes a file, or an index and its shards, and -o names a folder");
        tc_error_hint(error, "to write a model folder, tconv -t FORMAT DIR OUT/");
        return tc_error_in_file(error, output);
    }
    if (edit->metadata.count || select->dropped_count || tc_select_renames(select))
        return true;
    tc_fail(error, TC_USAGE, "usage", "nothing is to be changed");
    return tc_error_hint(error, "--metadata KEY=VALUE, --drop-metadata, --rename, --prefix, …");
}

static bool confine(struct edit *edit, const char *path, struct tc_error *error) {
    struct sandbox sandbox = run_conversion_sandbox(&edit->run);
    if (!edit->run.output && !edit->run.dry_run)
        sandbox_add_output(&sandbox, path);
    return sandbox_enter(&sandbox, &path, 1, error);
}

static void add_options(struct option_table *table, struct edit *edit) {
    const struct option rows[] = {
        TEXT_OPTION("output", &edit->run.output, .letter = 'o', .argument = "OUT",
                    .help = "write this file, and leave FILE as it is", .not_in_receipt = true),
        METADATA_OPTION("metadata", &edit->metadata, .argument = "KEY=VALUE",
                        .help = "add or replace a metadata entry; may be given again"),
        SELECT_OPTION("drop-metadata", &edit->select, tc_select_drop_metadata, .argument = "REGEX",
                      .help = "without the entries whose key matches"),
        RUN_CONVERSION_ALIGN(&edit->plan.write.align),
    };
    options_add(table, "Editing:", rows, OPTION_COUNT(rows));
    naming_add_options(table, &edit->select, &edit->naming);
    run_conversion_add_options(table, &edit->run, false);
    common_add_options(table, &edit->common);
}

int cmd_edit(int argc, char **argv) {
    struct edit edit = {.common = COMMON_DEFAULTS};
    struct tc_error error = {0};
    struct arguments arguments = {0};
    struct option_table table;
    edit.run.common = &edit.common;
    tc_select_init(&edit.select);
    options_init(&table);
    add_options(&table, &edit);
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && edit.common.help)
        help_print(
            edit.common.help, "tconv edit [options] FILE",
            "Changes metadata and names of tensors. FILE stays what it is: its format,\n"
            "checksum, compression, the order of its tensors and, for an index, its shards.\n"
            "It is written anew beside itself and then replaced, whole or not at all.",
            &table);
    else if (ok) {
        naming_apply(&edit.naming, &edit.select);
        ok = run_conversion_note_options(&edit.run, &table, &arguments, &error) &&
             check_arguments(&edit, &arguments, &error) &&
             run_conversion_list_maps(&edit.run, &arguments, &table.arena, &error) &&
             confine(&edit, arguments.names[0], &error) &&
             edit_file(&edit, arguments.names[0], &error);
    }
    int code = ok ? 0 : report_error(&error, edit.common.json);
    arguments_release(&arguments);
    run_conversion_release(&edit.run);
    tc_select_release(&edit.select);
    options_release(&table);
    return code;
}
