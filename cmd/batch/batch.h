/* What the parts of `tconv batch` share: its options, its models, and what a conversion's words
 * are. */
#ifndef TCONV_CMD_BATCH_BATCH_H
#define TCONV_CMD_BATCH_BATCH_H

#include "cmd/batch/list.h"
#include "cmd/batch/log.h"
#include "cmd/convert.h"
#include "cmd/options.h"
#include "core/base/error.h"
#include "core/io/jobserver.h"

struct batch {
    struct convert convert; /* its options are those of each conversion */
    const char *files_from;
    const char *files0_from;
    uint64_t jobs; /* -j; 0: not given */
    bool resume;
    bool fail_fast;
    bool keep_going;
    bool receipts;
    bool remove;
    bool print_jobs;
    bool print_makefile;
    struct option_table table;
    struct arguments arguments;
    size_t own_rows; /* of the table, from its start: those that conversions do not have */
    struct batch_list list;
    struct batch_log log;
    struct tc_jobserver jobserver;
};

/* The words of `tconv convert` for one model: the options that were given, then the paths. */
struct batch_words {
    char **words; /* NULL at the end; from malloc, as each word is */
    int count;
    size_t capacity;
    bool failed;
};
/* `input` and `output` are the paths to be written, which need not be the model's own; with
 * `shards` the model may be one in shards. */
bool batch_words_make(struct batch_words *words, const struct batch *batch, const char *input,
                      const char *output, bool shards, struct tc_error *error);
/* Adds an option, before the paths. */
void batch_words_add_option(struct batch_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void batch_words_release(struct batch_words *words);

/* The nearest folder above a path that exists, or itself; from malloc, NULL with the error filled.
 */
char *batch_existing_folder(const char *path, struct tc_error *error);

/* How many processes may run at once. */
size_t batch_processes(const struct batch *batch);

/* Converts every model; returns the exit code. */
int batch_convert(struct batch *batch);
/* Prints commands, or rules for make, that do the same. */
int batch_print_jobs(struct batch *batch);

#endif
