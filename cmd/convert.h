/* The conversion of one command line, for `tconv convert` and for commands that run many. */
#ifndef TCONV_CMD_CONVERT_H
#define TCONV_CMD_CONVERT_H

#include "cmd/common.h"
#include "cmd/model_output.h"
#include "cmd/naming.h"
#include "cmd/options.h"
#include "cmd/run_conversion.h"
#include "core/plan/dtype_policy.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"

struct convert {
    struct common common;
    const char *to;
    struct run_conversion run;
    struct tc_plan_options plan;
    struct tc_metadata metadata;
    struct tc_select select;
    struct tc_policy policy;
    struct model_output folder;
    struct naming naming;
    const char *shard; /* --shard K/N, as the user wrote it */
    bool per_tensor;
    bool keep_shards;
    bool merges;   /* several inputs become one output, since -o names it */
    bool implicit; /* the word "convert" was left out */
    bool checksum_given;
    bool order_given;
};

/* Adds the options of a conversion. With `many` those are left out that name a file of a
 * single one: its output, its receipt, its depfile. */
void convert_add_options(struct option_table *table, struct convert *convert, bool many);
void convert_init(struct convert *convert);
void convert_release(struct convert *convert);

/* Runs `tconv convert` with these arguments; the word itself is not one of them. With a watcher
 * nothing is printed but warnings. Returns the exit code. */
int convert_run(int argc, char **argv, const struct conversion_watcher *watcher);

#endif
