#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/addresses.h"
#include "cmd/common.h"
#include "cmd/convert.h"
#include "cmd/help.h"
#include "cmd/model_output.h"
#include "cmd/naming.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/run_conversion.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/convert/shard_part.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/plan/dtype_policy.h"
#include "core/plan/plan.h"
#include "core/tensor/select.h"
#include "formats/registry.h"

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

static bool check_checksum(const struct convert *convert, const struct tc_backend *target,
                           struct tc_error *error) {
    if (convert->checksum_given && convert->plan.write.checksum &&
        !(target->caps & TC_CAN_CHECKSUM))
        return tc_fail(error, TC_UNSUPPORTED, "checksum", "%s holds no checksum", target->name);
    return true;
}

static bool is_folder_name(const char *path) {
    size_t length = strlen(path);
    return length && path[length - 1] == '/';
}

/* Whether a folder that is the output gets a file for each tensor, and not one for each input:
 * with --per-tensor, and where the format holds no more than one tensor. */
static bool is_per_tensor(const struct convert *convert, const struct tc_backend *target) {
    return convert->per_tensor || !convert->to || !(target->caps & TC_CAN_HOLD_MANY);
}

static bool run_plan(struct convert *convert, struct tc_reader **readers, size_t count,
                     struct tc_error *error) {
    convert->plan.folder = is_folder_name(convert->run.output);
    if (convert->keep_shards && count == 1 && readers[0]->shard_count && !convert->plan.folder)
        convert->plan.as_input = TC_SHARDS_AS_INPUT;
    const struct tc_backend *target = find_target(convert, convert->plan.folder, error);
    if (convert->per_tensor && !convert->plan.folder)
        return tc_fail(error, TC_USAGE, "usage",
                       "--per-tensor writes a folder: the output's name ends in a slash");
    return target && check_checksum(convert, target, error) &&
           run_conversion(&convert->run, readers, count, target, &convert->plan, error);
}

/* From a model folder to a model folder; with the format of single tensors, to a file
 * a tensor. */
static bool convert_folder(struct convert *convert, const char *const *inputs, bool *done,
                           struct tc_error *error) {
    if (!convert->to) {
        tc_fail(error, TC_USAGE, "usage", "a format is needed for the folder: -t FORMAT");
        return tc_error_hint(error, "-t %s writes a file a tensor", tc_registry_for_one()->name);
    }
    const struct tc_backend *target = find_target(convert, false, error);
    *done = target != tc_registry_for_one();
    return target && (!*done || (check_checksum(convert, target, error) &&
                                 model_output_run(&convert->folder, &convert->run, inputs[0],
                                                  target, &convert->plan, error)));
}

/* Whether a model folder becomes another; if not, what a slash behind OUT would change. */
static bool is_model_folder(struct convert *convert, const char *const *inputs, size_t count,
                            bool *folder, struct tc_error *error) {
    const struct tc_format_options *options = &convert->common.format;
    size_t sources = convert->per_tensor ? 0 : count;
    bool would = false;
    bool ok = model_output_wanted(options, inputs, sources, convert->run.output, folder, error) &&
              (*folder || !convert->to ||
               model_output_wanted(options, inputs, sources, "/", &would, error));
    convert->run.convert.publish.folder_hint =
        would ? "a slash behind it makes it a model folder; or name a file in it" : NULL;
    return ok;
}

static bool convert_files(struct convert *convert, const char *const *inputs, size_t count,
                          struct tc_error *error) {
    bool done = false;
    bool folder;
    if (!is_model_folder(convert, inputs, count, &folder, error) ||
        (folder && (!convert_folder(convert, inputs, &done, error) || done)))
        return error->class == TC_OK;
    if (!model_output_check_unused(&convert->folder, error))
        return false;
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

/* OUT/STEM.EXT, or OUT/STEM/ for a file a tensor; from malloc. */
static char *output_in_folder(const struct convert *convert, const struct tc_backend *target,
                              const char *folder, const char *input) {
    struct tc_buffer path = {0};
    struct tc_text stem = tc_registry_stem(input);
    tc_buffer_add_string(&path, folder);
    tc_buffer_add_text(&path, stem);
    tc_buffer_add_string(&path, is_per_tensor(convert, target) ? "/" : target->extensions[0]);
    tc_buffer_add(&path, "", 1);
    if (path.failed)
        tc_buffer_release(&path);
    return path.bytes;
}

/* Two inputs that would become one output are refused before anything is written. */
static bool check_outputs(char *const *outputs, const char *const *inputs, size_t count,
                          struct tc_error *error) {
    struct tc_name_map names;
    bool ok = true;
    tc_name_map_init(&names, NULL);
    for (size_t i = 0; i < count && ok; i++) {
        struct tc_text output = tc_text_of(outputs[i]);
        const uint32_t *other = tc_name_map_find(&names, output);
        if (other) {
            ok = tc_fail(error, TC_USAGE, "same-place", "its output is also that of %s: %s",
                         inputs[*other], outputs[i]);
            tc_error_in_file(error, inputs[i]);
        }
        ok = ok && tc_name_map_add(&names, output, (uint32_t)i, error);
    }
    tc_name_map_release(&names);
    return ok;
}

/* Converts one input after the other; the highest exit code counts, and every error but the last
 * is printed here. */
static bool convert_one_by_one(struct convert *convert, const char *const *inputs,
                               char *const *outputs, size_t count, struct tc_error *error) {
    struct tc_error *worst = calloc(2, sizeof *worst);
    const char *folder = convert->run.output;
    bool first = true;
    if (!worst)
        return tc_fail_memory(error);
    bool made = mkdir(folder, 0777) == 0;
    if (!made && errno != EEXIST) {
        free(worst);
        tc_fail_errno(error, errno, "output-folder", "cannot make the output's folder");
        return tc_error_in_file(error, folder);
    }
    struct tc_error *own = worst + 1;
    for (size_t i = 0; i < count; i++) {
        *own = (struct tc_error){0};
        convert->run.output = outputs[i];
        tc_memory_begin_file();
        if (!convert_files(convert, inputs + i, 1, own)) {
            tc_error_in_file(own, inputs[i]);
            bool worse = own->class > worst->class;
            const struct tc_error *printed = worse ? worst : own;
            if (!first)
                report_error(printed, convert->common.json);
            if (worse)
                *worst = *own;
            first = false;
        }
    }
    convert->run.output = folder;
    *error = *worst;
    free(worst);
    if (made && !first)
        rmdir(folder); /* where nothing was written */
    return first;
}

static bool convert_into_folder(struct convert *convert, const char *const *inputs, size_t count,
                                struct tc_error *error) {
    const struct tc_backend *target = find_target(convert, true, error);
    if (!target)
        return false;
    if (convert->run.side_outputs.receipt || convert->run.side_outputs.depfile)
        return tc_fail(error, TC_USAGE, "usage",
                       "--receipt and --depfile are for one output; tconv batch has --receipts");
    char **outputs = calloc(count, sizeof(char *));
    bool ok = outputs || tc_fail_memory(error);
    for (size_t i = 0; i < count && ok; i++) {
        outputs[i] = output_in_folder(convert, target, convert->run.output, inputs[i]);
        ok = outputs[i] || tc_fail_memory(error);
    }
    ok = ok && check_outputs(outputs, inputs, count, error) &&
         convert_one_by_one(convert, inputs, outputs, count, error);
    for (size_t i = 0; outputs && i < count; i++)
        free(outputs[i]);
    free(outputs);
    return ok;
}

/* Whether each input becomes an output of its own, in a folder. */
static bool is_one_each(const struct convert *convert, size_t count) {
    struct tc_error ignored = {0};
    const struct tc_backend *target =
        is_folder_name(convert->run.output) ? find_target(convert, true, &ignored) : NULL;
    return target && !(is_per_tensor(convert, target) && (count == 1 || convert->merges));
}

static bool convert_all(struct convert *convert, const char *const *inputs, size_t count,
                        struct tc_error *error) {
    bool folder;
    if (!is_model_folder(convert, inputs, count, &folder, error))
        return false;
    return is_one_each(convert, count) && !folder
               ? convert_into_folder(convert, inputs, count, error)
               : convert_files(convert, inputs, count, error);
}

/* "3/20": the third of twenty. */
static bool parse_shard(const char *text, struct tc_shard_choice *choice, struct tc_error *error) {
    char *end = NULL;
    errno = 0;
    bool digits = text[0] >= '0' && text[0] <= '9';
    unsigned long long number = digits ? strtoull(text, &end, 10) : 0;
    unsigned long long count =
        digits && *end == '/' && end[1] >= '0' && end[1] <= '9' ? strtoull(end + 1, &end, 10) : 0;
    if (errno || !count || *end || number > count || count > TC_MAX_SHARDS) {
        tc_fail(error, TC_USAGE, "shard", "--shard: not a number and how many shards there are: %s",
                text);
        return tc_error_hint(error, "it takes K/N, such as 3/20");
    }
    choice->number = number;
    choice->count = count;
    return true;
}

static bool take_arguments(struct convert *convert, struct arguments *arguments,
                           struct tc_error *error) {
    convert->merges = convert->run.output != NULL;
    if (convert->shard && !parse_shard(convert->shard, &convert->run.shard, error))
        return false;
    if (!convert->run.output) {
        if (arguments->count > 2 && !is_folder_name(arguments->names[arguments->count - 1])) {
            tc_fail(error, TC_USAGE, "usage", "several inputs need -o OUT");
            return tc_error_hint(error, "a folder as the last name, with a slash at its end, gets "
                                        "an output for each");
        }
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
    if (!addresses_check_output(convert->run.output, error))
        return false;
    if (!convert->run.dry_run && !common_check_terminal(convert->run.output, error))
        return false;
    convert->plan.extra_metadata = &convert->metadata;
    convert->plan.select = &convert->select;
    convert->common.format.select = &convert->select;
    convert->common.format.tree = convert->plan.trees == TC_TREES_ALWAYS;
    convert->plan.policy = &convert->policy;
    naming_apply(&convert->naming, &convert->select);
    /* Blocks are shared by runs of tensors that keep their order. */
    if (convert->plan.write.align == TC_ALIGN_SHARE && !convert->order_given)
        convert->plan.order = TC_ORDER_SOURCE;
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

static const char *checksum_help(struct option_table *table) {
    struct tc_buffer text = {0};
    for (size_t i = 0; tc_registry[i]; i++)
        if (tc_registry[i]->checksum)
            tc_buffer_addf(&text, "%s%s: with %s (the default)", text.length ? "; " : "",
                           tc_registry[i]->name, tc_registry[i]->checksum);
    return common_keep_text(table, &text);
}

static void add_output_options(struct option_table *table, struct convert *convert, bool many) {
    const struct option output = TEXT_OPTION(
        "output", &convert->run.output, .letter = 'o', .argument = "OUT",
        .help = "the output; needed where several inputs become one", .not_in_receipt = true);
    const struct option rows[] = {
        TEXT_OPTION("to", &convert->to, .letter = 't', .argument = "FORMAT",
                    .help = "write this format, whatever OUT's extension"),
        common_compress_option(table, &convert->plan.write.compress),
        FLAG_OPTION("checksum", &convert->plan.write.checksum, .given = &convert->checksum_given,
                    .help = checksum_help(table)),
        CLEAR_OPTION("no-checksum", &convert->plan.write.checksum, .help = "without that checksum"),
        RUN_CONVERSION_ALIGN(&convert->plan.write.align),
        SIZE_OPTION("shard-size", &convert->plan.shard_size, .argument = "SIZE",
                    .help = "several files of at most SIZE each, header and all, and their index"),
        FLAG_OPTION("keep-shards", &convert->keep_shards,
                    .help = "in shards as the input is, where it is one in shards"),
        FLAG_OPTION("prune", &convert->run.convert.prune, .not_in_receipt = true,
                    .help = "remove shards of an earlier run that the new index does not name"),
        FLAG_OPTION("per-tensor", &convert->per_tensor,
                    .help = "OUT is a folder, and gets a file for each tensor"),
        CHOICE_OPTION("order", &convert->plan.order, run_conversion_orders,
                      .given = &convert->order_given, .argument = "target|source|name",
                      .help = "order of the tensors (default: the target's own; with "
                              "--align reflink the source's)"),
    };
    options_add(table, "Converting:", &output, many ? 0 : 1);
    options_add(table, NULL, rows, OPTION_COUNT(rows));
}

/* One job of several, which write a shard each. */
static void add_job_options(struct option_table *table, struct convert *convert) {
    const struct option rows[] = {
        TEXT_OPTION("shard", &convert->shard, .argument = "K/N", .not_in_receipt = true,
                    .help = "write only shard K of the N there are, for tconv index to join; 0: "
                            "what a model folder has besides"),
        TEXT_OPTION("plan", &convert->run.shard.plan, .argument = "DIGEST", .not_in_receipt = true,
                    .help = "with --shard: fail unless the plan is this one"),
    };
    options_add(table, NULL, rows, OPTION_COUNT(rows));
}

static void add_content_options(struct option_table *table, struct convert *convert) {
    static const char *const tied[] = {"auto", "keep", "copy", "error", NULL};
    static const char *const trees[] = {"auto", "always", "never", NULL};
    const struct option rows[] = {
        METADATA_OPTION("metadata", &convert->metadata, .argument = "KEY=VALUE",
                        .help = "add or replace a metadata entry; may be given again"),
        SELECT_OPTION("drop-metadata", &convert->select, tc_select_drop_metadata,
                      .argument = "REGEX",
                      .help = "without the file's metadata entries whose key matches"),
        CHOICE_OPTION("keep-metadata", &convert->plan.keep_metadata, run_conversion_keeps,
                      .argument = "auto|sidecar|drop",
                      .help = "auto: report what OUT can't hold; sidecar: keep that in "
                              "OUT.tconv.json; drop: write none"),
        CHOICE_OPTION(
            "tied", &convert->plan.tied, tied, .argument = "auto|keep|copy|error",
            .help = "tensors that share data: shared where OUT can, else copied (auto); one kept"),
        CHOICE_OPTION("tree", &convert->plan.trees, trees, .argument = "auto|always|never",
                      .help = "the nesting of a checkpoint is kept, in OUT or its metadata: unless "
                              "there is none (auto)"),
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

static void add_publishing_options(struct option_table *table, struct convert *convert, bool many) {
    const struct option rows[] = {
        FLAG_OPTION("no-clobber", &convert->run.convert.publish.no_clobber, .not_in_receipt = true,
                    .help = "an output that exists is an error"),
        FLAG_OPTION("skip-existing", &convert->run.skip_existing, .not_in_receipt = true,
                    .help = "leave an output that exists as it is"),
        FLAG_OPTION("update", &convert->run.update, .not_in_receipt = true,
                    .help = many
                                ? "leave an output whose receipt shows that it is up to date"
                                : "with --receipt: leave an output that it shows to be up to date"),
        FLAG_OPTION("if-changed", &convert->run.convert.if_changed, .not_in_receipt = true,
                    .help = "keep an output, and its time, where the new one is the same"),
    };
    run_conversion_add_options(table, &convert->run, many);
    options_add(table, NULL, rows, OPTION_COUNT(rows));
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
    };
    options_add(table, "Choosing and naming tensors:", rows, OPTION_COUNT(rows));
    naming_add_options(table, select, &convert->naming);
}

static void print_help(const struct convert *convert, const struct option_table *table) {
    char what[384];
    snprintf(what, sizeof what,
             "Converts tensors; OUT appears whole or not at all.\n"
             "IN or OUT - is a pipe; OUT with a slash at its end is a folder: with -t FORMAT it\n"
             "gets an output for each IN, else (or with --per-tensor) a file for each tensor, %s.",
             tc_registry_for_one()->extensions[0]);
    help_print(convert->common.help, "tconv [convert] [options] IN OUT | IN... -o OUT", what,
               table);
}

void convert_init(struct convert *convert) {
    *convert = (struct convert){.common = COMMON_DEFAULTS, .plan.write.checksum = true};
    convert->run.common = &convert->common;
    tc_select_init(&convert->select);
}

void convert_release(struct convert *convert) {
    run_conversion_release(&convert->run);
    tc_select_release(&convert->select);
    tc_policy_release(&convert->policy);
}

void convert_add_options(struct option_table *table, struct convert *convert, bool many) {
    add_output_options(table, convert, many);
    if (!many)
        add_job_options(table, convert);
    add_content_options(table, convert);
    add_publishing_options(table, convert, many);
    model_output_add_options(table, &convert->folder);
    add_dtype_options(table, &convert->policy);
    add_naming_options(table, convert);
    common_add_options(table, &convert->common);
}

static int run(int argc, char **argv, bool implicit, const struct conversion_watcher *watcher) {
    struct convert convert;
    struct tc_error error = {0};
    struct option_table table;
    struct arguments arguments = {0};
    convert_init(&convert);
    convert.implicit = implicit;
    convert.run.watcher = watcher;
    options_init(&table);
    convert_add_options(&table, &convert, false);
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && convert.common.help)
        print_help(&convert, &table);
    else if (ok)
        ok = run_conversion_note_options(&convert.run, &table, &arguments, &error) &&
             take_arguments(&convert, &arguments, &error) &&
             run_conversion_list_maps(&convert.run, &arguments, &table.arena, &error) &&
             confine(&convert, &arguments, &error) &&
             convert_all(&convert, arguments.names, arguments.count, &error);
    if (!ok && implicit)
        hint_word(&arguments, &error);
    if (!ok && watcher)
        watcher->failed(watcher->context, &error);
    int code = ok ? 0 : watcher ? (int)error.class : report_error(&error, convert.common.json);
    arguments_release(&arguments);
    convert_release(&convert);
    options_release(&table);
    return code;
}

int convert_run(int argc, char **argv, const struct conversion_watcher *watcher) {
    return run(argc, argv, false, watcher);
}

int cmd_convert(int argc, char **argv) {
    return run(argc, argv, false, NULL);
}

int cmd_convert_implicit(int argc, char **argv) {
    return run(argc, argv, true, NULL);
}
