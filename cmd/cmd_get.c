#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/make_plan.h"
#include "core/plan/plan.h"
#include "core/tensor/select.h"
#include "formats/registry.h"

struct get {
    struct common common;
    const char *output;
    const char *to;
    struct tc_select select;
    struct tc_rows rows;
    bool has_rows;
    struct tc_plan_options plan;
    struct tc_convert_options run;
};

static bool get_tensor(struct get *get, const char *path, struct tc_error *error) {
    const char *output = get->output ? get->output : "-";
    const char *to = get->to || strcmp(output, "-") != 0 ? get->to : tc_registry_for_one()->name;
    const struct tc_backend *target = common_target(to, output, error);
    if (!target)
        return false;
    if (!common_check_terminal(output, error))
        return false;
    struct sandbox sandbox = common_sandbox(&get->common);
    sandbox_add_output(&sandbox, output);
    if (!sandbox_enter(&sandbox, &path, 1, error))
        return false;
    struct tc_reader *reader = common_open(&get->common, path, error);
    if (!reader)
        return false;
    get->plan.select = &get->select;
    /* A target without metadata loses it silently: who gets one tensor wants its values. */
    get->plan.keep_metadata = target->caps & TC_CAN_FILE_METADATA ? TC_KEEP_AUTO : TC_KEEP_DROP;
    get->plan.write.checksum = true;
    struct tc_plan plan;
    bool ok = tc_plan_make(&plan, &reader, 1, target, output, &get->plan, error) &&
              tc_convert(&plan, output, &get->run, error);
    if (ok && !get->common.quiet)
        report_ledger(&plan, get->common.verbose);
    tc_plan_release(&plan);
    tc_reader_close(reader);
    return ok;
}

int cmd_get(int argc, char **argv) {
    struct get get = {.common = COMMON_DEFAULTS};
    struct tc_error error = {0};
    struct arguments arguments = {0};
    struct option_table table;
    const struct option rows[] = {
        TEXT_OPTION("output", &get.output, .letter = 'o', .argument = "OUT",
                    .help = "the output (default: stdout)"),
        TEXT_OPTION("to", &get.to, .letter = 't', .argument = "FORMAT",
                    .help = "write this format (default: npy)"),
        ROWS_OPTION("rows", &get.rows, .argument = "A:B", .given = &get.has_rows,
                    .help = "rows A to B-1 of the first axis; A:, :B, or -N: for the last N"),
        FLAG_OPTION("no-clobber", &get.run.publish.no_clobber,
                    .help = "an output that exists is an error"),
    };
    options_init(&table);
    options_add(&table, "Getting:", rows, OPTION_COUNT(rows));
    common_add_options(&table, &get.common);
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && get.common.help) {
        help_print(get.common.help, "tconv get [options] FILE NAME", "Writes one tensor.", &table);
    } else if (ok && arguments.count != 2) {
        ok = tc_fail(&error, TC_USAGE, "usage", "a file and a tensor's name are needed");
    } else if (ok) {
        get.select.only = get.rows.name = tc_text_of(arguments.names[1]);
        get.select.rows = get.has_rows ? &get.rows : NULL;
        get.select.row_count = get.has_rows;
        get.common.format.select = &get.select;
        get.common.format.sparing = true;
        ok = get_tensor(&get, arguments.names[0], &error);
    }
    int code = ok ? 0 : report_error(&error, get.common.json);
    arguments_release(&arguments);
    options_release(&table);
    return code;
}
