/*
 * A conversion from the plan to the published output, for every command that
 * writes: checks --strict, shows progress, has the output read back where that is
 * asked for, writes receipt and depfile, and prints what changed and what is lost.
 */
#ifndef TCONV_CMD_RUN_CONVERSION_H
#define TCONV_CMD_RUN_CONVERSION_H

#include "cmd/common.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "cmd/sandbox.h"
#include "cmd/side_outputs.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/convert/shard_part.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/progress.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"

/* How a conversion ended. */
enum conversion_outcome {
    CONVERSION_WRITTEN,
    CONVERSION_PLANNED,    /* a dry run */
    CONVERSION_EXISTS,     /* --skip-existing */
    CONVERSION_UP_TO_DATE, /* --update */
    CONVERSION_UNCHANGED,  /* --if-changed: what is there is the same */
};

/* Whoever runs many conversions and reports on them. */
struct conversion_watcher {
    void *context;
    tc_progress *progress;
    /* Once all files that are read are open, and nothing is written. */
    bool (*planned)(void *context, const struct tc_plan *plan, struct tc_error *error);
    /* Once a conversion succeeded; the digest is NULL where the output was not read again. */
    bool (*ended)(void *context, enum conversion_outcome outcome, const struct tc_plan *plan,
                  struct tc_text options, const char *digest, struct tc_error *error);
    void (*failed)(void *context, const struct tc_error *error);
};

struct run_conversion {
    struct common *common;
    const char *output;
    struct tc_convert_options convert;
    struct report_progress_options progress;
    struct side_outputs side_outputs;
    enum strictness strict;
    struct tc_shard_choice shard; /* the only one to be written */
    bool dry_run;
    bool skip_existing;
    bool update;
    const struct conversion_watcher *watcher; /* NULL: this command reports by itself */
    /* What goes into the output besides the plan's files: told of before anything is
     * written, and written before the output appears. NULL: nothing. */
    bool (*plan_more)(void *context, struct tc_plan *plan, struct tc_error *error);
    bool (*write_more)(void *context, struct tc_publish *publish, struct tc_error *error);
    /* Where the job of shard 0 is asked for: writes what a model folder has besides its weights,
     * and the record. NULL: there is no such job. */
    bool (*write_files)(void *context, struct tc_plan *plan, const struct tc_shard_part *part,
                        struct tc_error *error);
    /* For tests: called before files that write_more wrote are read again. May be NULL. */
    void (*disturb_copies)(const struct tc_publish *publish);
    void *more;
    struct tc_buffer given; /* the options, as a receipt lists them */
};

/* The row of --align, for the commands whose output may be laid out anew. */
#define RUN_CONVERSION_ALIGN(align_)                                                               \
    ALIGN_OPTION("align", (align_), .argument = "N|reflink",                                       \
                 .help = "data starts at a multiple of N (8 to 64K, a power of two); reflink: "    \
                         "where it shares blocks with the input, on XFS and btrfs")

/* The words for enum tc_order and enum tc_keep, for option tables. */
extern const char *const run_conversion_orders[];
extern const char *const run_conversion_keeps[];

/* Adds the options of every command that writes; with `many` without those that name the receipt
 * and the depfile of one output. */
void run_conversion_add_options(struct option_table *table, struct run_conversion *run, bool many);

/* The sandbox of the command, with all files that it will write. */
struct sandbox run_conversion_sandbox(const struct run_conversion *run);

/* Keeps the options as a receipt lists them, until run_conversion_release. */
bool run_conversion_note_options(struct run_conversion *run, const struct option_table *table,
                                 const struct arguments *arguments, struct tc_error *error);
/* Lists the files that --map names: the output depends on them, too. The list is in
 * the arena. */
bool run_conversion_list_maps(struct run_conversion *run, const struct arguments *arguments,
                              struct tc_arena *arena, struct tc_error *error);
void run_conversion_release(struct run_conversion *run);

/* Makes the plan and carries it out. The readers stay the caller's in any case. */
bool run_conversion(struct run_conversion *run, struct tc_reader *const *readers, size_t count,
                    const struct tc_backend *target, const struct tc_plan_options *options,
                    struct tc_error *error);

#endif
