/*
 * Runs conversions in processes of their own, several at once. A process that crashes is
 * its own model's failure; a signal that ends this one ends them first, and they leave
 * nothing half-written.
 */
#ifndef TCONV_CMD_BATCH_RUN_H
#define TCONV_CMD_BATCH_RUN_H

#include <time.h>

#include "cmd/batch/child.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/jobserver.h"

/* A conversion to be run. */
struct batch_task {
    size_t number; /* of the model, for the caller */
    char **words;  /* of `tconv convert`; owned by the caller until the task has ended */
    int count;
    struct batch_child_wants wants;
};

/* How it ended. */
struct batch_result {
    struct batch_report report;
    struct tc_buffer messages; /* what it printed, cut to BATCH_MESSAGES */
    double seconds;
    struct tc_error crash; /* class TC_OK: it did not crash */
};
#define BATCH_MESSAGES ((size_t)1 << 16)

struct batch_runner {
    void *context;
    /* Fills in the next task; false: there is none. */
    bool (*next)(void *context, struct batch_task *task);
    /* Called for each task that has ended, in the order of their ends. False: no other is to be
     * started. */
    bool (*ended)(void *context, const struct batch_task *task, const struct batch_result *result);
    /* Called now and then with what a task that runs has told so far. */
    void (*moved)(void *context, const struct batch_task *task, const struct batch_report *report);
    size_t most; /* processes at once */
    struct tc_jobserver *jobserver;
};

/* Runs until there is nothing left. A task whose process can't be started waits until another has
 * ended; where none runs, it has failed. False where none could be run at all. */
bool batch_run(const struct batch_runner *runner, struct tc_error *error);

#endif
