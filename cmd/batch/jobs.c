/* tconv batch --jobs and --makefile: the batch as lines for sh, or as rules for make. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/batch/batch.h"
#include "cmd/batch/child.h"
#include "cmd/batch/list.h"
#include "cmd/batch/makes_way.h"
#include "cmd/batch/run.h"
#include "cmd/report.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/quote.h"
#include "core/base/text.h"
#include "core/convert/depfile.h"
#include "core/convert/shard_part.h"
#include "core/format/backend.h"
#include "core/io/listing.h"
#include "formats/registry.h"

/* How a model is split: into how many shards, and the digest of that plan. */
struct split {
    uint64_t shards; /* 0: it is one job */
    uint64_t files;  /* shards without an index that this one job writes; 0: it has one output */
    bool as_input;   /* the model may be in shards, and its output then is */
    bool folder;     /* a model folder: its job replaces what an earlier run of it left */
    bool parts;      /* a model folder in several jobs, which write into a folder of parts */
    char plan[TC_PLAN_DIGEST + 1];
    char **read; /* for a makefile: the files that are read beside the source itself */
    size_t read_count;
};

struct jobs {
    struct batch *batch;
    struct split *splits; /* by model */
    struct batch_words words;
    size_t next;
    int code;
    struct tc_buffer out;
    struct tc_buffer targets; /* of the makefile, escaped, for `all` */
    char *here;               /* the current folder */
    enum tc_quote quote;
};

/* A path that means the same wherever the job runs; from malloc. In a makefile it stays as it
 * is: that is read where it was made. */
static char *absolute(const struct jobs *jobs, const char *path) {
    char *whole = NULL;
    if (path[0] == '/' || jobs->quote == TC_QUOTE_RECIPE)
        return strdup(path);
    return asprintf(&whole, "%s/%s", jobs->here, path) < 0 ? NULL : whole;
}

static bool add_words(struct jobs *jobs, const struct batch_words *words, struct tc_error *error) {
    for (int i = 0; i < words->count; i++)
        if (!tc_quote_word(&jobs->out, tc_text_of(words->words[i]), jobs->quote, error))
            return false;
    return true;
}

/* Whether a job that runs again may replace the output's folder. */
static bool check_folder(const struct batch *batch, const char *output, struct tc_error *error) {
    bool makes_way = true;
    if (!batch->convert.folder.replace &&
        !batch_makes_way(output, batch->list.target, &makes_way, error))
        return false;
    if (makes_way)
        return true;
    tc_fail(
        error, TC_USAGE, "exists",
        "the output's folder exists, and is no model of this format: the jobs would replace it");
    tc_error_hint(error, "--replace says that they may");
    return tc_error_in_file(error, output);
}

/* `tconv index` writes the receipt of a model in several jobs: no job knows all of it. */
static void drop_receipt(struct batch_words *words) {
    int kept = 0;
    for (int i = 0; i < words->count; i++) {
        char *word = words->words[i];
        if (i < words->count - 3 &&
            (strncmp(word, "--receipt=", 10) == 0 || strcmp(word, "--update") == 0))
            free(word);
        else
            words->words[kept++] = word;
    }
    words->count = kept;
    words->words[kept] = NULL;
}

/* mkdir -p -- FOLDER && tconv convert … -- IN OUT */
static bool add_command(struct jobs *jobs, const char *input, const char *output,
                        const struct split *split, uint64_t shard, struct tc_error *error) {
    struct batch_words words;
    char *trimmed = tc_path_trim(output);
    char *folder = !trimmed ? NULL : split->parts ? strdup(trimmed) : tc_path_folder(trimmed);
    bool ok = (folder || tc_fail_memory(error)) &&
              batch_words_make(&words, jobs->batch, input, output, split->as_input, error);
    if (ok) {
        if (split->shards) {
            if (!words.failed)
                drop_receipt(&words);
            batch_words_add_option(&words, "--shard=%llu/%llu", (unsigned long long)shard,
                                   (unsigned long long)split->shards);
            batch_words_add_option(&words, "--plan=%s", split->plan);
        }
        if (split->folder && !split->parts)
            batch_words_add_option(&words, "--replace");
        tc_buffer_add_string(&jobs->out, "mkdir -p --");
        ok = (!words.failed || tc_fail_memory(error)) &&
             tc_quote_word(&jobs->out, tc_text_of(folder), jobs->quote, error);
        tc_buffer_add_string(&jobs->out, jobs->quote == TC_QUOTE_RECIPE ? " && $(TCONV) convert"
                                                                        : " && tconv convert");
        ok = ok && add_words(jobs, &words, error);
        tc_buffer_add_string(&jobs->out, "\n");
        batch_words_release(&words);
    }
    free(folder);
    free(trimmed);
    return ok;
}

/* The folder of a model folder's parts, beside the output; from malloc. */
static char *parts_path(const char *output) {
    char *trimmed = tc_path_trim(output);
    char *path = NULL;
    if (!trimmed || asprintf(&path, "%s" TC_PARTS_ENDING "/", trimmed) < 0)
        path = NULL;
    free(trimmed);
    return path;
}

/* The lines of a model; the last of a model folder copies what is no weights. */
static bool print_lines(struct jobs *jobs, const struct batch_model *model,
                        const struct split *split, struct tc_error *error) {
    char *input = absolute(jobs, model->input);
    char *output = absolute(jobs, model->output);
    char *parts = output && split->parts ? parts_path(output) : NULL;
    bool ok = (input && output && (parts || !split->parts)) || tc_fail_memory(error);
    const char *into = parts ? parts : output;
    for (uint64_t shard = 1; ok && shard <= (split->shards ? split->shards : 1); shard++)
        ok = add_command(jobs, input, into, split, shard, error);
    ok = ok && (!parts || add_command(jobs, input, into, split, 0, error));
    free(input);
    free(output);
    free(parts);
    return ok;
}

/* A name that make has no escape for is refused as one that sh has none for. */
static bool add_make_name(struct tc_buffer *text, const char *name, bool target,
                          struct tc_error *error) {
    struct tc_error *own = calloc(1, sizeof *own);
    bool ok = own && tc_depfile_add_name(text, name, target, own);
    if (own && !ok) {
        tc_fail(error, TC_UNSAFE, "quoting", "%s", own->message);
        tc_error_hint(error, "%s", own->hint);
        tc_error_in_file(error, name);
    }
    free(own);
    return ok;
}

/* The file of a shard: STEM-00001-of-COUNT.EXT beside the output; from malloc. */
static char *shard_path(const struct jobs *jobs, const char *output, uint64_t shard,
                        uint64_t shards) {
    const struct tc_backend *target = jobs->batch->list.target;
    struct tc_text stem = tc_registry_stem(output);
    char *path = NULL;
    int made =
        asprintf(&path, "%.*s%.*s-%05llu-of-%0*llu%s", (int)(tc_path_name(output) - output), output,
                 (int)stem.length, stem.bytes, (unsigned long long)shard,
                 target->sharding->count_digits, (unsigned long long)shards, target->extensions[0]);
    return made < 0 ? NULL : path;
}

/* A source beside the first; or, with `rules`, an empty rule for it, so that one that is gone does
 * not stop make. */
static bool add_source(struct jobs *jobs, const char *path, bool rule, struct tc_error *error) {
    tc_buffer_add_string(&jobs->out, rule ? "" : " ");
    bool ok = add_make_name(&jobs->out, path, rule, error);
    tc_buffer_add_string(&jobs->out, rule ? ":\n" : "");
    return ok;
}

/* The files of a model folder: all of them are sources, since the folder's own time does not show
 * that one of them changed. */
static bool add_folder_files(struct jobs *jobs, const char *folder, bool rules,
                             struct tc_error *error) {
    struct tc_listing listing;
    tc_listing_init(&listing);
    bool ok = tc_listing_read(&listing, folder, error);
    for (size_t i = 0; i < listing.count && ok; i++) {
        const struct tc_entry *entry = &listing.entries[i];
        char *path = NULL;
        if (entry->kind != TC_ENTRY_FILE)
            continue;
        ok = (asprintf(&path, "%s/%s", folder, entry->name.bytes) >= 0 || tc_fail_memory(error)) &&
             add_source(jobs, path, rules, error);
        free(path);
    }
    tc_listing_release(&listing);
    return ok;
}

/* TARGET: SOURCE, and a recipe. */
static bool add_rule(struct jobs *jobs, const struct batch_model *model, const char *target,
                     const struct split *split, uint64_t shard, struct tc_error *error) {
    char *input = tc_depfile_path(model->input);
    bool ok = (input || tc_fail_memory(error)) && add_make_name(&jobs->out, target, true, error);
    tc_buffer_add_string(&jobs->out, ": ");
    ok = ok && add_make_name(&jobs->out, input, false, error) &&
         (!model->folder || add_folder_files(jobs, input, false, error));
    tc_buffer_add_string(&jobs->out, "\n\t");
    ok = ok && add_command(jobs, model->input, model->output, split, shard, error) &&
         (!model->folder || add_folder_files(jobs, input, true, error));
    free(input);
    return ok;
}

static bool add_reads(struct jobs *jobs, const struct split *split, bool rules,
                      struct tc_error *error) {
    bool ok = true;
    for (size_t i = 0; i < split->read_count && ok; i++) {
        char *path = tc_depfile_path(split->read[i]);
        ok = path ? add_source(jobs, path, rules, error) : tc_fail_memory(error);
        free(path);
    }
    return ok;
}

/* What all outputs of a model need besides its first source: its shards, and other files that it is
 * read from. One line for all of them, since there may be as many outputs as sources. */
static bool add_reads_rule(struct jobs *jobs, const struct batch_model *model,
                           const struct split *split, const char *target, struct tc_error *error) {
    bool ok = true;
    if (!split->read_count)
        return true;
    for (uint64_t shard = 1; ok && shard <= split->shards; shard++) {
        char *path = shard_path(jobs, model->output, shard, split->shards);
        tc_buffer_add_string(&jobs->out, shard > 1 ? " " : "");
        ok = (path || tc_fail_memory(error)) && add_make_name(&jobs->out, path, true, error);
        free(path);
    }
    ok = ok && (split->shards || add_make_name(&jobs->out, target, true, error));
    tc_buffer_add_string(&jobs->out, ":");
    ok = ok && add_reads(jobs, split, false, error);
    tc_buffer_add_string(&jobs->out, "\n");
    return ok && add_reads(jobs, split, true, error);
}

/* The index needs all shards, and is joined from them. */
static bool add_index_rule(struct jobs *jobs, const struct batch_model *model,
                           const struct split *split, const char *index, struct tc_error *error) {
    bool ok = add_make_name(&jobs->out, index, true, error);
    tc_buffer_add_string(&jobs->out, ":");
    for (uint64_t shard = 1; ok && shard <= split->shards; shard++) {
        char *path = shard_path(jobs, model->output, shard, split->shards);
        tc_buffer_add_string(&jobs->out, " ");
        ok = (path || tc_fail_memory(error)) && add_make_name(&jobs->out, path, false, error);
        free(path);
    }
    tc_buffer_add_string(&jobs->out, "\n\t$(TCONV) index -q --");
    ok = ok && tc_quote_word(&jobs->out, tc_text_of(index), jobs->quote, error);
    tc_buffer_add_string(&jobs->out, "\n");
    return ok;
}

/* The name of a split model's index: OUT itself, or OUT with the ending of indices. */
static char *index_path(const struct jobs *jobs, const char *output) {
    const char *ending = jobs->batch->list.target->sharding->index_ending;
    struct tc_text text = tc_text_of(output);
    char *path = NULL;
    bool named = tc_text_ends(text, tc_text_of(ending));
    return asprintf(&path, "%s%s", output, named ? "" : ending) < 0 ? NULL : path;
}

static bool print_rules(struct jobs *jobs, const struct batch_model *model,
                        const struct split *split, struct tc_error *error) {
    char *target = split->shards  ? index_path(jobs, model->output)
                   : split->files ? shard_path(jobs, model->output, 1, split->files)
                                  : tc_path_trim(model->output);
    bool ok = target || tc_fail_memory(error);
    for (uint64_t shard = 1; ok && shard <= split->shards; shard++) {
        char *path = shard_path(jobs, model->output, shard, split->shards);
        ok = (path || tc_fail_memory(error)) && add_rule(jobs, model, path, split, shard, error);
        free(path);
    }
    ok = ok &&
         (split->shards ? add_index_rule(jobs, model, split, target, error)
                        : add_rule(jobs, model, target, split, 0, error)) &&
         add_reads_rule(jobs, model, split, target, error);
    tc_buffer_add_string(&jobs->targets, " ");
    ok = ok && add_make_name(&jobs->targets, target, false, error);
    free(target);
    return ok;
}

/* Models whose plan must be known: those that may be written in shards. For make a model folder is
 * one target. */
static bool may_split(const struct batch *batch, const struct batch_model *model) {
    if (!batch->list.target->sharding || batch->list.per_tensor || model->problem)
        return false;
    return model->folder ? !batch->print_makefile && !batch->convert.folder.merge &&
                               batch->list.target->sharding->index_ending
                         : batch->convert.plan.shard_size || model->shards;
}

/* Whether the source is read from several files, all of which make must know. */
static bool has_sources(const struct batch *batch, const struct batch_model *model) {
    return batch->print_makefile && !model->folder && !model->problem &&
           (model->shards || tc_is_folder(model->input));
}

/* Whether it must be found out that no file of the model lies out of its tree. */
static bool may_lead_out(const struct batch_model *model) {
    return model->root && model->may_lead_out && !model->problem;
}

/* Whether a model has to be planned before its jobs can be printed. */
static bool needs_plan(const struct batch *batch, const struct batch_model *model) {
    return may_split(batch, model) || has_sources(batch, model) || may_lead_out(model);
}

/* Planning: a dry run of each, in a process of its own. */

static bool next_plan(void *context, struct batch_task *task) {
    struct jobs *jobs = context;
    const struct batch *batch = jobs->batch;
    struct tc_error ignored = {0};
    while (jobs->next < batch->list.count && !needs_plan(batch, &batch->list.models[jobs->next]))
        jobs->next++;
    if (jobs->next == batch->list.count)
        return false;
    const struct batch_model *model = &batch->list.models[jobs->next];
    batch_words_release(&jobs->words);
    if (!batch_words_make(&jobs->words, batch, model->input, model->output, model->shards,
                          &ignored))
        return false;
    batch_words_add_option(&jobs->words, "--dry-run");
    *task = (struct batch_task){.number = jobs->next++,
                                .words = jobs->words.words,
                                .count = jobs->words.count,
                                .wants = {.root = model->root, .plan = true}};
    return !jobs->words.failed;
}

static void plan_moved(void *context, const struct batch_task *task,
                       const struct batch_report *report) {
    (void)context;
    (void)task;
    (void)report;
}

static bool keep_reads(struct split *split, const char *input, const struct batch_report *told) {
    split->read = calloc(told->read_count ? told->read_count : 1, sizeof *split->read);
    for (size_t i = 0; i < told->read_count && split->read; i++) {
        if (strcmp(told->read[i].path, input) == 0)
            continue;
        char *path = strdup(told->read[i].path);
        if (!path)
            return false;
        split->read[split->read_count++] = path;
    }
    return split->read != NULL;
}

/* A model that is planned for its links only may fail otherwise when its job runs. */
static bool fails_all(bool wanted, const struct tc_error *error) {
    return wanted || error->reason == TC_REASON_LINK_OUTSIDE;
}

static bool plan_failed(struct jobs *jobs, const struct batch_model *model, bool wanted,
                        const struct tc_error *why) {
    if (!fails_all(wanted, why))
        return true;
    struct tc_error *error = calloc(1, sizeof *error);
    if (!error)
        return false;
    *error = *why;
    tc_error_in_file(error, model->input);
    int code = report_error(error, false);
    jobs->code = code > jobs->code ? code : jobs->code;
    free(error);
    return true;
}

static bool plan_ended(void *context, const struct batch_task *task,
                       const struct batch_result *result) {
    struct jobs *jobs = context;
    const struct batch_report *told = &result->report;
    const struct batch_model *model = &jobs->batch->list.models[task->number];
    struct split *split = &jobs->splits[task->number];
    bool splits = may_split(jobs->batch, model);
    bool sources = has_sources(jobs->batch, model);
    if (result->crash.class || told->failed)
        return plan_failed(jobs, model, splits || sources,
                           result->crash.class ? &result->crash : told->error);
    const struct tc_sharding *sharding = jobs->batch->list.target->sharding;
    if (sources && !keep_reads(split, model->input, told))
        return false;
    if (splits && told->has_index && told->plan[0]) {
        split->shards = told->files;
        split->parts = model->folder;
        memcpy(split->plan, told->plan, sizeof split->plan);
    } else if (splits && !sharding->index_ending && told->files > 1) {
        split->files = told->files;
    }
    return true;
}

static bool make_splits(struct jobs *jobs, struct tc_error *error) {
    struct batch_runner runner = {.context = jobs,
                                  .next = next_plan,
                                  .ended = plan_ended,
                                  .moved = plan_moved,
                                  .most = 1,
                                  .jobserver = &jobs->batch->jobserver};
    const struct batch_list *list = &jobs->batch->list;
    jobs->splits = calloc(list->count, sizeof *jobs->splits);
    if (!jobs->splits)
        return tc_fail_memory(error);
    for (size_t i = 0; i < list->count; i++) {
        const struct batch_model *model = &list->models[i];
        jobs->splits[i].as_input = model->shards;
        jobs->splits[i].folder = model->folder && !jobs->batch->convert.folder.replace;
        if (model->folder && !check_folder(jobs->batch, model->output, error))
            return false;
    }
    return batch_run(&runner, error);
}

static bool print_all(struct jobs *jobs, struct tc_error *error) {
    const struct batch_list *list = &jobs->batch->list;
    for (size_t i = 0; i < list->count; i++) {
        const struct batch_model *model = &list->models[i];
        if (model->problem) {
            tc_fail(error, model->class, "source", "%s", model->problem);
            return tc_error_in_file(error, model->input);
        }
        if (!(jobs->quote == TC_QUOTE_RECIPE ? print_rules : print_lines)(jobs, model,
                                                                          &jobs->splits[i], error))
            return tc_error_in_file(error, model->input);
    }
    return tc_buffer_ok(&jobs->out, error);
}

static void release_split(struct split *split) {
    for (size_t i = 0; i < split->read_count; i++)
        free(split->read[i]);
    free(split->read);
}

int batch_print_jobs(struct batch *batch) {
    struct jobs jobs = {.batch = batch,
                        .quote = batch->print_makefile ? TC_QUOTE_RECIPE : TC_QUOTE_SHELL,
                        .here = realpath(".", NULL)};
    struct tc_error error = {0};
    bool ok = jobs.here || tc_fail_errno(&error, errno, "open", "cannot find the current folder");
    ok = ok && make_splits(&jobs, &error) && (jobs.code || print_all(&jobs, &error));
    if (ok && !jobs.code) {
        struct tc_buffer head = {0};
        if (batch->print_makefile)
            tc_buffer_addf(&head, "TCONV ?= tconv\n.PHONY: all\nall:%.*s\n",
                           (int)jobs.targets.length, jobs.targets.bytes ? jobs.targets.bytes : "");
        report_out(&head);
        report_out(&jobs.out);
    }
    tc_buffer_release(&jobs.out);
    tc_buffer_release(&jobs.targets);
    batch_words_release(&jobs.words);
    free(jobs.here);
    for (size_t i = 0; jobs.splits && i < batch->list.count; i++)
        release_split(&jobs.splits[i]);
    free(jobs.splits);
    return ok ? jobs.code : report_error(&error, batch->convert.common.json);
}
