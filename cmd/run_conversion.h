/*
 * Carrying out a plan for a command: what is lost is checked and told,
 * progress shown, the output proved, and what goes with it published.
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

struct perform {
    struct common *common;
    const char *output;
    struct tc_convert_options run;
    struct report_progress_options progress;
    struct beside beside;
    int strict; /* 1: no loss; 2: no change either */
    bool dry_run;
    struct tc_buffer given; /* the options, as a receipt lists them */
};

/* Rows of an option table. */
#define PERFORM_OPTIONS(perform)                                                                   \
    {.name = "verify",                                                                             \
     .type = OPTION_FLAG,                                                                          \
     .value = &(perform)->run.verify,                                                              \
     .help = "read the output again and compare every tensor before it is published",              \
     .aside = true},                                                                               \
        {.name = "receipt",                                                                        \
         .type = OPTION_TEXT,                                                                      \
         .value = &(perform)->beside.receipt,                                                      \
         .argument = "FILE",                                                                       \
         .help = "write what went in and came out, with hashes, as JSON; verifies",                \
         .aside = true},                                                                           \
        {.name = "receipt-tensors",                                                                \
         .type = OPTION_FLAG,                                                                      \
         .value = &(perform)->beside.tensors,                                                      \
         .help = "with the hash of every tensor",                                                  \
         .aside = true},                                                                           \
        {.name = "sign",                                                                           \
         .type = OPTION_TEXT,                                                                      \
         .value = &(perform)->beside.key,                                                          \
         .argument = "KEY",                                                                        \
         .help = "sign the receipt with this key (tconv keygen)",                                  \
         .aside = true},                                                                           \
        {.name = "depfile",                                                                        \
         .type = OPTION_TEXT,                                                                      \
         .value = &(perform)->beside.depfile,                                                      \
         .argument = "FILE",                                                                       \
         .help = "write a rule for make: the output's files, and all that were read",              \
         .aside = true},                                                                           \
        {.name = "strict",                                                                         \
         .type = OPTION_STRICT,                                                                    \
         .value = &(perform)->strict,                                                              \
         .argument = "[=all]",                                                                     \
         .help = "any loss is an error; =all: any change too",                                     \
         .aside = true},                                                                           \
        {.name = "dry-run",                                                                        \
         .type = OPTION_FLAG,                                                                      \
         .value = &(perform)->dry_run,                                                             \
         .help = "say what would be done, changed and lost; write nothing",                        \
         .aside = true},                                                                           \
        {.name = "no-sync",                                                                        \
         .type = OPTION_FLAG,                                                                      \
         .value = &(perform)->run.publish.no_sync,                                                 \
         .help = "do not wait for the disk",                                                       \
         .aside = true},                                                                           \
        {.name = "progress",                                                                       \
         .type = OPTION_CHOICE,                                                                    \
         .value = &(perform)->progress.mode,                                                       \
         .argument = "HOW",                                                                        \
         .help = "auto (default): a bar on a terminal; bar, json: lines for programs; none",       \
         .choices = report_progress_modes,                                                         \
         .aside = true},                                                                           \
    {                                                                                              \
        .name = "progress-fd", .type = OPTION_CALL, .value = &(perform)->progress,                 \
        .argument = "N", .help = "descriptor for --progress=json (default: standard error)",       \
        .call = report_progress_fd, .aside = true                                                  \
    }

/* Keeps the options for a receipt; release frees what this made. */
bool perform_note_options(struct perform *perform, const struct option *options,
                          const struct arguments *arguments, struct tc_error *error);
void perform_release(struct perform *perform);

/* Plans and does it. On failure the readers are still the caller's. */
bool perform(struct perform *perform, struct tc_reader *const *readers, size_t count,
             const struct tc_backend *target, const struct tc_plan_options *options,
             struct tc_error *error);

#endif
