/*
 * Carries out a plan: the data goes from the readers to a writer in one stream of
 * bounded memory, and the output appears only when all of it is correct. Call these
 * functions in the main thread; they start and end the threads that they need.
 */
#ifndef TCONV_CORE_CONVERT_CONVERT_H
#define TCONV_CORE_CONVERT_CONVERT_H

#include "core/base/error.h"
#include "core/convert/file_sums.h"
#include "core/convert/read_back.h"
#include "core/io/input.h"
#include "core/io/progress.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"

struct tc_convert_options {
    struct tc_publish_options publish;
    tc_progress *progress; /* NULL: none */
    void *context;
    bool in_place; /* the output may be the first reader's own file */
    bool prune;    /* removes shards of an earlier run */
    /* Files that are there with the same bytes stay as they are, with their times. */
    bool if_changed;
    /* Reads the output again before it is published and compares every tensor; with
     * `keep`, conversion.read_back then has the tensors that were read. */
    bool read_back;
    bool keep;
    /* A receipt will want the sums of all files (tc_conversion_sums), so that they are taken
     * meanwhile. */
    bool sums;
    tc_opener *open; /* needed to read back */
    /* For tests: called before the sealed files are read again. May be NULL. */
    void (*disturb)(const struct tc_publish *publish);
};

bool tc_convert(struct tc_plan *plan, const char *output, const struct tc_convert_options *options,
                struct tc_error *error);

/*
 * The same in steps, for a caller that publishes other files with the output: after
 * tc_conversion_write the output is complete, but no file has its name yet. Call
 * tc_conversion_end in any case.
 */
struct tc_conversion {
    struct tc_plan *plan;
    const struct tc_convert_options *options;
    struct tc_publish publish;
    struct tc_input **inputs; /* all files that were read */
    size_t input_count;
    size_t own_count; /* how many of them, from the start, are the first reader's */
    struct tc_read_back read_back;
    struct tc_input_pool pool; /* of `outputs` */
    struct tc_input **outputs; /* the files that were written; see tc_conversion_sums */
    size_t output_count;
    struct tc_file_sums sums;         /* of `inputs`, in their order, and of outputs */
    struct tc_file_sum **output_sums; /* of `outputs` */
    size_t output_sum_count;
    bool unchanged; /* with if_changed: the output is what was there before */
};
bool tc_conversion_write(struct tc_conversion *conversion, struct tc_plan *plan, const char *output,
                         const struct tc_convert_options *options, struct tc_error *error);
/* Completes the SHA-256 of every file: those of `inputs` are the first of `sums`, those of
 * `outputs`, which are all files of the output in their order, are output_sums. No file may be
 * added from then on. */
bool tc_conversion_sums(struct tc_conversion *conversion, struct tc_error *error);
bool tc_conversion_commit(struct tc_conversion *conversion, struct tc_error *error);
/* Publishes the output together with others: all or none. */
bool tc_conversion_commit_with(struct tc_conversion *conversion, struct tc_publish *others,
                               size_t count, struct tc_error *error);
void tc_conversion_end(struct tc_conversion *conversion);

#endif
