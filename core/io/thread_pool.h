/*
 * A list of jobs, done by several threads.
 *
 * Jobs are handed out in ascending order: `next` describes the one that follows, to one thread at
 * a time, and `run` does it. The result must not depend on the number of threads, so a job writes
 * where no other does, or adds up values whose sum does not depend on their order. Failures don't
 * depend on it either: when a job fails, no other starts, those before it are completed, and of
 * all errors that of the first job in the list is returned.
 *
 * tc_pool_run is for a caller who only waits for the end: its thread takes jobs too. One who has
 * work of its own meanwhile, such as writing what the jobs make, calls tc_pool_start and, on
 * success, tc_pool_finish.
 */
#ifndef TCONV_CORE_IO_THREAD_POOL_H
#define TCONV_CORE_IO_THREAD_POOL_H

#include <pthread.h>

#include "core/base/error.h"

struct tc_pool;

/* One of the threads, as its jobs see it. */
struct tc_pool_worker {
    struct tc_pool *pool;
    void *memory;      /* memory_size bytes for this thread alone */
    bool is_caller;    /* the thread that called tc_pool_run, which may report progress */
    uint64_t job;      /* the number of its present job, from 0 on */
    void *description; /* what `next` filled in for that job */
    pthread_t thread;
    struct tc_error error;
};

struct tc_pool_work {
    void *context;
    /* Fills in the next job, of job_size bytes; false: there are no more. It may wait, for room to
     * put results in for instance; then whoever calls tc_pool_cancel wakes it. */
    bool (*next)(void *context, void *job);
    size_t job_size;
    /* A job that takes long asks tc_pool_stopped between its steps, and returns where that is so.
     */
    bool (*run)(void *context, struct tc_pool_worker *worker, const void *job,
                struct tc_error *error);
    size_t memory_size; /* zeroed bytes that each thread gets; 0: none */
};

struct tc_pool {
    const struct tc_pool_work *work;
    pthread_mutex_t handing_out; /* held around `next`; guards job_count and ended */
    uint64_t job_count;          /* handed out so far */
    bool ended;                  /* there is nothing more to hand out */
    pthread_mutex_t failing;     /* guards failed, error and cancelled */
    uint64_t failed;             /* the first job that failed; UINT64_MAX: none */
    struct tc_error error;       /* its error */
    bool cancelled;
    struct tc_pool_worker *workers;
    size_t worker_count;
    size_t started; /* threads that run; workers behind them have none of their own */
    size_t granted; /* by tc_cores_begin */
};

/* How many threads are useful: one for each core that this process may use (core/io/cores.h). */
size_t tc_thread_count(void);

/* Does all jobs on at most so many threads, of which the caller's is one. Where the system has no
 * thread left, there are fewer. */
bool tc_pool_run(const struct tc_pool_work *work, size_t threads, struct tc_error *error);

/* Starts at most so many threads; `work` and `pool` stay where they are until tc_pool_finish. Where
 * the system has none left, `started` is 0: then no job is done. Only a lack of memory fails, and
 * leaves nothing to finish. */
bool tc_pool_start(struct tc_pool *pool, const struct tc_pool_work *work, size_t threads,
                   struct tc_error *error);
/* Waits until all jobs are done, or one has failed, and frees everything. */
bool tc_pool_finish(struct tc_pool *pool, struct tc_error *error);
/* Starts no other job. This is not a failure, and any thread may call it. */
void tc_pool_cancel(struct tc_pool *pool);
/* For a `run` that does several jobs at once: fills in one more, and makes it the present one;
 * false: there are none. `run` returns when it has done all that it took. Where some fail, it
 * completes those before the first of them, makes that the present one, and returns its error. */
bool tc_pool_take(struct tc_pool_worker *worker, void *job);
/* Whether the worker may give up its present job: the pool was cancelled, or a job before this one
 * failed. */
bool tc_pool_stopped(const struct tc_pool_worker *worker);

/* pthread_create with every signal blocked in the new thread, so that the
 * main thread alone handles them. */
bool tc_thread_start(pthread_t *thread, void *(*run)(void *), void *context,
                     struct tc_error *error);

#endif
