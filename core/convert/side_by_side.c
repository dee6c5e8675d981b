#include "core/convert/side_by_side.h"

#include <pthread.h>
#include <time.h>

#include "core/io/cores.h"
#include "core/io/thread_pool.h"

/* Less than this is written before other threads have started. */
#define LEAST_BYTES (UINT64_C(4) << 20)
/* Each has buffers of its own. */
#define MOST_FILES 8u
#define RING (MOST_FILES + 1)
/* How often progress is reported. */
#define REPORT_NANOSECONDS 100000000L
#define SECOND 1000000000L

/* What a thread does next. It has the open file itself, not its place in the ring: a file that
 * takes long outlives that, since those behind it end and make room for others. */
struct file_job {
    size_t number;
    struct tc_open_file open;
};

/* The files that are open and not taken yet are [taken, opened) of a ring. There are never more of
 * them than are not ended, at most one more than threads. */
struct files {
    const struct tc_files_work *work;
    size_t threads; /* for each file */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tc_open_file ring[RING];
    size_t opened;
    size_t taken;
    size_t ended;
    bool closed; /* no other will be opened */
};

/* Whether items are read that have no stream of their own, so that two threads would disturb each
 * other. */
static bool shares_a_stream(const struct tc_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        if (item->densify || (item->tensor->sequential && !item->reader->streams))
            return true;
    }
    return false;
}

size_t tc_plan_side_by_side(const struct tc_plan *plan) {
    size_t most = plan->file_count < MOST_FILES ? plan->file_count : MOST_FILES;
    uint64_t useful = plan->bytes_out / LEAST_BYTES + 1;
    most = most < useful ? most : (size_t)useful;
    /* What compresses on all cores by itself takes memory for each file. */
    if (plan->options->write.compress && plan->target->compress_memory)
        return 1;
    return most > 1 && !shares_a_stream(plan) ? most : 1;
}

static bool next_file(void *context, void *next) {
    struct files *files = context;
    struct file_job *job = next;
    pthread_mutex_lock(&files->lock);
    while (files->taken == files->opened && !files->closed)
        pthread_cond_wait(&files->changed, &files->lock);
    bool any = files->taken < files->opened;
    if (any) {
        job->number = files->taken++;
        job->open = files->ring[job->number % RING];
    }
    pthread_mutex_unlock(&files->lock);
    return any;
}

static bool write_file(void *context, struct tc_pool_worker *worker, const void *job,
                       struct tc_error *error) {
    struct files *files = context;
    const struct file_job *file = job;
    const struct tc_files_work *work = files->work;
    (void)worker;
    bool ok = work->write(work->context, file->number, &file->open, files->threads, false, error);
    pthread_mutex_lock(&files->lock);
    files->ended++;
    files->closed |= !ok;
    pthread_cond_broadcast(&files->changed);
    pthread_mutex_unlock(&files->lock);
    return ok;
}

/* Waits for a change, but not for long, and reports progress. The lock is held. */
static void wait_and_report(struct files *files) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += REPORT_NANOSECONDS;
    until.tv_sec += until.tv_nsec / SECOND;
    until.tv_nsec %= SECOND;
    pthread_cond_clockwait(&files->changed, &files->lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&files->lock);
    files->work->report(files->work->context);
    pthread_mutex_lock(&files->lock);
}

/* Opens the files as far ahead as is useful, until all are written. */
static bool open_files(struct files *files, size_t count, size_t at_once, struct tc_error *error) {
    bool ok = true;
    pthread_mutex_lock(&files->lock);
    while (files->ended < files->opened || (files->opened < count && !files->closed)) {
        /* One more than is written, so that nobody waits for the next. */
        if (files->closed)
            break;
        if (files->opened == count || files->opened - files->ended > at_once) {
            wait_and_report(files);
            continue;
        }
        size_t number = files->opened;
        pthread_mutex_unlock(&files->lock);
        ok = files->work->open(files->work->context, number, &files->ring[number % RING], error);
        pthread_mutex_lock(&files->lock);
        files->opened += ok;
        files->closed |= !ok;
        pthread_cond_broadcast(&files->changed);
    }
    files->closed = true;
    pthread_cond_broadcast(&files->changed);
    pthread_mutex_unlock(&files->lock);
    return ok;
}

static bool write_in_turn(const struct tc_files_work *work, size_t count, struct tc_error *error) {
    for (size_t i = 0; i < count; i++) {
        struct tc_open_file open;
        if (!work->open(work->context, i, &open, error) ||
            !work->write(work->context, i, &open, tc_cores(), true, error))
            return false;
    }
    return true;
}

static bool write_at_once(struct files *files, size_t count, size_t at_once,
                          struct tc_error *error) {
    const struct tc_pool_work pool_work = {.context = files,
                                           .next = next_file,
                                           .job_size = sizeof(struct file_job),
                                           .run = write_file};
    struct tc_pool *pool = malloc(sizeof *pool); /* too large for a small stack */
    if (!pool)
        return tc_fail_memory(error);
    bool ok = tc_pool_start(pool, &pool_work, at_once, error);
    if (ok) {
        struct tc_error opening = {0};
        bool alone = pool->started == 0; /* there is no thread for it */
        bool opened = alone || open_files(files, count, pool->started, &opening);
        ok = tc_pool_finish(pool, error) && opened;
        /* What could not be opened comes behind what was. */
        if (!opened && error->class == TC_OK)
            *error = opening;
        if (alone)
            ok = write_in_turn(files->work, count, error);
    }
    free(pool);
    return ok;
}

bool tc_files_write(const struct tc_files_work *work, size_t count, size_t at_once,
                    struct tc_error *error) {
    size_t cores = tc_cores();
    at_once = at_once < cores ? at_once : cores;
    at_once = at_once < MOST_FILES ? at_once : MOST_FILES;
    struct files files = {.work = work, .threads = at_once ? cores / at_once : 1};
    if (at_once < 2)
        return write_in_turn(work, count, error);
    pthread_mutex_init(&files.lock, NULL);
    pthread_cond_init(&files.changed, NULL);
    bool ok = write_at_once(&files, count, at_once, error);
    pthread_cond_destroy(&files.changed);
    pthread_mutex_destroy(&files.lock);
    return ok;
}
