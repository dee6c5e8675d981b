/*
 * tconv index: joins shards that jobs have written (core/convert/shard_part.h). All of
 * them must be there, be of one plan, and be what their records and the index say; then
 * the index gets its name and the records go, in one step.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common.h"
#include "cmd/help.h"
#include "cmd/index/parts.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/memory.h"
#include "core/base/name_map.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/file_sums.h"
#include "core/convert/shard_part.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/listing.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "core/tensor/table.h"
#include "formats/registry.h"

char *index_path_of(const struct joined *model, struct tc_text name, const char *ending) {
    char *path = NULL;
    size_t length = strlen(model->folder);
    bool here = strcmp(model->folder, ".") == 0;
    int made = asprintf(&path, "%s%s%.*s%s", here ? "" : model->folder,
                        here || (length && model->folder[length - 1] == '/') ? "" : "/",
                        (int)name.length, name.bytes, ending);
    return made < 0 ? NULL : path;
}

bool index_fail_in(const struct joined *model, struct tc_text name, const char *ending,
                   struct tc_error *error) {
    char *path = index_path_of(model, name, ending);
    tc_error_in_file(error, path ? path : model->folder);
    free(path);
    return false;
}

/* Records */

static bool read_record(const char *folder, struct tc_text name, struct tc_part_record *record,
                        struct tc_arena *arena, struct tc_error *error) {
    struct joined place = {.folder = folder};
    char *path = index_path_of(&place, name, "");
    if (!path)
        return tc_fail_memory(error);
    struct tc_input *input = tc_input_open(path, NULL, error);
    bool ok = input != NULL;
    if (ok && input->size > TC_PART_LIMIT) {
        ok = tc_fail(error, TC_UNSAFE, "part", "the record is over %llu bytes",
                     (unsigned long long)TC_PART_LIMIT);
        tc_error_hint(error, "this limit is fixed: a shard holds fewer tensors");
    }
    char *text = ok ? tc_input_load(input, 0, input->size, error) : NULL;
    /* The strings of the record point into the text, so that it goes to the arena. */
    char *kept = text ? tc_arena_copy(arena, text, input->size, error) : NULL;
    ok = kept && tc_part_record_read(record, (struct tc_text){kept, input->size}, arena, error);
    if (ok) {
        struct tc_text rest = {name.bytes, name.length - strlen(TC_PART_ENDING)};
        ok = tc_text_equal(rest, record->name) ||
             tc_fail(error, TC_INVALID, "part", "the record is that of another shard");
    }
    free(text);
    tc_input_close(input);
    if (!ok)
        tc_error_in_file(error, path);
    free(path);
    return ok;
}

/* Whether two records are of one run. */
static bool check_fits(const struct joined *model, const struct tc_part_record *first,
                       const struct tc_part_record *record, struct tc_error *error) {
    if (tc_text_equal(first->plan, record->plan) && tc_text_equal(first->format, record->format) &&
        first->shards == record->shards && first->folder == record->folder &&
        tc_text_equal(first->options, record->options))
        return true;
    tc_fail(error, TC_INVALID, "other-run",
            "this shard belongs to another run than %.*s: inputs, options or format differ",
            (int)first->name.length, first->name.bytes);
    tc_error_hint(error, "remove the shards of the run that is not wanted, with their records");
    return index_fail_in(model, record->name, TC_PART_ENDING, error);
}

static bool add_record(struct joined *model, const struct tc_part_record *record,
                       struct tc_arena *arena, struct tc_error *error) {
    if (!model->records) {
        model->count = (size_t)record->shards;
        model->records = tc_arena_array(arena, model->count, sizeof *model->records, error);
        if (!model->records)
            return false;
        model->is_folder = record->folder;
    }
    if (model->files && !check_fits(model, model->files, record, error))
        return false;
    for (size_t i = 0; i < model->count; i++)
        if (model->records[i].name.bytes && !check_fits(model, &model->records[i], record, error))
            return false;
    /* A folder has one record of what was copied, by its name: so there is no second. */
    if (!record->shard)
        return (model->files = tc_arena_array(arena, 1, sizeof *record, error)) &&
               ((*model->files = *record), true);
    struct tc_part_record *place = &model->records[record->shard - 1];
    if (place->name.bytes) {
        tc_fail(error, TC_INVALID, "part", "shard %" PRIu64 " occurs twice", record->shard);
        return index_fail_in(model, record->name, TC_PART_ENDING, error);
    }
    *place = *record;
    return true;
}

/* Checks */

static bool check_complete(const struct joined *model, struct tc_error *error) {
    size_t missing = 0;
    size_t first = 0;
    for (size_t i = model->count; i-- > 0;)
        if (!model->records[i].name.bytes) {
            missing++;
            first = i + 1;
        }
    if (!missing && (model->files || !model->is_folder))
        return true;
    if (!missing)
        tc_fail(error, TC_INVALID, "missing-shard",
                "the files that the folder has besides are missing: those of --shard 0/%zu",
                model->count);
    else
        tc_fail(error, TC_INVALID, "missing-shard",
                "%zu of %zu shards %s missing, the first is %zu", missing, model->count,
                missing == 1 ? "is" : "are", first);
    tc_error_hint(error, "run the jobs that are missing, then this again");
    return index_fail_in(model, model->index, "", error);
}

static bool check_file(const struct join *join, const struct joined *model,
                       const struct tc_part_record *record, struct tc_error *error) {
    char hex[2 * TC_SHA256_BYTES + 1];
    char *path = index_path_of(model, record->name, "");
    struct tc_input *input = path ? tc_input_open(path, NULL, error) : NULL;
    bool ok = path ? input != NULL : tc_fail_memory(error);
    if (ok && input->size != record->size)
        ok = tc_fail(error, TC_INVALID, "shard-size",
                     "the shard is not what its job wrote (got %" PRIu64 " bytes, expected %" PRIu64
                     ")",
                     input->size, record->size);
    if (ok && join->verify && record->has_sum)
        ok = tc_input_sum(input, hex, error) &&
             (strcmp(hex, record->sum) == 0 ||
              tc_fail(error, TC_INVALID, "sha256", "the shard is not what its job wrote"));
    tc_input_close(input);
    if (!ok && path)
        tc_error_in_file(error, path);
    free(path);
    return ok;
}

/* Every tensor that the jobs say they wrote is in the model, as they say, and in one shard. */
static bool check_tensors(struct joined *model, const struct tc_reader *reader,
                          struct tc_error *error) {
    struct tc_name_map names;
    bool ok = true;
    tc_name_map_init(&names, NULL);
    for (size_t r = 0; r < model->count && ok; r++) {
        const struct tc_part_record *record = &model->records[r];
        for (size_t i = 0; i < record->tensor_count && ok; i++) {
            const struct tc_part_tensor *part = &record->tensors[i];
            const struct tc_tensor *tensor = tc_table_find(&reader->table, part->name);
            ok = tc_name_map_add(&names, part->name, (uint32_t)r, error) &&
                 ((tensor && tensor->dtype == part->dtype && tensor->rank == part->rank &&
                   (!part->rank ||
                    memcmp(tensor->shape, part->shape, part->rank * sizeof *part->shape) == 0)) ||
                  tc_fail(error, TC_INVALID, "shard-tensor",
                          "the shard does not hold this tensor as its job wrote it"));
            if (!ok) {
                tc_error_in_tensor(error, part->name.bytes, part->name.length);
                index_fail_in(model, record->name, "", error);
            }
        }
        model->tensors += record->tensor_count;
    }
    tc_name_map_release(&names);
    return ok;
}

/* Opens the model by the index that is not published yet. */
static struct tc_reader *open_model(const struct join *join, const struct joined *model,
                                    struct tc_error *error) {
    char *path = index_path_of(model, model->index, TC_PART_INDEX_ENDING);
    char *name = strndup(model->index.bytes, model->index.length);
    const struct tc_backend *backend = name ? tc_registry_for_path(name) : NULL;
    struct tc_reader *reader = NULL;
    if (!path || !name)
        tc_fail_memory(error);
    else if (!backend)
        tc_fail(error, TC_INVALID, "part", "the index has no format's extension: %s", name);
    else
        reader = tc_registry_open(path, backend, &join->common.format, error);
    free(path);
    free(name);
    return reader;
}

/* Publishing */

static bool copy_index(const struct joined *model, struct tc_publish *publish,
                       struct tc_error *error) {
    char *path = index_path_of(model, model->index, TC_PART_INDEX_ENDING);
    char *name = strndup(model->index.bytes, model->index.length);
    struct tc_input *part = path ? tc_input_open(path, NULL, error) : NULL;
    bool ok = (path && name) ? part != NULL : tc_fail_memory(error);
    ok = ok && tc_publish_set_head(publish, name, error) &&
         tc_publish_check(publish, name, &part, 1, error);
    struct tc_outfile *out = ok ? tc_outfile_open(publish, name, error) : NULL;
    ok = out && tc_outfile_copy(out, part, 0, part->size, error) && tc_outfile_seal(out, error) &&
         tc_publish_remove(publish, tc_path_name(path), error);
    tc_input_close(part);
    free(path);
    free(name);
    return ok;
}

/* The index gets its name, and the records go. */
static bool place_index(const struct join *join, const struct joined *model, const char *path,
                        struct tc_publish *publish, struct tc_error *error) {
    struct tc_publish_options options = {.no_sync = join->no_sync};
    bool ok =
        tc_publish_begin(publish, path, false, options, error) && copy_index(model, publish, error);
    for (size_t i = 0; i < model->count && ok; i++) {
        char *record = index_path_of(model, model->records[i].name, TC_PART_ENDING);
        ok = record ? tc_publish_remove(publish, tc_path_name(record), error)
                    : tc_fail_memory(error);
        free(record);
    }
    return ok;
}

/* All parts come into a new folder, which gets its name in one step. */
static bool place_folder(const struct join *join, const struct joined *model,
                         const struct tc_listing *listing, const char *path,
                         struct tc_publish *publish, struct tc_error *error) {
    struct tc_publish_options options = {.no_sync = join->no_sync,
                                         .whole_folder = true,
                                         .replace_folder = true,
                                         .folder_mode = (mode_t)model->files->mode};
    char *name = strndup(model->index.bytes, model->index.length);
    bool ok = name ? index_folder_check_target(join, model, path, error) : tc_fail_memory(error);
    ok = ok && tc_publish_begin(publish, path, true, options, error) &&
         tc_publish_set_head(publish, name, error) &&
         index_folder_gather(model, listing, publish, error);
    free(name);
    return ok;
}

static bool publish_model(const struct join *join, const struct joined *model,
                          const struct tc_listing *listing, const char *path,
                          struct tc_error *error) {
    struct tc_publish publishes[2] = {{.folder_fd = -1}, {.folder_fd = -1}};
    struct tc_publish *both[2] = {&publishes[0], &publishes[1]};
    bool receipt = join->receipt || join->receipts;
    bool ok = (model->is_folder ? place_folder(join, model, listing, path, &publishes[0], error)
                                : place_index(join, model, path, &publishes[0], error)) &&
              index_add_receipt(join, model, path, &publishes[1], error) &&
              tc_publish_commit_all(both, receipt ? 2 : 1, error);
    tc_publish_end(&publishes[0]);
    tc_publish_end(&publishes[1]);
    if (ok && model->is_folder && !index_folder_remove(model->folder)) {
        struct tc_buffer line = {0};
        tc_buffer_add_string(&line, "tconv: warning: ");
        tc_buffer_add_visible(&line, tc_text_of(model->folder));
        tc_buffer_add_string(&line, ": the parts are joined, but could not all be removed\n");
        report_err(&line);
        tc_memory_settle();
    }
    return ok;
}

static void report_joined(const struct join *join, const struct joined *model, const char *path) {
    struct tc_buffer out = {0};
    if (join->common.json) {
        struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "index", path);
        tc_json_add_number(&json, "shards", model->count);
        tc_json_add_number(&json, "tensors", model->tensors);
        tc_json_add_number(&json, "size", model->size);
        if (model->digest[0])
            tc_json_add_string(&json, "digest", model->digest);
        tc_json_end_line(&json);
    } else if (!join->common.quiet) {
        tc_buffer_add_visible(&out, tc_text_of(path));
        tc_buffer_addf(&out, ": %zu shards, %zu tensors, ", model->count, model->tensors);
        report_size(&out, model->size);
        tc_buffer_add_string(&out, "\n");
    }
    report_out(&out);
}

static bool join_model(const struct join *join, struct joined *model,
                       const struct tc_listing *listing, struct tc_error *error) {
    char *target = model->is_folder ? index_folder_target(model->folder, error) : NULL;
    bool ok = (target || !model->is_folder) && check_complete(model, error) &&
              (!model->is_folder || index_folder_check(join, model, listing, error));
    for (size_t i = 0; i < model->count && ok; i++) {
        model->size += model->records[i].size;
        ok = check_file(join, model, &model->records[i], error);
    }
    struct tc_reader *reader = ok ? open_model(join, model, error) : NULL;
    ok = reader && check_tensors(model, reader, error) &&
         (!(join->receipt || join->receipts) || index_make_digest(model, reader, error));
    tc_reader_close(reader);
    char *path = ok && !target ? index_path_of(model, model->index, "") : target;
    ok = ok && (path ? publish_model(join, model, listing, path, error) : tc_fail_memory(error));
    if (ok)
        report_joined(join, model, path);
    free(path);
    return ok;
}

/* Folders */

/* The model of an index, in the list or new in it. */
static struct joined *find_model(struct joined *models, size_t *count, const char *folder,
                                 struct tc_text index) {
    for (size_t i = 0; i < *count; i++)
        if (tc_text_equal(models[i].index, index))
            return &models[i];
    models[*count] = (struct joined){.folder = folder, .index = index};
    return &models[(*count)++];
}

/* What lies there: nothing that could be joined. */
static bool join_nothing(const struct join *join, const char *folder, bool joined,
                         struct tc_error *error) {
    struct tc_buffer line = {0};
    if (!joined) {
        tc_fail(error, TC_USAGE, "no-parts", "there are no shards here that jobs have written");
        tc_error_hint(error, "tconv batch --jobs prints the jobs that write them");
        return tc_error_in_file(error, folder);
    }
    if (!join->common.quiet) {
        tc_buffer_add_string(&line, "tconv: note: ");
        tc_buffer_add_visible(&line, tc_text_of(folder));
        tc_buffer_add_string(&line, ": nothing is left to join\n");
        report_err(&line);
    }
    return true;
}

/* Joins all models of a folder, or the one that `only` names (no bytes: all), and counts them. */
static bool join_folder(const struct join *join, const char *folder, struct tc_text only,
                        size_t *all, struct tc_error *error) {
    struct tc_listing listing;
    struct tc_arena arena;
    size_t count = 0;
    tc_listing_init(&listing);
    tc_arena_init(&arena, 0);
    /* One that was killed may have taken the records away. */
    tc_publish_recover_folder(folder);
    index_folder_clean(folder);
    bool ok = tc_listing_read(&listing, folder, error);
    struct joined *models =
        ok ? tc_arena_array(&arena, listing.count + 1, sizeof *models, error) : NULL;
    ok = models != NULL;
    for (size_t i = 0; i < listing.count && ok; i++) {
        struct tc_part_record record;
        struct tc_text name = listing.entries[i].name;
        if (!tc_text_ends(name, TC_TEXT(TC_PART_ENDING)) ||
            listing.entries[i].kind != TC_ENTRY_FILE)
            continue;
        ok = read_record(folder, name, &record, &arena, error) &&
             ((only.bytes && !tc_text_equal(only, record.index)) ||
              add_record(find_model(models, &count, folder, record.index), &record, &arena, error));
    }
    *all += count;
    if (ok && count > 1 && join->receipt)
        ok = tc_fail(error, TC_USAGE, "usage",
                     "--receipt is for one model, and here are %zu: name an index", count);
    for (size_t i = 0; i < count && ok; i++) {
        tc_memory_begin_file();
        if (count > 1 && models[i].is_folder) {
            ok = tc_fail(error, TC_INVALID, "other-run", "here are the parts of several models");
            tc_error_hint(error, "remove those of the run that is not wanted");
            tc_error_in_file(error, folder);
        }
        ok = ok && join_model(join, &models[i], &listing, error);
    }
    tc_arena_release(&arena);
    tc_listing_release(&listing);
    return ok;
}

/* The folder of the parts of a model folder that the user names, whether that is there or not; from
 * malloc, NULL where there is none. */
static char *parts_beside(const char *name) {
    char *trimmed = tc_path_trim(name);
    char *path = NULL;
    if (!trimmed || asprintf(&path, "%s" TC_PARTS_ENDING, trimmed) < 0)
        path = NULL;
    free(trimmed);
    if (path && tc_is_folder(path))
        return path;
    free(path);
    return NULL;
}

/* Joins what lies in these folders; a failure does not keep the others from being joined, and the
 * worst one is the caller's to report. */
static bool join_each(const struct join *join, const struct index_folders *folders, size_t *models,
                      struct tc_error *error) {
    struct tc_text all = {0};
    for (size_t i = 0; i < folders->count; i++) {
        struct tc_error own = {0};
        if (join_folder(join, folders->paths[i], all, models, &own))
            continue;
        bool worse = own.class > error->class;
        if (error->class != TC_OK)
            report_error(worse ? error : &own, join->common.json);
        if (worse)
            *error = own;
    }
    return error->class == TC_OK;
}

/* Joins what lies in a folder and below it. */
static bool join_tree(const struct join *join, const char *top, struct tc_error *error) {
    struct index_folders folders;
    size_t models = 0;
    tc_publish_recover_folder(top);
    index_folder_clean(top);
    bool ok = index_find_folders(&folders, top, error);
    if (ok && folders.count > 1 && join->receipt)
        ok = tc_fail(error, TC_USAGE, "usage",
                     "--receipt is for one model, and here are several: name one, or --receipts");
    ok = ok && join_each(join, &folders, &models, error) &&
         (models || join_nothing(join, top, folders.shards, error));
    index_folders_release(&folders);
    return ok;
}

/* It is no folder, no index, and nothing that the parts here would become. */
static bool fail_missing(const char *name, struct tc_error *error) {
    tc_fail_errno(error, ENOENT, "open", "cannot open");
    tc_error_hint(error, "tconv batch --jobs prints the jobs that write what is joined");
    return tc_error_in_file(error, name);
}

static bool join_one(const struct join *join, const char *name, struct tc_error *error) {
    struct stat status;
    /* An index need not be there yet. */
    bool there = stat(name, &status) == 0;
    if (!there && !tc_path_missing(errno)) {
        tc_fail_errno(error, errno, "open", "cannot open");
        return tc_error_in_file(error, name);
    }
    char *parts = parts_beside(name);
    if (parts) {
        bool ok = join_tree(join, parts, error);
        free(parts);
        return ok;
    }
    if (there && S_ISDIR(status.st_mode))
        return join_tree(join, name, error);
    char *folder = tc_path_folder(name);
    size_t models = 0;
    bool ok = folder ? join_folder(join, folder, tc_text_of(tc_path_name(name)), &models, error)
                     : tc_fail_memory(error);
    if (ok && !models)
        ok = there ? join_nothing(join, folder, true, error) : fail_missing(name, error);
    free(folder);
    return ok;
}

static bool is_parts(const char *name) {
    char *trimmed = tc_path_trim(name);
    bool parts = trimmed && tc_text_ends(tc_text_of(trimmed), TC_TEXT(TC_PARTS_ENDING));
    free(trimmed);
    return parts;
}

/* A folder is written itself, and nothing beside it, unless it is one of parts. More than the
 * sandbox has places for are several commands. */
static bool confine(const struct join *join, const struct arguments *arguments,
                    struct tc_error *error) {
    struct sandbox sandbox = common_sandbox(&join->common);
    char *inside[SANDBOX_OUTPUTS] = {0};
    bool ok = arguments->count + 1 <= SANDBOX_OUTPUTS ||
              tc_fail(error, TC_USAGE, "usage", "at most %d folders at once", SANDBOX_OUTPUTS - 1);
    for (size_t i = 0; i < arguments->count && ok; i++) {
        const char *name = arguments->names[i];
        char *parts = parts_beside(name);
        bool itself = tc_is_folder(name) && !parts && !is_parts(name);
        free(parts);
        if (asprintf(&inside[i], "%s%s", name, itself ? "/." : "") < 0) {
            inside[i] = NULL;
            ok = tc_fail_memory(error);
        }
        sandbox_add_output(&sandbox, inside[i]);
    }
    sandbox_add_output(&sandbox, join->receipt);
    ok = ok && sandbox_enter(&sandbox, arguments->names, arguments->count, error);
    for (size_t i = 0; i < SANDBOX_OUTPUTS; i++)
        free(inside[i]);
    return ok;
}

int cmd_index(int argc, char **argv) {
    struct join join = {.common = COMMON_DEFAULTS};
    struct option_table table;
    const struct option rows[] = {
        FLAG_OPTION("verify", &join.verify,
                    .help = "hash shards again, where their jobs were run with --verify"),
        TEXT_OPTION("receipt", &join.receipt, .argument = "FILE",
                    .help = "write a receipt of the whole model"),
        FLAG_OPTION("receipts", &join.receipts, .help = "write OUT.receipt.json beside each model"),
        FLAG_OPTION("replace", &join.replace,
                    .help = "put a model folder in the place of one that is there, whatever it is"),
        FLAG_OPTION("no-sync", &join.no_sync, .help = "do not wait for the disk"),
    };
    options_init(&table);
    options_add(&table, NULL, rows, OPTION_COUNT(rows));
    common_add_options(&table, &join.common);
    struct tc_error error = {0};
    struct arguments arguments = {0};
    int code = 0;
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    if (ok && join.common.help)
        help_print(join.common.help, "tconv index [options] FOLDER|INDEX...",
                   "Joins what the jobs of tconv batch --jobs have written, in FOLDER and below:\n"
                   "checks that all shards are there and belong together, then writes the index;\n"
                   "the parts of a model folder become that folder.",
                   &table);
    else if (ok && arguments.count == 0)
        ok = tc_fail(&error, TC_USAGE, "usage", "no folder given");
    else if (ok)
        ok = confine(&join, &arguments, &error);
    if (!ok)
        code = report_error(&error, join.common.json);
    for (size_t i = 0; ok && !join.common.help && i < arguments.count; i++) {
        struct tc_error own = {0};
        if (!join_one(&join, arguments.names[i], &own)) {
            int its = report_error(&own, join.common.json);
            code = its > code ? its : code;
        }
    }
    arguments_release(&arguments);
    options_release(&table);
    return code;
}
