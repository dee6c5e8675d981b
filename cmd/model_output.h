/*
 * A model folder as the output: `tconv DIR OUTDIR/ -t FORMAT` writes the model of DIR
 * in another format into a new folder, in shards as it was, and copies what else is in
 * DIR.
 */
#ifndef TCONV_CMD_MODEL_OUTPUT_H
#define TCONV_CMD_MODEL_OUTPUT_H

#include "cmd/options.h"
#include "cmd/run_conversion.h"
#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/plan/plan.h"

/* The user's options for it. */
struct model_output {
    bool only_weights;
    bool merge;
    bool replace;
};

void model_output_add_options(struct option_table *table, struct model_output *output);
/* Whether this is what the user asks for: from a folder to a folder. */
bool model_output_wanted(const struct tc_format_options *options, const char *const *inputs,
                         size_t count, const char *output, bool *wanted, struct tc_error *error);
/* Refuses its options where that is not so. */
bool model_output_check_unused(const struct model_output *output, struct tc_error *error);
/* Converts the folder `input` into run->output. `options` become those of the plan. */
bool model_output_run(const struct model_output *output, struct run_conversion *run,
                      const char *input, const struct tc_backend *target,
                      struct tc_plan_options *options, struct tc_error *error);

#endif
