#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cmd/common.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/run_conversion.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
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
    bool implicit;     /* the word was left out */
    const char **maps; /* files that --map names */
    size_t map_count;
    int order;
    int keep;
    int tied;
    int ot_dialect;
    bool checksum;
    bool checksum_given;
};

static const char *const orders[] = {"target", "source", "name", NULL};
static const char *const keeps[] = {"auto", "sidecar", "drop", NULL};
static const char *const tieds[] = {"auto", "keep", "copy", "error", NULL};

/* The target's format: named, by the output's extension, or npy for a folder. */
static const struct tc_backend *find_target(const struct convert *convert, bool folder,
                                            struct tc_error *error) {
    const char *output = convert->run.output;
    char shard[4096];
    const struct tc_backend *by_path = tc_registry_for_path(output);
    if (!convert->to && by_path && tc_registry_is_index(by_path)) {
        /* model.safetensors.index.json: the format of its shards. */
        size_t length = strlen(output) - strlen(".index.json");
        snprintf(shard, sizeof shard, "%.*s", (int)(length < 4000 ? length : 4000), output);
        output = shard;
    }
    const struct tc_backend *target =
        common_target(!convert->to && folder ? "npy" : convert->to, output, error);
    /* The other thing that is called .ot is an ONNX model. */
    return target && convert->ot_dialect && strcmp(target->name, "ot") == 0
               ? common_backend("onnx", NULL, error)
               : target;
}

static bool run_plan(struct convert *convert, struct tc_reader **readers, size_t count,
                     struct tc_error *error) {
    size_t length = strlen(convert->run.output);
    convert->plan.folder = length && convert->run.output[length - 1] == '/';
    const struct tc_backend *target = find_target(convert, convert->plan.folder, error);
    if (!target)
        return false;
    if (convert->ot_dialect && strcmp(target->name, "onnx") != 0)
        convert->plan.idle = "--ot-dialect has nothing to do: the output is no .ot";
    if (convert->checksum_given && convert->checksum && !(target->caps & TC_CAN_CHECKSUM))
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
    convert->plan.order = (enum tc_order)convert->order;
    convert->plan.keep_metadata = (enum tc_keep)convert->keep;
    convert->plan.tied = (enum tc_tied)convert->tied;
    convert->plan.extra_metadata = &convert->metadata;
    convert->plan.write.checksum = convert->checksum;
    convert->plan.select = &convert->select;
    convert->common.format.select = &convert->select;
    convert->plan.policy = &convert->policy;
    convert->run.side_outputs.also = convert->maps;
    convert->run.side_outputs.also_count = convert->map_count;
    if (convert->prefix)
        convert->select.prefix = tc_text_of(convert->prefix);
    if (convert->strip_prefix)
        convert->select.strip_prefix = tc_text_of(convert->strip_prefix);
    return true;
}

/* A command's name that was mistyped was taken for a file's. */
static void hint_word(const struct arguments *arguments, struct tc_error *error) {
    const char *word = arguments->count ? arguments->names[0] : NULL;
    bool about_it = error->errnum == ENOENT ? strcmp(error->file, word ? word : "") == 0
                                            : error->class == TC_USAGE;
    if (word && about_it && !strpbrk(word, "./") && access(word, F_OK) != 0)
        hint_command(word, error, NULL);
}

static bool add_rename(void *select, const char *value, struct tc_error *error) {
    return tc_select_rename(select, value, error);
}

static bool add_map(void *context, const char *value, struct tc_error *error) {
    struct convert *convert = context;
    const char **maps = reallocarray(convert->maps, convert->map_count + 1, sizeof(char *));
    if (!maps)
        return tc_fail_memory(error);
    convert->maps = maps;
    maps[convert->map_count++] = value;
    return tc_select_map(&convert->select, value, error);
}

static bool add_dtype(void *policy, const char *value, struct tc_error *error) {
    return tc_policy_add(policy, value, error);
}

static bool add_rows(void *select, const char *value, struct tc_error *error) {
    return tc_select_rows(select, value, error);
}

static int run(int argc, char **argv, bool implicit) {
    struct convert convert = {.common = COMMON_DEFAULTS, .checksum = true, .implicit = implicit};
    struct tc_error error = {0};
    struct tc_arena arena;
    struct arguments arguments = {.arena = &arena, .record = true};
    convert.run.common = &convert.common;
    const struct option options[] = {
        {.type = OPTION_HEADING, .help = "Converting:"},
        {.name = "output",
         .letter = 'o',
         .type = OPTION_TEXT,
         .value = &convert.run.output,
         .argument = "OUT",
         .help = "the output; needed for several inputs",
         .aside = true},
        {.name = "to",
         .letter = 't',
         .type = OPTION_TEXT,
         .value = &convert.to,
         .argument = "FORMAT",
         .help = "write this format, whatever OUT's extension"},
        {.name = "compress",
         .type = OPTION_LEVEL,
         .value = &convert.plan.write.compress,
         .argument = "[=LEVEL]",
         .help = "deathtensors: zstd, 1 to 22 (3); npz: deflate, 1 to 9 (6)"},
        {.name = "checksum",
         .type = OPTION_FLAG,
         .value = &convert.checksum,
         .help = "deathtensors: with a SHA-256 footer (the default)",
         .given = &convert.checksum_given},
        {.name = "no-checksum",
         .type = OPTION_CLEAR,
         .value = &convert.checksum,
         .help = "without"},
        {.name = "shard-size",
         .type = OPTION_SIZE,
         .value = &convert.plan.shard_size,
         .argument = "SIZE",
         .help = "several files of at most SIZE each, header and all, and their index"},
        {.name = "order",
         .type = OPTION_CHOICE,
         .value = &convert.order,
         .argument = "target|source|name",
         .help = "order of the tensors (default: the target's own)",
         .choices = orders},
        {.name = "metadata",
         .type = OPTION_PAIR,
         .value = &convert.metadata,
         .argument = "KEY=VALUE",
         .help = "add or replace a metadata entry; may be given again"},
        {.name = "keep-metadata",
         .type = OPTION_CHOICE,
         .value = &convert.keep,
         .argument = "auto|sidecar|drop",
         .help = "where the target holds none: report (auto), write OUT.tconv.json",
         .choices = keeps},
        {.name = "tied",
         .type = OPTION_CHOICE,
         .value = &convert.tied,
         .argument = "auto|keep|copy|error",
         .help = "tensors that share data: shared where OUT can, else copied (auto); one kept",
         .choices = tieds},
        {.name = "onnx-external",
         .type = OPTION_FLAG,
         .value = &convert.plan.write.onnx_external,
         .help = "onnx: data in OUT.data beside the model, as it is beyond 2 GiB"},
        {.name = "ot-dialect",
         .type = OPTION_CHOICE,
         .value = &convert.ot_dialect,
         .argument = "libtorch|onnx",
         .choices = (const char *const[]){"libtorch", "onnx", NULL},
         .help = "ot: for tch and libtorch (default), or an ONNX model"},
        {.name = "densify",
         .type = OPTION_FLAG,
         .value = &convert.plan.densify,
         .help = "a sparse tensor becomes one dense tensor of its parent's name"},
        RUN_CONVERSION_OPTIONS(&convert.run),
        {.name = "no-clobber",
         .type = OPTION_FLAG,
         .value = &convert.run.convert.publish.no_clobber,
         .help = "an output that exists is an error",
         .aside = true},
        {.type = OPTION_HEADING, .help = "Changing dtypes:"},
        {.name = "dtype",
         .type = OPTION_CALL,
         .value = &convert.policy,
         .argument = "[REGEX=]DTYPE",
         .help = "of all floats (or integers, …), or of tensors that match",
         .call = add_dtype},
        {.name = "lossy",
         .type = OPTION_FLAG,
         .value = &convert.policy.lossy,
         .help = "allow conversions that may lose values"},
        {.name = "saturate",
         .type = OPTION_FLAG,
         .value = &convert.policy.saturate,
         .help = "to integers: the nearest there is, and 0 for NaN"},
        {.name = "restore-dtype",
         .type = OPTION_FLAG,
         .value = &convert.policy.restore,
         .help = "back to the dtype before an earlier promotion"},
        {.type = OPTION_HEADING, .help = "Choosing and naming tensors:"},
        {.name = "include",
         .type = OPTION_CALL,
         .value = &convert.select,
         .argument = "REGEX",
         .help = "only tensors whose name matches; may be given again",
         .call = common_include},
        {.name = "exclude",
         .type = OPTION_CALL,
         .value = &convert.select,
         .argument = "REGEX",
         .help = "without those that match",
         .call = common_exclude},
        {.name = "rows",
         .type = OPTION_CALL,
         .value = &convert.select,
         .argument = "NAME=A:B",
         .help = "of this tensor only rows A to B-1; A:, :B, -N: for the last N",
         .call = add_rows},
        {.name = "rename",
         .type = OPTION_CALL,
         .value = &convert.select,
         .argument = "s/RE/NEW/",
         .help = "new names, as sed; g, i; may be given again",
         .call = add_rename},
        {.name = "map",
         .type = OPTION_CALL,
         .value = &convert,
         .argument = "FILE",
         .help = "new names from a JSON object {old: new}",
         .call = add_map},
        {.name = "strip-prefix",
         .type = OPTION_TEXT,
         .value = &convert.strip_prefix,
         .argument = "TEXT",
         .help = "take this off the front of names that have it"},
        {.name = "prefix",
         .type = OPTION_TEXT,
         .value = &convert.prefix,
         .argument = "TEXT",
         .help = "put this before every name"},
        COMMON_OPTIONS(&convert.common),
        {.type = OPTION_END},
    };
    tc_arena_init(&arena, 0);
    tc_select_init(&convert.select);
    bool ok = options_parse(options, argc, argv, &arguments, &error);
    if (ok && convert.common.help)
        options_print_help("tconv [convert] [options] IN OUT | IN... -o OUT",
                           "Converts tensors; OUT appears whole or not at all.\n"
                           "IN or OUT - is a pipe; OUT with a slash at its end is a folder of "
                           ".npy files.",
                           options);
    else if (ok)
        ok = run_conversion_note_options(&convert.run, options, &arguments, &error) &&
             take_arguments(&convert, &arguments, &error) &&
             convert_files(&convert, arguments.names, arguments.count, &error);
    if (!ok && implicit)
        hint_word(&arguments, &error);
    int code = ok ? 0 : report_error(&error, convert.common.json);
    arguments_release(&arguments);
    run_conversion_release(&convert.run);
    free(convert.maps);
    tc_select_release(&convert.select);
    tc_policy_release(&convert.policy);
    tc_arena_release(&arena);
    return code;
}

int cmd_convert(int argc, char **argv) {
    return run(argc, argv, false);
}

int cmd_convert_implicit(int argc, char **argv) {
    return run(argc, argv, true);
}
