/*
 * One conversion in a process of its own: what the process does, and what it tells its
 * parent over a pipe. Its sandbox has only its own model's folders. A process that was
 * taken over by a hostile file can send anything: so the parent takes numbers and texts
 * of bounded length from it, and nothing else.
 */
#ifndef TCONV_CMD_BATCH_CHILD_H
#define TCONV_CMD_BATCH_CHILD_H

#include "cmd/run_conversion.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/shard_part.h"

/* The most files of a model that are told of, for --rm and --resume. */
#define BATCH_MAX_FILES 100000u

/* A file that was read, as it was then. */
struct batch_file {
    char *path;
    uint64_t device;
    uint64_t inode;
    uint64_t size;
    int64_t seconds; /* of its last change */
    int64_t nanoseconds;
};

/* What is known of a conversion so far. */
struct batch_report {
    struct tc_buffer received; /* what is no whole message yet */
    bool broken;               /* it does not keep to the protocol */
    bool ended;
    bool failed;
    struct tc_error *error; /* from malloc; where it failed */
    char code[64];          /* that error's code */
    uint64_t done;          /* bytes of progress, and of how many */
    uint64_t total;
    enum conversion_outcome outcome;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t files;                  /* how many are written */
    bool has_index;                  /* they are shards */
    char digest[TC_PLAN_DIGEST + 1]; /* of the tensors; empty: not known */
    char plan[TC_PLAN_DIGEST + 1];   /* of the plan, where there are shards */
    struct tc_buffer changes;        /* the ledger, two JSON arrays; empty: not known */
    struct tc_buffer losses;
    struct batch_file *read; /* the files that were read */
    size_t read_count;
    bool reads_untold; /* there are over BATCH_MAX_FILES */
};

/* What the process tells besides how it ended. */
struct batch_child_wants {
    const char *root; /* no file may be read that lies outside; NULL: any */
    bool plan;        /* the digest of a plan with shards */
};

/* Runs `tconv convert` with these words, tells how it went, and ends the process. */
_Noreturn void batch_child(int fd, int argc, char **argv, const struct batch_child_wants *wants);

/* Takes what came over the pipe. */
void batch_report_take(struct batch_report *report, const void *bytes, size_t length);
void batch_report_release(struct batch_report *report);

#endif
