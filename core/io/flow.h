/*
 * A stream of chunks that several threads fill and one takes: they read, decode and cast ahead
 * while it writes.
 *
 * The work is a list of jobs. `next` describes one after the other; a thread that has nothing to do
 * takes the next and carries it out step by step. A step fills at most one chunk. Jobs run side by
 * side, the steps of one job never do. The taker gets the chunks in the order of the jobs, or with
 * `any_order` as they come.
 *
 * The taker is one of the threads: where no chunk is ready it does a step itself. So a flow needs
 * no other thread, and one that can't be started is done without.
 *
 * Each thread has chunks of its own, a fixed number, which bounds the memory. A thread takes jobs
 * in ascending order, so that its chunks only hold what comes before its present job or belongs to
 * it: whoever has the first job that is not done finds that its chunks come back, and all others
 * wait for that one. So nobody waits for ever.
 *
 * When a job fails, no other starts, and those before it are completed; what they made is still
 * taken, and then the taker gets the error of the first job that failed. So neither the chunks nor
 * the error depend on the number of threads.
 */
#ifndef TCONV_CORE_IO_FLOW_H
#define TCONV_CORE_IO_FLOW_H

#include <pthread.h>

#include "core/base/error.h"
#include "core/io/chunk_pipe.h"

/* How a step ended. */
enum tc_step {
    TC_STEP_MORE, /* the job has further steps */
    TC_STEP_DONE,
    TC_STEP_FAILED, /* the error says why */
};

/* One of the threads, as the steps see it. */
struct tc_flow_worker {
    struct tc_flow *flow;
    void *memory; /* memory_size bytes for this thread alone */
    /* The rest is the flow's. */
    void *job; /* what `next` filled in */
    uint64_t turn;
    bool busy; /* it has a job */
    struct tc_chunk *chunks;
    struct tc_queue empty;
    size_t empty_count;
    bool waits;
    pthread_cond_t woken;
    pthread_t thread;
    struct tc_error error;
};

struct tc_flow_work {
    void *context;
    /* Fills in the next job, of job_size bytes; false: there are no more. One thread at a time, and
     * it must not wait. */
    bool (*next)(void *context, void *job);
    size_t job_size;
    /* Does a step; a chunk whose length stays 0 is not sent. The job may be changed, to say where
     * the next step goes on. */
    enum tc_step (*step)(void *context, struct tc_flow_worker *worker, void *job,
                         struct tc_chunk *chunk, struct tc_error *error);
    size_t memory_size;                           /* zeroed bytes that each thread gets; 0: none */
    void (*release)(void *context, void *memory); /* frees what those hold; may be NULL */
    bool any_order;
};

/* Jobs that may be under way or wait to be taken. */
#define TC_FLOW_TURNS 256u

struct tc_flow_turn {
    struct tc_queue full;
    bool done;
};

struct tc_flow {
    struct tc_chunk_home home; /* must be first; its lock guards everything here */
    const struct tc_flow_work *work;
    struct tc_flow_worker *workers; /* the first is the taker */
    size_t worker_count;
    size_t started; /* threads that run */
    size_t granted; /* by tc_cores_begin */
    size_t chunks_each;
    struct tc_flow_turn turns[TC_FLOW_TURNS]; /* by job % TC_FLOW_TURNS */
    struct tc_queue full;                     /* with any_order: all that are ready */
    uint64_t head;                            /* the first job that is not done and taken */
    uint64_t handed_out;
    bool ended;      /* there are no more jobs */
    bool stopped;    /* the taker wants no more */
    uint64_t failed; /* the first job that failed; UINT64_MAX: none */
    struct tc_error error;
    bool taker_waits;
    pthread_cond_t ready; /* the taker waits for this */
};

/* Starts a flow on at most so many threads, of which the caller's is one; `work` and `flow` stay
 * where they are until tc_flow_end. Only a lack of memory fails; then there is nothing to end. */
bool tc_flow_start(struct tc_flow *flow, const struct tc_flow_work *work, size_t threads,
                   struct tc_error *error);
/* The next chunk, to be given back with tc_chunk_release. Always the same thread calls it. */
enum tc_next tc_flow_next(struct tc_flow *flow, struct tc_chunk **chunk, struct tc_error *error);
/* Stops what still runs, waits for it and frees everything. All chunks must have been given back.
 */
void tc_flow_end(struct tc_flow *flow);

#endif
