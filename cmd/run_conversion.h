/*
 * Carrying out a plan for a command: what is lost is checked and told,
 * progress shown, the output read back, and what goes with it published.
 */
#ifndef TCONV_CMD_RUN_CONVERSION_H
#define TCONV_CMD_RUN_CONVERSION_H

#include "cmd/common.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/side_outputs.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"

struct run_conversion {
    struct common *common;
    const char *output;
    struct tc_convert_options convert;
    struct report_progress_options progress;
    struct side_outputs side_outputs;
    int strict; /* 1: no loss; 2: no change either */
    bool dry_run;
    struct tc_buffer given; /* the options, as a receipt lists them */
};

/* Rows of an option table. */
#define RUN_CONVERSION_OPTIONS(run)                                                                \
    {.name = "verify",                                                                             \
     .type = OPTION_FLAG,                                                                          \
     .value = &(run)->convert.read_back,                                                           \
     .help = "read the output again and compare every tensor before it is published",              \
     .aside = true},                                                                               \
        {.name = "receipt",                                                                        \
         .type = OPTION_TEXT,                                                                      \
         .value = &(run)->side_outputs.receipt,                                                    \
         .argument = "FILE",                                                                       \
         .help = "write what went in and came out, with hashes, as JSON; verifies",                \
         .aside = true},                                                                           \
        {.name = "receipt-tensors",                                                                \
         .type = OPTION_FLAG,                                                                      \
         .value = &(run)->side_outputs.tensors,                                                    \
         .help = "with the hash of every tensor",                                                  \
         .aside = true},                                                                           \
        {.name = "sign",                                                                           \
         .type = OPTION_TEXT,                                                                      \
         .value = &(run)->side_outputs.key,                                                        \
         .argument = "KEY",                                                                        \
         .help = "sign the receipt with this key (tconv keygen)",                                  \
         .aside = true},                                                                           \
        {.name = "depfile",                                                                        \
         .type = OPTION_TEXT,                                                                      \
         .value = &(run)->side_outputs.depfile,                                                    \
         .argument = "FILE",                                                                       \
         .help = "write a rule for make: the output's files, and all that were read",              \
         .aside = true},                                                                           \
        {.name = "strict",                                                                         \
         .type = OPTION_STRICT,                                                                    \
         .value = &(run)->strict,                                                                  \
         .argument = "[=all]",                                                                     \
         .help = "any loss is an error; =all: any change too",                                     \
         .aside = true},                                                                           \
        {.name = "dry-run",                                                                        \
         .type = OPTION_FLAG,                                                                      \
         .value = &(run)->dry_run,                                                                 \
         .help = "say what would be done, changed and lost; write nothing",                        \
         .aside = true},                                                                           \
        {.name = "no-sync",                                                                        \
         .type = OPTION_FLAG,                                                                      \
         .value = &(run)->convert.publish.no_sync,                                                 \
         .help = "do not wait for the disk",                                                       \
         .aside = true},                                                                           \
        {.name = "progress",                                                                       \
         .type = OPTION_CHOICE,                                                                    \
         .value = &(run)->progress.mode,                                                           \
         .argument = "HOW",                                                                        \
         .help = "auto (default): a bar on a terminal; bar, json: lines for programs; none",       \
         .choices = report_progress_modes,                                                         \
         .aside = true},                                                                           \
    {                                                                                              \
        .name = "progress-fd", .type = OPTION_CALL, .value = &(run)->progress, .argument = "N",    \
        .help = "descriptor for --progress=json (default: standard error)",                        \
        .call = report_progress_fd, .aside = true                                                  \
    }

/* Keeps the options for a receipt; release frees what this made. */
bool run_conversion_note_options(struct run_conversion *run, const struct option *options,
                                 const struct arguments *arguments, struct tc_error *error);
void run_conversion_release(struct run_conversion *run);

/* Plans and does it. On failure the readers are still the caller's. */
bool run_conversion(struct run_conversion *run, struct tc_reader *const *readers, size_t count,
                    const struct tc_backend *target, const struct tc_plan_options *options,
                    struct tc_error *error);

#endif
