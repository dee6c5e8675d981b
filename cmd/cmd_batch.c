#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/batch/batch.h"
#include "cmd/batch/list.h"
#include "cmd/common.h"
#include "cmd/convert.h"
#include "cmd/help.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/run_conversion.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/io/input.h"
#include "core/io/jobserver.h"
#include "core/io/thread_pool.h"
#include "core/remote/address.h"

/* Processes that one batch runs at once, whatever -j says: each takes descriptors and memory. */
#define MOST_PROCESSES 256u

/* Words */

static void add_word(struct batch_words *words, char *word) {
    if ((size_t)words->count + 2 > words->capacity) {
        size_t capacity = words->capacity ? 2 * words->capacity : 32;
        char **grown = reallocarray(words->words, capacity, sizeof(char *));
        words->failed |= !grown;
        if (grown) {
            words->words = grown;
            words->capacity = capacity;
        }
    }
    words->failed |= !word;
    if (words->failed) {
        free(word);
        return;
    }
    words->words[words->count++] = word;
    words->words[words->count] = NULL;
}

static void insert_word(struct batch_words *words, int at, char *word) {
    add_word(words, word);
    for (int i = words->count - 1; i > at && !words->failed; i--) {
        char *swapped = words->words[i];
        words->words[i] = words->words[i - 1];
        words->words[i - 1] = swapped;
    }
}

void batch_words_add_option(struct batch_words *words, const char *format, ...) {
    char option[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(option, sizeof option, format, arguments);
    va_end(arguments);
    words->failed |= length < 0 || (size_t)length >= sizeof option;
    /* Before "--" and the two paths. */
    insert_word(words, words->count > 3 ? words->count - 3 : 0, strdup(option));
}

void batch_words_release(struct batch_words *words) {
    for (int i = 0; i < words->count; i++)
        free(words->words[i]);
    free(words->words);
    *words = (struct batch_words){0};
}

/* Neither options that are the batch's own, nor those that say how it reports, nor, for a model
 * that is no folder, those of folders. */
static bool is_for_conversion(const struct batch *batch, const struct option *option, bool folder) {
    static const char *const others[] = {"json",  "progress",     "progress-fd", "help",
                                         "merge", "only-weights", "replace"};
    size_t count = folder ? 4 : OPTION_COUNT(others);
    if (option < batch->table.rows + batch->own_rows)
        return false;
    for (size_t i = 0; i < count; i++)
        if (option->name && strcmp(option->name, others[i]) == 0)
            return false;
    return true;
}

bool batch_words_make(struct batch_words *words, const struct batch *batch, const char *input,
                      const char *output, bool shards, struct tc_error *error) {
    bool folder = output[0] && output[strlen(output) - 1] == '/' && !batch->convert.per_tensor;
    *words = (struct batch_words){0};
    for (size_t i = 0; i < batch->arguments.given_count; i++) {
        const struct given *given = &batch->arguments.given[i];
        char *word = NULL;
        if (!is_for_conversion(batch, given->option, folder))
            continue;
        int made = given->value ? asprintf(&word, "--%s=%s", given->option->name, given->value)
                                : asprintf(&word, "--%s", given->option->name);
        add_word(words, made < 0 ? NULL : word);
    }
    add_word(words, strdup("--"));
    add_word(words, strdup(input));
    add_word(words, strdup(output));
    /* A model in shards becomes one in shards, where the format has them. */
    if (shards && batch->list.target->sharding && !batch->convert.plan.shard_size &&
        !batch->convert.folder.merge && output[0] && !folder && !batch->convert.per_tensor)
        batch_words_add_option(words, "--keep-shards");
    if (batch->remove) {
        batch_words_add_option(words, "--verify");
        if (batch->convert.run.strict == STRICT_NOT)
            batch_words_add_option(words, "--strict");
    }
    if (batch->receipts || batch->convert.run.update) {
        size_t length = strlen(output);
        while (length > 1 && output[length - 1] == '/')
            length--;
        char *word = NULL;
        if (asprintf(&word, "--receipt=%.*s.receipt.json", (int)length, output) < 0)
            word = NULL;
        insert_word(words, words->count - 3, word);
    }
    return !words->failed || tc_fail_memory(error);
}

/* Sources */

struct names {
    char **names;
    size_t count;
    size_t capacity;
};

static bool add_name(struct names *names, struct tc_text name, struct tc_error *error) {
    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 64;
        char **grown = reallocarray(names->names, capacity, sizeof(char *));
        if (!grown)
            return tc_fail_memory(error);
        names->names = grown;
        names->capacity = capacity;
    }
    names->names[names->count] = strndup(name.bytes, name.length);
    return names->names[names->count++] || tc_fail_memory(error);
}

static void release_names(struct names *names) {
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
}

/* Reads a list of names, which end in `end`; an empty one is passed over. */
static bool read_list(struct names *names, const char *path, char end, struct tc_error *error) {
    struct tc_input *input = tc_input_open(path, NULL, error);
    char *text = NULL;
    if (input && input->size > BATCH_MAX_LIST) {
        tc_fail(error, TC_UNSAFE, "batch-limit", "the list of files is over 256 MiB");
        tc_error_hint(error, "this limit is fixed: make several batches");
    } else if (input) {
        text = tc_input_load(input, 0, input->size, error);
    }
    bool ok = text != NULL;
    for (size_t at = 0; ok && at < input->size;) {
        const char *stop = memchr(text + at, end, input->size - at);
        size_t length = stop ? (size_t)(stop - text) - at : input->size - at;
        if (memchr(text + at, '\0', length))
            ok = tc_fail(error, TC_INVALID, "list",
                         "a name in the list of files holds a NUL: is it for --files0-from?");
        ok = ok && (length == 0 || add_name(names, (struct tc_text){text + at, length}, error));
        at += length + 1;
    }
    free(text);
    tc_input_close(input);
    return ok || tc_error_in_file(error, path);
}

static bool read_lists(const struct batch *batch, struct names *names, struct tc_error *error) {
    for (size_t i = 0; i + 1 < batch->arguments.count; i++)
        if (strcmp(batch->arguments.names[i], "-") == 0 && !read_list(names, "-", '\n', error))
            return false;
    return (!batch->files_from || read_list(names, batch->files_from, '\n', error)) &&
           (!batch->files0_from || read_list(names, batch->files0_from, '\0', error));
}

char *batch_existing_folder(const char *path, struct tc_error *error) {
    char *folder = tc_path_trim(path);
    struct stat status;
    while (folder && stat(folder, &status) != 0) {
        if (!tc_path_missing(errno)) {
            tc_fail_errno(error, errno, "output-folder", "cannot look at the output's folder");
            tc_error_in_file(error, folder);
            free(folder);
            return NULL;
        }
        char *above = tc_path_folder(folder);
        bool same = above && strcmp(above, folder) == 0;
        free(folder);
        folder = above;
        if (same)
            break;
    }
    if (!folder)
        tc_fail_memory(error);
    return folder;
}

/* Everything that is read: sources, the folders of patterns, names of lists. */
static bool confine(const struct batch *batch, const struct names *listed, struct tc_error *error) {
    size_t given = batch->arguments.count - 1;
    size_t count = given + listed->count;
    const char *destination = batch->arguments.names[given];
    struct sandbox sandbox = run_conversion_sandbox(&batch->convert.run);
    struct names inputs = {0};
    bool writes = !batch->print_jobs && !batch->print_makefile && !batch->convert.run.dry_run;
    char *existing = batch_existing_folder(destination, error);
    char *output = NULL;
    bool ok = existing && asprintf(&output, "%s/.", existing) >= 0;
    for (size_t i = 0; i < count && ok; i++) {
        const char *name = i < given ? batch->arguments.names[i] : listed->names[i - given];
        bool pattern = i < given && batch_is_pattern(name) && access(name, F_OK) != 0;
        char *folder = pattern ? batch_pattern_folder(name) : NULL;
        if (strcmp(name, "-") != 0)
            ok = (!pattern || folder) &&
                 add_name(&inputs, tc_text_of(folder ? folder : name), error);
        free(folder);
    }
    if (!ok && error->class == TC_OK)
        tc_fail_memory(error);
    sandbox.children = true;
    sandbox.packing = batch->convert.plan.write.compress;
    if (writes && ok)
        sandbox_add_output(&sandbox, output);
    if (batch->remove && ok) {
        sandbox.removed = (const char *const *)inputs.names;
        sandbox.removed_count = inputs.count;
    }
    /* What lies in DST is looked at, too. */
    ok = ok && add_name(&inputs, tc_text_of(existing), error) &&
         sandbox_enter(&sandbox, (const char *const *)inputs.names, inputs.count, error);
    release_names(&inputs);
    free(existing);
    free(output);
    return ok;
}

/* A batch makes its processes within its sandbox, which has no network. */
static bool check_local(const char *name, struct tc_error *error) {
    if (!tc_address_is(name))
        return true;
    tc_fail(error, TC_USAGE, "address", "a batch takes files of this machine");
    tc_error_hint(error, "tconv convert takes an address; tconv hub pull gets a repository");
    return tc_error_in_file(error, name);
}

static bool list_models(struct batch *batch, const struct names *listed, struct tc_error *error) {
    struct batch_list *list = &batch->list;
    size_t given = batch->arguments.count - 1;
    for (size_t i = 0; i < given; i++) {
        const char *name = batch->arguments.names[i];
        if (strcmp(name, "-") != 0 && !batch_list_add(list, name, false, error))
            return false;
    }
    for (size_t i = 0; i < listed->count; i++) {
        char *name = listed->names[i];
        /* What is secret in it is in no message. */
        if (tc_address_is(name))
            tc_address_redact(name);
        if (!check_local(name, error) || !batch_list_add(list, name, true, error))
            return false;
    }
    /* A batch with --rm that was killed at its very end has left none. */
    if (list->count == 0 && !(batch->remove && batch->resume))
        return tc_fail(error, TC_USAGE, "no-models", "there is no model in the sources");
    return batch_list_check(list, error);
}

/* Options */

static void add_own_options(struct batch *batch) {
    const struct option rows[] = {
        TEXT_OPTION("files-from", &batch->files_from, .argument = "FILE", .not_in_receipt = true,
                    .help = "also the sources that FILE lists, one a line; - is standard input"),
        TEXT_OPTION("files0-from", &batch->files0_from, .argument = "FILE", .not_in_receipt = true,
                    .help = "the same, with a NUL behind each name, as find -print0"),
        SIZE_OPTION(
            "processes", &batch->jobs, .letter = 'j', .argument = "N", .not_in_receipt = true,
            .help = "conversions at once (default: one a core; in a recipe of make -j, what "
                    "make allows)"),
        FLAG_OPTION("resume", &batch->resume, .not_in_receipt = true,
                    .help = "after a kill: pass over what the batch had done"),
        FLAG_OPTION("keep-going", &batch->keep_going, .not_in_receipt = true,
                    .help = "go on with the others after a failure (the default)"),
        FLAG_OPTION("fail-fast", &batch->fail_fast, .not_in_receipt = true,
                    .help = "begin no other after a failure"),
        FLAG_OPTION("receipts", &batch->receipts, .not_in_receipt = true,
                    .help = "write OUT.receipt.json beside each output"),
        FLAG_OPTION("rm", &batch->remove, .not_in_receipt = true,
                    .help = "remove a source once its output is verified; implies --verify "
                            "--strict"),
        FLAG_OPTION("jobs", &batch->print_jobs, .not_in_receipt = true,
                    .help = "print a command for each job, and do nothing"),
        FLAG_OPTION("makefile", &batch->print_makefile, .not_in_receipt = true,
                    .help = "print a makefile that does the same"),
    };
    options_add(&batch->table, "A batch:", rows, OPTION_COUNT(rows));
    batch->own_rows = batch->table.count;
}

size_t batch_processes(const struct batch *batch) {
    size_t most = batch->jobs                                              ? batch->jobs
                  : batch->jobserver.named && batch->jobserver.read_fd < 0 ? 1
                                                                           : tc_thread_count();
    return most < MOST_PROCESSES ? most : MOST_PROCESSES;
}

static bool take_arguments(struct batch *batch, struct tc_error *error) {
    struct convert *convert = &batch->convert;
    struct arguments *arguments = &batch->arguments;
    bool lists = batch->files_from || batch->files0_from;
    if (arguments->count < (lists ? 1u : 2u))
        return tc_fail(error, TC_USAGE, "usage", "sources and a destination are needed");
    if (!convert->to)
        return tc_fail(error, TC_USAGE, "usage", "a batch needs -t FORMAT");
    if (batch->print_jobs && batch->print_makefile)
        return tc_fail(error, TC_USAGE, "usage", "--jobs and --makefile print different things");
    if (batch->remove && (batch->print_jobs || batch->print_makefile || convert->run.dry_run))
        return tc_fail(error, TC_USAGE, "usage",
                       "--rm goes with nothing that only prints what would be done");
    if (batch->fail_fast && batch->keep_going)
        return tc_fail(error, TC_USAGE, "usage", "--fail-fast and --keep-going exclude each other");
    for (size_t i = 0; i < arguments->count; i++)
        if (!check_local(arguments->names[i], error))
            return false;
    const struct tc_backend *target = common_target(convert->to, NULL, error);
    return target &&
           batch_list_init(&batch->list, arguments->names[arguments->count - 1], target, error);
}

static int run(struct batch *batch, struct tc_error *error) {
    struct names listed = {0};
    bool ok =
        run_conversion_note_options(&batch->convert.run, &batch->table, &batch->arguments, error) &&
        take_arguments(batch, error) &&
        run_conversion_list_maps(&batch->convert.run, &batch->arguments, &batch->table.arena,
                                 error) &&
        report_progress_check(&batch->convert.run.progress, error);
    if (ok) {
        batch->list.per_tensor = batch->convert.per_tensor;
        tc_jobserver_open(&batch->jobserver, getenv("MAKEFLAGS"));
        ok = read_lists(batch, &listed, error) && confine(batch, &listed, error) &&
             list_models(batch, &listed, error);
    }
    release_names(&listed);
    int code = !ok                                          ? 0
               : batch->print_jobs || batch->print_makefile ? batch_print_jobs(batch)
                                                            : batch_convert(batch);
    tc_jobserver_close(&batch->jobserver);
    return ok ? code : report_error(error, batch->convert.common.json);
}

int cmd_batch(int argc, char **argv) {
    struct batch batch = {.log = {.fd = -1}, .jobserver = {.read_fd = -1, .write_fd = -1}};
    struct tc_error error = {0};
    int code = 0;
    convert_init(&batch.convert);
    options_init(&batch.table);
    add_own_options(&batch);
    batch.table.local = true;
    batch.table.several_processes = true;
    convert_add_options(&batch.table, &batch.convert, true);
    if (!options_parse(&batch.table, argc, argv, &batch.arguments, &error))
        code = report_error(&error, batch.convert.common.json);
    else if (batch.convert.common.help)
        help_print(
            batch.convert.common.help, "tconv batch [options] SRC... DST -t FORMAT",
            "Converts every model below SRC (files, patterns, folders, trees, - for a list\n"
            "on standard input) to its place below DST, each in a process of its own. Paths\n"
            "below a folder are kept. The exit code is the highest of all models.",
            &batch.table);
    else
        code = run(&batch, &error);
    batch_list_release(&batch.list);
    arguments_release(&batch.arguments);
    convert_release(&batch.convert);
    options_release(&batch.table);
    return code;
}
