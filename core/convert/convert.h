/*
 * Carrying out a plan: the data goes from the readers to a writer in one
 * stream of bounded memory, and the output appears when all of it is right.
 */
#ifndef TCONV_CORE_CONVERT_CONVERT_H
#define TCONV_CORE_CONVERT_CONVERT_H

#include "core/base/error.h"
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
    bool prune;    /* shards of an earlier run go */
    /* Reads the output again before it is published and compares every
     * tensor; `keep` then keeps what it gave. */
    bool read_back;
    bool keep;
    tc_opener *open; /* needed to read back */
    /* Called with the sealed files before they are read again: for tests. */
    void (*disturb)(const struct tc_publish *publish);
};

bool tc_convert(struct tc_plan *plan, const char *output, const struct tc_convert_options *options,
                struct tc_error *error);

/*
 * The same in steps, for a caller that publishes something beside: after
 * tc_conversion_write all is right and nothing has its name yet. End always.
 */
struct tc_conversion {
    struct tc_plan *plan;
    const struct tc_convert_options *options;
    struct tc_publish publish;
    struct tc_input **inputs; /* all files that were read */
    size_t input_count;
    size_t own_count; /* of them those of the first reader */
    struct tc_read_back read_back;
};
bool tc_conversion_write(struct tc_conversion *conversion, struct tc_plan *plan, const char *output,
                         const struct tc_convert_options *options, struct tc_error *error);
bool tc_conversion_commit(struct tc_conversion *conversion, struct tc_error *error);
/* Together with other outputs: all or none. */
bool tc_conversion_commit_with(struct tc_conversion *conversion, struct tc_publish *others,
                               size_t count, struct tc_error *error);
void tc_conversion_end(struct tc_conversion *conversion);

#endif
