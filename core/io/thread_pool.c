#include "core/io/thread_pool.h"

#include <signal.h>
#include <stdlib.h>

#include "core/io/cores.h"

/* No thread recurses or has large arrays. The usual 8 MiB would count against limits of the address
 * space, and sanitizers clear an eighth of it at each start and end of a thread. */
#define STACK_BYTES ((size_t)1 << 20)

bool tc_thread_start(pthread_t *thread, void *(*run)(void *), void *context,
                     struct tc_error *error) {
    sigset_t all;
    sigset_t old;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(thread, &attributes, run, context);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return failed ? tc_fail_errno(error, failed, "thread", "cannot start a thread") : true;
}

size_t tc_thread_count(void) {
    return tc_cores();
}

void tc_pool_cancel(struct tc_pool *pool) {
    pthread_mutex_lock(&pool->failing);
    pool->cancelled = true;
    pthread_mutex_unlock(&pool->failing);
}

static bool is_stopped(struct tc_pool *pool, uint64_t job) {
    pthread_mutex_lock(&pool->failing);
    bool stopped = pool->cancelled || pool->failed < job;
    pthread_mutex_unlock(&pool->failing);
    return stopped;
}

bool tc_pool_stopped(const struct tc_pool_worker *worker) {
    return is_stopped(worker->pool, worker->job);
}

/* Jobs are handed out in ascending order, so a job that failed comes before all that are still to
 * be handed out. */
bool tc_pool_take(struct tc_pool_worker *worker, void *job) {
    struct tc_pool *pool = worker->pool;
    pthread_mutex_lock(&pool->handing_out);
    pool->ended =
        pool->ended || is_stopped(pool, UINT64_MAX) || !pool->work->next(pool->work->context, job);
    bool taken = !pool->ended;
    if (taken)
        worker->job = pool->job_count++;
    pthread_mutex_unlock(&pool->handing_out);
    return taken;
}

static void keep_failure(struct tc_pool_worker *worker) {
    struct tc_pool *pool = worker->pool;
    pthread_mutex_lock(&pool->failing);
    if (worker->job < pool->failed) {
        pool->failed = worker->job;
        pool->error = worker->error;
    }
    pthread_mutex_unlock(&pool->failing);
}

/* Does jobs until there are no more or one has failed. */
static void *work_through(void *argument) {
    struct tc_pool_worker *worker = argument;
    const struct tc_pool_work *work = worker->pool->work;
    while (tc_pool_take(worker, worker->description))
        if (!work->run(work->context, worker, worker->description, &worker->error)) {
            keep_failure(worker);
            break;
        }
    return NULL;
}

/* No thread may run any more. */
static void release(struct tc_pool *pool) {
    for (size_t i = 0; pool->workers && i < pool->worker_count; i++) {
        free(pool->workers[i].memory);
        free(pool->workers[i].description);
    }
    free(pool->workers);
    pool->workers = NULL;
    pthread_mutex_destroy(&pool->handing_out);
    pthread_mutex_destroy(&pool->failing);
    tc_cores_end(pool->granted);
}

/* All memory is taken before the first thread starts, so that the command's budget refuses it at
 * the same point in every run. */
static bool prepare(struct tc_pool *pool, const struct tc_pool_work *work, size_t wanted,
                    struct tc_error *error) {
    size_t workers = tc_cores_begin(wanted);
    *pool = (struct tc_pool){
        .work = work, .failed = UINT64_MAX, .worker_count = workers, .granted = workers};
    pthread_mutex_init(&pool->handing_out, NULL);
    pthread_mutex_init(&pool->failing, NULL);
    pool->workers = calloc(workers, sizeof *pool->workers);
    bool ok = pool->workers != NULL;
    for (size_t i = 0; i < workers && ok; i++) {
        struct tc_pool_worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->memory = calloc(1, work->memory_size + 1);
        worker->description = calloc(1, work->job_size + 1);
        ok = worker->memory && worker->description;
    }
    if (ok)
        return true;
    release(pool);
    return tc_fail_memory(error);
}

/* Where the system has no thread left, those that run do all of the work. */
static void start_threads(struct tc_pool *pool, size_t threads) {
    struct tc_error ignored = {0};
    for (; pool->started < threads; pool->started++) {
        struct tc_pool_worker *worker = &pool->workers[pool->started];
        if (!tc_thread_start(&worker->thread, work_through, worker, &ignored))
            return;
    }
}

bool tc_pool_start(struct tc_pool *pool, const struct tc_pool_work *work, size_t threads,
                   struct tc_error *error) {
    if (!prepare(pool, work, threads, error))
        return false;
    start_threads(pool, pool->worker_count);
    return true;
}

bool tc_pool_finish(struct tc_pool *pool, struct tc_error *error) {
    for (size_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    bool ok = pool->failed == UINT64_MAX;
    if (!ok && error->class == TC_OK)
        *error = pool->error;
    release(pool);
    return ok;
}

bool tc_pool_run(const struct tc_pool_work *work, size_t threads, struct tc_error *error) {
    struct tc_pool pool;
    if (!prepare(&pool, work, threads, error))
        return false;
    start_threads(&pool, pool.worker_count - 1);
    struct tc_pool_worker *caller = &pool.workers[pool.worker_count - 1];
    caller->is_caller = true;
    work_through(caller);
    return tc_pool_finish(&pool, error);
}
