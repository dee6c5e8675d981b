#include "cmd/model_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "cmd/side_outputs.h"
#include "core/base/arena.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/convert/shard_part.h"
#include "core/format/reader.h"
#include "core/io/listing.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "core/remote/address.h"
#include "formats/model_copy.h"
#include "formats/model_folder.h"
#include "formats/model_name.h"
#include "formats/model_open.h"

struct work {
    const struct model_output *options;
    struct run_conversion *run;
    const char *input;
    const struct model *model;
    const struct tc_reader *reader;
    const char *folder; /* the output */
    mode_t mode;        /* of the input's folder */
    bool made;          /* the folder of parts, by this job */
    struct model_copy copy;
    struct tc_arena arena;
};

void model_output_add_options(struct option_table *table, struct model_output *output) {
    const struct option rows[] = {
        FLAG_OPTION("only-weights", &output->only_weights,
                    .help = "copy no other files: neither configuration nor tokenizer"),
        FLAG_OPTION("merge", &output->merge, .help = "one file, though the input is in shards"),
        FLAG_OPTION("replace", &output->replace, .not_in_receipt = true,
                    .help = "put the new folder in the place of one that is there"),
    };
    options_add(table, "From a model folder to a model folder:", rows, OPTION_COUNT(rows));
}

bool model_output_wanted(const struct tc_format_options *options, const char *const *inputs,
                         size_t count, const char *output, bool *wanted, struct tc_error *error) {
    size_t length = strlen(output);
    struct stat status;
    *wanted = false;
    if (count != 1 || !length || output[length - 1] != '/')
        return true;
    if (tc_address_is(inputs[0])) {
        *wanted = model_is_folder(inputs[0], options);
        return true;
    }
    if (stat(inputs[0], &status) == 0) {
        *wanted = S_ISDIR(status.st_mode);
        return true;
    }
    /* Whoever opens what is missing says so. */
    if (tc_path_missing(errno))
        return true;
    tc_fail_errno(error, errno, "open", "cannot open");
    return tc_error_in_file(error, inputs[0]);
}

bool model_output_check_unused(const struct model_output *output, struct tc_error *error) {
    const char *name = output->only_weights ? "--only-weights"
                       : output->merge      ? "--merge"
                       : output->replace    ? "--replace"
                                            : NULL;
    if (!name)
        return true;
    tc_fail(error, TC_USAGE, "usage", "%s is for a model folder that becomes another", name);
    return tc_error_hint(error, "tconv DIR OUTDIR/ -t FORMAT");
}

/* A path without links, also where its last part is not there yet; from malloc. */
static char *resolve(const char *path) {
    char *real = realpath(path, NULL);
    if (real || !tc_path_missing(errno))
        return real;
    char *trimmed = tc_path_trim(path);
    char *folder = trimmed ? tc_path_folder(trimmed) : NULL;
    char *parent = folder ? realpath(folder, NULL) : NULL;
    if (parent &&
        asprintf(&real, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, tc_path_name(trimmed)) < 0)
        real = NULL;
    free(parent);
    free(folder);
    free(trimmed);
    return real;
}

static bool is_within(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Neither folder may lie in the other: one would be copied into itself, or removed
 * with the folder that the output replaces. */
static bool check_apart(const char *input, const char *output, struct tc_error *error) {
    if (tc_address_is(input))
        return true;
    char *from = resolve(input);
    char *to = from ? resolve(output) : NULL;
    int failed = from && to ? 0 : errno;
    bool apart = from && to && !is_within(from, to) && !is_within(to, from);
    /* Where the output's own folder is missing, whoever begins to write says so. */
    apart = apart || (from && tc_path_missing(failed));
    free(from);
    free(to);
    if (apart)
        return true;
    if (failed) {
        tc_fail_errno(error, failed, "open", "cannot tell where the folders lie");
        return tc_error_in_file(error, input);
    }
    tc_fail(error, TC_USAGE, "same-file",
            "the output is the input's folder, or one is in the other");
    return tc_error_in_file(error, output);
}

/* Decides what is copied; receipt and depfile name these files, too. */
static bool plan_more(void *context, struct tc_plan *plan, struct tc_error *error) {
    struct work *work = context;
    struct model_copy *copy = &work->copy;
    struct side_outputs *side = &work->run->side_outputs;
    const struct tc_shard_choice *shard = &work->run->shard;
    /* A job that writes a shard copies nothing; that of shard 0 copies all. */
    bool only_weights = work->options->only_weights || (shard->count && shard->number);
    if (!model_copy_list(copy, work->input, work->model, work->reader, only_weights, plan, error))
        return false;
    const char **also =
        tc_arena_array(&work->arena, side->also_count + copy->count, sizeof *also, error);
    size_t count = 0;
    for (; also && count < side->also_count; count++)
        also[count] = side->also[count];
    for (size_t i = 0; also && i < copy->count; i++) {
        struct tc_buffer path = {0};
        if (copy->entries[i].is_folder)
            continue;
        tc_buffer_addf(&path, "%s/%s", work->input, copy->entries[i].name);
        also[count] = tc_buffer_ok(&path, error)
                          ? tc_arena_copy(&work->arena, path.bytes, path.length, error)
                          : NULL;
        tc_buffer_release(&path);
        if (!also[count++])
            return false;
    }
    side->also = also;
    side->also_count = count;
    return also != NULL;
}

static bool write_more(void *context, struct tc_publish *publish, struct tc_error *error) {
    struct work *work = context;
    const struct tc_convert_options *convert = &work->run->convert;
    struct model_copy *copy = &work->copy;
    copy->sums = convert->read_back;
    if (!model_copy_write(copy, publish, error))
        return false;
    if (convert->read_back && work->run->disturb_copies)
        work->run->disturb_copies(publish);
    return !convert->read_back || model_copy_check(copy, publish, error);
}

/* What the record says of the files that were copied. */
static struct tc_part_file *list_copied(struct work *work, struct tc_error *error) {
    const struct model_copy *copy = &work->copy;
    struct tc_part_file *files =
        tc_arena_array(&work->arena, copy->count + 1, sizeof *files, error);
    for (size_t i = 0; files && i < copy->count; i++) {
        const struct model_copy_entry *entry = &copy->entries[i];
        files[i] = (struct tc_part_file){.name = tc_text_of(entry->name),
                                         .is_folder = entry->is_folder,
                                         .size = entry->size,
                                         .mode = entry->mode,
                                         .has_sum = copy->sums && !entry->is_folder};
        tc_hex(entry->sum, TC_SHA256_BYTES, files[i].sum);
    }
    return files;
}

/* The files besides the weights, as a folder in the folder of parts, and the record of them: both
 * are there, or neither. */
static bool publish_files(struct work *work, const struct tc_plan *plan,
                          const struct tc_shard_part *part, struct tc_publish *files,
                          struct tc_publish *record, struct tc_error *error) {
    struct tc_publish *both[2] = {files, record};
    struct tc_buffer text = {0};
    struct tc_buffer name = {0};
    bool ok = write_more(work, files, error);
    struct tc_part_file *copied = ok ? list_copied(work, error) : NULL;
    tc_buffer_addf(&name, "%s" TC_PARTS_FILES_ENDING TC_PART_ENDING, part->index_name);
    ok =
        copied && tc_buffer_ok(&name, error) &&
        tc_shard_part_print_files(&text, part, plan, copied, work->copy.count, work->mode, error) &&
        tc_publish_check(record, name.bytes, NULL, 0, error) &&
        tc_publish_text(record, name.bytes, &text, error) && tc_publish_commit_all(both, 2, error);
    tc_buffer_release(&text);
    tc_buffer_release(&name);
    return ok;
}

static bool write_files(void *context, struct tc_plan *plan, const struct tc_shard_part *part,
                        struct tc_error *error) {
    struct work *work = context;
    struct tc_publish_options beside = work->run->convert.publish;
    struct tc_publish_options whole = beside;
    struct tc_publish files = {.folder_fd = -1};
    struct tc_publish record = {.folder_fd = -1};
    struct tc_buffer path = {0};
    /* What an earlier run of this job left makes way. */
    whole.whole_folder = true;
    whole.replace_folder = true;
    whole.folder_mode = work->mode;
    tc_buffer_addf(&path, "%s" TC_PARTS_FILES "/", work->folder);
    bool ok = tc_buffer_ok(&path, error) &&
              tc_publish_begin(&record, work->folder, true, beside, error) &&
              tc_publish_begin(&files, path.bytes, true, whole, error) &&
              publish_files(work, plan, part, &files, &record, error);
    tc_publish_end(&files);
    tc_publish_end(&record);
    tc_buffer_release(&path);
    return ok;
}

/* The path of the weights in the output's folder. */
static const char *weights_path(struct work *work, const struct tc_backend *target,
                                struct tc_error *error) {
    struct tc_buffer path = {0};
    bool arrays = work->model->form == MODEL_ARRAYS;
    tc_buffer_add_string(&path, work->run->output);
    model_name_converted(&work->model->name, arrays ? "model" : NULL, target, &path);
    const char *kept = tc_buffer_ok(&path, error)
                           ? tc_arena_copy(&work->arena, path.bytes, path.length, error)
                           : NULL;
    tc_buffer_release(&path);
    return kept;
}

/* The folder of parts lets in nobody whom the input's folder keeps out, whoever made it. */
static bool limit_folder(struct work *work, struct tc_error *error) {
    struct stat status;
    mode_t most = work->mode ? work->mode | 0700 : 0777;
    work->made = mkdir(work->folder, most) == 0;
    int fd =
        work->made || errno == EEXIST ? open(work->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool ok = fd >= 0 && fstat(fd, &status) == 0 &&
              ((status.st_mode & 0777 & ~most) == 0 || fchmod(fd, status.st_mode & most) == 0);
    if (!ok) {
        tc_fail_errno(error, errno, "output-folder", "cannot make the folder of parts");
        tc_error_in_file(error, work->folder);
    }
    if (fd >= 0)
        close(fd);
    if (!ok && work->made)
        rmdir(work->folder);
    return ok;
}

static bool convert_model(struct work *work, struct tc_reader *reader,
                          const struct tc_backend *target, struct tc_plan_options *options,
                          struct tc_error *error) {
    struct run_conversion *run = work->run;
    /* A folder by the network has no permissions of its own: umask's are the output's then. */
    struct stat status = {0};
    if (!tc_address_is(work->input) && stat(work->input, &status) != 0) {
        tc_fail_errno(error, errno, "open", "cannot open");
        return tc_error_in_file(error, work->input);
    }
    struct tc_text variant = work->model->name.variant;
    const char *folder = run->output;
    work->reader = reader;
    run->output = weights_path(work, target, error);
    if (!run->output)
        return false;
    /* Arrays are no shards: a file a tensor is what they are without an index. */
    if (!work->options->merge && work->model->form != MODEL_ARRAYS)
        options->as_input = TC_SHARDS_AS_INPUT;
    if (variant.bytes)
        options->variant = tc_arena_copy(&work->arena, variant.bytes, variant.length, error);
    if (variant.bytes && !options->variant)
        return false;
    run->plan_more = plan_more;
    run->more = work;
    work->folder = folder;
    work->mode = status.st_mode & 0777;
    if (run->shard.count) {
        if (!run->dry_run && !limit_folder(work, error))
            return false;
        run->shard.folder = true;
        run->write_files = write_files;
    } else {
        run->convert.publish.whole_folder = true;
        run->convert.publish.replace_folder = work->options->replace;
        run->convert.publish.folder_mode = work->mode;
        run->write_more = write_more;
    }
    bool ok = run_conversion(run, &reader, 1, target, options, error);
    run->plan_more = NULL;
    run->write_more = NULL;
    run->write_files = NULL;
    if (!ok && work->made)
        rmdir(folder); /* where nothing was written */
    run->output = folder;
    return ok;
}

bool model_output_run(const struct model_output *output, struct run_conversion *run,
                      const char *input, const struct tc_backend *target,
                      struct tc_plan_options *options, struct tc_error *error) {
    struct work work = {.options = output, .run = run, .input = input};
    struct tc_listing listing;
    struct model_folder folder;
    struct tc_reader *reader = NULL;
    if (output->merge && options->shard_size)
        return tc_fail(error, TC_USAGE, "usage", "--merge and --shard-size exclude each other");
    if (!check_apart(input, run->output, error))
        return false;
    tc_arena_init(&work.arena, 0);
    bool ok = common_find_model(run->common, input, &listing, &folder, error);
    if (ok)
        work.model = &folder.models[0];
    reader = ok ? common_open_model(run->common, input, &folder, error) : NULL;
    if (reader)
        report_warnings(reader, run->common->quiet, run->common->verbose);
    else
        sandbox_hint(error);
    ok = reader && convert_model(&work, reader, target, options, error);
    tc_reader_close(reader);
    model_copy_release(&work.copy);
    model_folder_release(&folder);
    tc_listing_release(&listing);
    tc_arena_release(&work.arena);
    return ok;
}
