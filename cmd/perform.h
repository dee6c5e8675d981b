/*
 * Carrying out a plan for a command: what is lost is checked and told,
 * progress shown, the output proved, and what goes with it published.
 */
#ifndef TCONV_CMD_PERFORM_H
#define TCONV_CMD_PERFORM_H

#include "cmd/common.h"
#include "core/convert.h"

struct perform {
    struct common *common;
    const char *output;
    struct tc_convert_options run;
    struct report_progress_options progress;
    int strict; /* 1: no loss; 2: no change either */
    bool dry_run;
};

/* Rows of an option table. */
#define PERFORM_OPTIONS(perform)                                                                   \
    {.name = "verify",                                                                             \
     .type = OPTION_FLAG,                                                                          \
     .value = &(perform)->run.verify,                                                              \
     .help = "read the output again and compare every tensor before it is published",              \
     .aside = true},                                                                               \
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

/* Plans and does it. On failure the readers are still the caller's. */
bool perform(struct perform *perform, struct tc_reader *const *readers, size_t count,
             const struct tc_backend *target, const struct tc_plan_options *options,
             struct tc_error *error);

#endif
