#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/run_conversion.h"
#include "cmd/sandbox.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/plan/dtype_policy.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"
#include "formats/registry.h"

struct convert {
    struct common common;
    const char *to;
    struct run_conversion run;
    struct tc_plan_options plan;
    struct tc_metadata metadata;
    struct tc_select select;
    struct tc_policy policy;
    const char *prefix;
    const char *strip_prefix;
    bool implicit; /* the word "convert" was left out */
    bool checksum_given;
};

/* The format to write: the one that was named, for a folder that of single tensors,
 * else by the output's extension. */
static const struct tc_backend *find_target(const struct convert *convert, bool folder,
                                            struct tc_error *error) {
    const char *to = convert->to;
    const char *output = convert->run.output;
    char indexed[4096];
    /* An index has the format of its shards. */
    if (!to && tc_registry_indexed_path(output, indexed, sizeof indexed))
        output = indexed;
    const struct tc_backend *target =
        common_target(!to && folder ? tc_registry_for_one()->name : to, output, error);
    const struct tc_backend *instead = target && target->written_instead
                                           ? target->written_instead(&convert->plan.write.settings)
                                           : NULL;
    return instead ? instead : target;
}

static bool run_plan(struct convert *convert, struct tc_reader **readers, size_t count,
                     struct tc_error *error) {
    size_t length = strlen(convert->run.output);
    convert->plan.folder = length && convert->run.output[length - 1] == '/';
    const struct tc_backend *target = find_target(convert, convert->plan.folder, error);
    if (!target)
        return false;
    if (convert->checksum_given && convert->plan.write.checksum &&
        !(target->caps & TC_CAN_CHECKSUM))
        return tc_fail(error, TC_UNSUPPORTED, "checksum", "%s holds no checksum", target->name);
    return run_conversion(&convert->run, readers, count, target, &convert->plan, error);
}

static bool convert_files(struct convert *convert, const char *const *inputs, size_t count,
                          struct tc_error *error) {
    struct tc_reader **readers = calloc(count, sizeof(struct tc_reader *));
    if (!readers)
        return tc_fail_memory(error);
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) {
        readers[i] = common_open(&convert->common, inputs[i], error);
        ok = readers[i] != NULL;
    }
    ok = ok && run_plan(convert, readers, count, error);
    for (size_t i = 0; i < count; i++)
        tc_reader_close(readers[i]);
    free(readers);
    return ok;
}

/* Lists the files that --map names: the output depends on them, too. */
static bool list_maps(struct convert *convert, const struct arguments *arguments,
                      struct tc_arena *arena, struct tc_error *error) {
    const char **maps = tc_arena_array(arena, arguments->given_count + 1, sizeof *maps, error);
    size_t count = 0;
    for (size_t i = 0; maps && i < arguments->given_count; i++)
        if (arguments->given[i].option->rule == tc_select_map)
            maps[count++] = arguments->given[i].value;
    convert->run.side_outputs.also = maps;
    convert->run.side_outputs.also_count = count;
    return maps != NULL;
}

static bool take_arguments(struct convert *convert, struct arguments *arguments,
                           struct tc_error *error) {
    if (!convert->run.output) {
        if (arguments->count > 2)
            return tc_fail(error, TC_USAGE, "usage", "several inputs need -o OUT");
        if (arguments->count < 2)
            return tc_fail(error, TC_USAGE, "usage", "an input and an output are needed");
        convert->run.output = arguments->names[--arguments->count];
    }
    if (arguments->count == 0)
        return tc_fail(error, TC_USAGE, "usage", "no input given");
    if (convert->run.output[0] == '\0')
        return tc_fail(error, TC_USAGE, "usage", "the output's name is empty");
    if (convert->implicit && is_command(arguments->names[0])) {
        tc_fail(error, TC_USAGE, "usage", "a command's name goes first: tconv %s ...",
                arguments->names[0]);
        return tc_error_hint(error, "for a file of that name write ./%s", arguments->names[0]);
    }
    if (!convert->run.dry_run && !common_check_terminal(convert->run.output, error))
        return false;
    convert->plan.extra_metadata = &convert->metadata;
    convert->plan.select = &convert->select;
    convert->common.format.select = &convert->select;
    convert->plan.policy = &convert->policy;
    if (convert->prefix)
        convert->select.prefix = tc_text_of(convert->prefix);
    if (convert->strip_prefix)
        convert->select.strip_prefix = tc_text_of(convert->strip_prefix);
    return true;
}

static bool confine(const struct convert *convert, const struct arguments *arguments,
                    struct tc_error *error) {
    struct sandbox sandbox = run_conversion_sandbox(&convert->run);
    sandbox.packing = convert->plan.write.compress;
    return sandbox_enter(&sandbox, arguments->names, arguments->count, error);
}

/* A mistyped name of a command is taken for that of a file: suggests the command. */
static void hint_word(const struct arguments *arguments, struct tc_error *error) {
    const char *word = arguments->count ? arguments->names[0] : NULL;
    bool about_it = error->errnum == ENOENT ? strcmp(error->file, word ? word : "") == 0
                                            : error->class == TC_USAGE;
    if (word && about_it && !strpbrk(word, "./") && access(word, F_OK) != 0)
        hint_command(word, error, NULL);
}

/* Keeps a text for as long as the table lives. */
static const char *keep_text(struct option_table *table, struct tc_buffer *text) {
    struct tc_error error = {0};
    const char *kept = tc_buffer_ok(text, &error)
                           ? tc_arena_copy(&table->arena, text->bytes, text->length, &error)
                           : NULL;
    tc_buffer_release(text);
    table->failed |= !kept;
    return kept;
}

/* What each format that compresses makes of a level. */
static const char *compression_help(struct option_table *table) {
    struct tc_buffer text = {0};
    for (size_t i = 0; tc_registry[i]; i++)
        if (tc_registry[i]->compression)
            tc_buffer_addf(&text, "%s%s: %s, 1 to %d (%d)", text.length ? "; " : "",
                           tc_registry[i]->name, tc_registry[i]->compression,
                           tc_registry[i]->max_level, tc_registry[i]->default_level);
    return keep_text(table, &text);
}

static const char *checksum_help(struct option_table *table) {
    struct tc_buffer text = {0};
    for (size_t i = 0; tc_registry[i]; i++)
        if (tc_registry[i]->checksum)
            tc_buffer_addf(&text, "%s%s: with %s (the default)", text.length ? "; " : "",
                           tc_registry[i]->name, tc_registry[i]->checksum);
    return keep_text(table, &text);
}

static int highest_level(void) {
    int most = 0;
    for (size_t i = 0; tc_registry[i]; i++)
        most = tc_registry[i]->max_level > most ? tc_registry[i]->max_level : most;
    return most;
}

static void add_output_options(struct option_table *table, struct convert *convert) {
    const struct option rows[] = {
        TEXT_OPTION("output", &convert->run.output, .letter = 'o', .argument = "OUT",
                    .help = "the output; needed for several inputs", .not_in_receipt = true),
        TEXT_OPTION("to", &convert->to, .letter = 't', .argument = "FORMAT",
                    .help = "write this format, whatever OUT's extension"),
        LEVEL_OPTION("compress", &convert->plan.write.compress, .argument = "[=LEVEL]",
                     .most = highest_level(), .help = compression_help(table)),
        FLAG_OPTION("checksum", &convert->plan.write.checksum, .given = &convert->checksum_given,
                    .help = checksum_help(table)),
        CLEAR_OPTION("no-checksum", &convert->plan.write.checksum, .help = "without that checksum"),
        SIZE_OPTION("shard-size", &convert->plan.shard_size, .argument = "SIZE",
                    .help = "several files of at most SIZE each, header and all, and their index"),
        FLAG_OPTION("prune", &convert->run.convert.prune, .not_in_receipt = true,
                    .help = "remove shards of an earlier run that the new index does not name"),
        CHOICE_OPTION("order", &convert->plan.order, run_conversion_orders,
                      .argument = "target|source|name",
                      .help = "order of the tensors (default: the target's own)"),
    };
    options_add(table, "Converting:", rows, OPTION_COUNT(rows));
}

static void add_content_options(struct option_table *table, struct convert *convert) {
    static const char *const tied[] = {"auto", "keep", "copy", "error", NULL};
    const struct option rows[] = {
        METADATA_OPTION("metadata", &convert->metadata, .argument = "KEY=VALUE",
                        .help = "add or replace a metadata entry; may be given again"),
        CHOICE_OPTION("keep-metadata", &convert->plan.keep_metadata, run_conversion_keeps,
                      .argument = "auto|sidecar|drop",
                      .help = "where the target holds none: report (auto), write OUT.tconv.json"),
        CHOICE_OPTION(
            "tied", &convert->plan.tied, tied, .argument = "auto|keep|copy|error",
            .help = "tensors that share data: shared where OUT can, else copied (auto); one kept"),
    };
    const struct option whole[] = {
        FLAG_OPTION("densify", &convert->plan.densify,
                    .help = "a sparse tensor becomes one dense tensor of its parent's name"),
        FLAG_OPTION("dequantize", &convert->plan.dequantise,
                    .help = "weights with scales of their own (FP8, MXFP4, NVFP4) become BF16"),
    };
    options_add(table, NULL, rows, OPTION_COUNT(rows));
    common_add_format_options(table, TC_FOR_WRITING, &convert->plan.write.settings);
    options_add(table, NULL, whole, OPTION_COUNT(whole));
}

static void add_publishing_options(struct option_table *table, struct convert *convert) {
    const struct option no_clobber =
        FLAG_OPTION("no-clobber", &convert->run.convert.publish.no_clobber, .not_in_receipt = true,
                    .help = "an output that exists is an error");
    run_conversion_add_options(table, &convert->run);
    options_add(table, NULL, &no_clobber, 1);
}

static void add_dtype_options(struct option_table *table, struct tc_policy *policy) {
    const struct option rows[] = {
        DTYPE_RULE_OPTION("dtype", policy, .argument = "[REGEX=]DTYPE",
                          .help = "of all floats (or integers, …), or of tensors that match"),
        FLAG_OPTION("lossy", &policy->lossy, .help = "allow conversions that may lose values"),
        FLAG_OPTION("saturate", &policy->saturate,
                    .help = "to integers: the nearest there is, and 0 for NaN"),
        FLAG_OPTION("restore-dtype", &policy->restore,
                    .help = "back to the dtype before an earlier promotion"),
    };
    options_add(table, "Changing dtypes:", rows, OPTION_COUNT(rows));
}

static void add_naming_options(struct option_table *table, struct convert *convert) {
    struct tc_select *select = &convert->select;
    const struct option rows[] = {
        SELECT_OPTION("include", select, tc_select_include, .argument = "REGEX",
                      .help = "only tensors whose name matches; may be given again"),
        SELECT_OPTION("exclude", select, tc_select_exclude, .argument = "REGEX",
                      .help = "without those that match"),
        SELECT_OPTION("rows", select, tc_select_rows, .argument = "NAME=A:B",
                      .help = "of this tensor only rows A to B-1; A:, :B, -N: for the last N"),
        SELECT_OPTION("rename", select, tc_select_rename, .argument = "s/RE/NEW/",
                      .help = "new names, as sed; g, i; may be given again"),
        SELECT_OPTION("map", select, tc_select_map, .argument = "FILE",
                      .help = "new names from a JSON object {old: new}"),
        TEXT_OPTION("strip-prefix", &convert->strip_prefix, .argument = "TEXT",
                    .help = "take this off the front of names that have it"),
        TEXT_OPTION("prefix", &convert->prefix, .argument = "TEXT",
                    .help = "put this before every name"),
    };
    options_add(table, "Choosing and naming tensors:", rows, OPTION_COUNT(rows));
}

static void print_help(const struct convert *convert, const struct option_table *table) {
    char what[256];
    snprintf(what, sizeof what,
             "Converts tensors; OUT appears whole or not at all.\n"
             "IN or OUT - is a pipe; OUT with a slash at its end is a folder of %s files.",
             tc_registry_for_one()->extensions[0]);
    help_print(convert->common.help, "tconv [convert] [options] IN OUT | IN... -o OUT", what,
               table);
}

static int run(int argc, char **argv, bool implicit) {
    struct convert convert = {
        .common = COMMON_DEFAULTS, .plan.write.checksum = true, .implicit = implicit};
    struct tc_error error = {0};
    struct option_table table;
    struct arguments arguments = {0};
    convert.run.common = &convert.common;
    tc_select_init(&convert.select);
    options_init(&table);
    add_output_options(&table, &convert);
    add_content_options(&table, &convert);
    add_publishing_options(&table, &convert);
    add_dtype_options(&table, &convert.policy);
    add_naming_options(&table, &convert);
    common_add_options(&table, &convert.common);
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && convert.common.help)
        print_help(&convert, &table);
    else if (ok)
        ok = run_conversion_note_options(&convert.run, &table, &arguments, &error) &&
             take_arguments(&convert, &arguments, &error) &&
             list_maps(&convert, &arguments, &table.arena, &error) &&
             confine(&convert, &arguments, &error) &&
             convert_files(&convert, arguments.names, arguments.count, &error);
    if (!ok && implicit)
        hint_word(&arguments, &error);
    int code = ok ? 0 : report_error(&error, convert.common.json);
    arguments_release(&arguments);
    run_conversion_release(&convert.run);
    tc_select_release(&convert.select);
    tc_policy_release(&convert.policy);
    options_release(&table);
    return code;
}

int cmd_convert(int argc, char **argv) {
    return run(argc, argv, false);
}

int cmd_convert_implicit(int argc, char **argv) {
    return run(argc, argv, true);
}
