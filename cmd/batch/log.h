/*
 * The log of a batch, DST/.tconv-batch.jsonl: a line for every model that was done, added
 * and synced once its output has its name. After a kill, --resume passes over those whose
 * source, options and output are still what the line says.
 *
 *     {"input","state":SHA-256 of the source's name, size and time,"options":SHA-256,
 *      "output","size","modified","bytes_in","bytes_out","digest"?}
 *
 * What is modified is the time of a file; of a folder it is a SHA-256 of what lies below it.
 */
#ifndef TCONV_CMD_BATCH_LOG_H
#define TCONV_CMD_BATCH_LOG_H

#include "cmd/batch/child.h"
#include "cmd/batch/list.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/io/sha256.h"

#define BATCH_LOG_NAME ".tconv-batch.jsonl"
/* The most bytes of a log, for some 100,000 models; one that is longer is begun again. */
#define BATCH_LOG_LIMIT (UINT64_C(64) << 20)

struct batch_log_line {
    struct tc_text output; /* below DST */
    struct tc_text state;
    struct tc_text options;
    struct tc_text digest;
    struct tc_text modified;
    struct tc_text *read; /* the files that were read, but for the source itself */
    size_t read_count;
    uint64_t size;
    uint64_t bytes_in;
    uint64_t bytes_out;
};

struct batch_log {
    int fd;         /* -1: nothing is written */
    bool cut;       /* its last line has no end */
    bool was_there; /* a batch has been here before */
    bool kept;      /* though it has no lines */
    struct tc_arena arena;
    char *text; /* of the log that was read */
    struct batch_log_line *lines;
    size_t count;
    struct tc_name_map outputs; /* the number is that of its last line */
    char options[2 * TC_SHA256_BYTES + 1];
};

/* Opens the log to add lines, and reads those of earlier runs where `resume` is set. `options`
 * are those that influence the outputs. */
bool batch_log_open(struct batch_log *log, const char *destination, bool resume,
                    struct tc_text options, struct tc_error *error);
/* The line of a model that an earlier run has done, and that needs nothing; NULL: it is to be
 * done. */
const struct batch_log_line *batch_log_done(const struct batch_log *log,
                                            const struct batch_model *model);
/* Once its output has its name. A log that can't be written is an error. */
bool batch_log_add(struct batch_log *log, const struct batch_model *model,
                   const struct batch_report *report, struct tc_error *error);
void batch_log_close(struct batch_log *log, const char *destination);

#endif
