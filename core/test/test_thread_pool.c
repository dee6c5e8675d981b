/*
 * The thread pool: every job is done once, whatever the number of threads; of several
 * failures the first in the list is reported; a cancelled pool ends.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/io/cores.h"
#include "core/io/thread_pool.h"

#define MOST_JOBS 5000u

struct list {
    size_t count;
    size_t next;
    unsigned char done[MOST_JOBS]; /* how often each job was done */
    size_t late;                   /* this job fails only after another has; 0: none */
    size_t bad[2];                 /* jobs that fail; 0: none */
    atomic_size_t failures;
    atomic_size_t waiting;
    atomic_size_t misnumbered;
    struct tc_pool *pool;
};

static struct list list;
static struct tc_error failure;

static bool next_job(void *context, void *job) {
    struct list *jobs = context;
    if (jobs->next == jobs->count)
        return false;
    *(size_t *)job = jobs->next++;
    return true;
}

static bool count_job(void *context, struct tc_pool_worker *worker, const void *job,
                      struct tc_error *error) {
    struct list *jobs = context;
    size_t number = *(const size_t *)job;
    size_t *own = worker->memory;
    jobs->misnumbered += worker->job != number;
    own[0]++; /* a sanitizer would report it if another thread used it */
    jobs->done[number]++;
    if (number == jobs->late && number)
        while (!atomic_load(&jobs->failures))
            ;
    if (number && (number == jobs->bad[0] || number == jobs->bad[1])) {
        tc_fail(error, TC_INVALID, "test", "job %zu", number);
        atomic_fetch_add(&jobs->failures, 1);
        return false;
    }
    return true;
}

static const struct tc_pool_work counting = {.context = &list,
                                             .next = next_job,
                                             .job_size = sizeof(size_t),
                                             .run = count_job,
                                             .memory_size = sizeof(size_t)};

static void start_list(size_t count) {
    list = (struct list){.count = count};
    failure = (struct tc_error){0};
}

Test(thread_pool, every_job_is_done_once, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t threads = 0; threads <= 9; threads++)
        for (size_t count = 0; count <= MOST_JOBS; count = count * 7 + 1) {
            start_list(count);
            cr_assert(tc_pool_run(&counting, threads, &failure), "%s", failure.message);
            cr_assert_eq(atomic_load(&list.misnumbered), 0, "jobs are numbered as they come");
            for (size_t i = 0; i < MOST_JOBS; i++)
                cr_assert_eq(list.done[i], i < count, "job %zu of %zu on %zu", i, count, threads);
        }
}

Test(thread_pool, the_first_failure_of_the_list_is_told, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t threads = 1; threads <= 8; threads++) {
        start_list(MOST_JOBS);
        list.bad[0] = 41;
        list.bad[1] = 40;
        /* With several threads, the earlier job fails after the later one. */
        list.late = threads > 1 ? 40 : 0;
        cr_assert_not(tc_pool_run(&counting, threads, &failure));
        cr_assert_str_eq(failure.message, "job 40", "on %zu threads", threads);
        for (size_t i = 0; i <= 40; i++)
            cr_assert_eq(list.done[i], 1, "those before it are completed");
        size_t started = 0;
        for (size_t i = 0; i < MOST_JOBS; i++)
            started += list.done[i];
        cr_assert_lt(started, MOST_JOBS);
    }
}

Test(thread_pool, an_error_that_was_there_stays, .timeout = 600) {
    start_list(10);
    list.bad[0] = 3;
    tc_fail(&failure, TC_IO, "before", "before");
    cr_assert_not(tc_pool_run(&counting, 2, &failure));
    cr_assert_str_eq(failure.code, "before");
}

/* Waits until the test cancels it. */
static bool wait_for_stop(void *context, struct tc_pool_worker *worker, const void *job,
                          struct tc_error *error) {
    struct list *jobs = context;
    size_t number = *(const size_t *)job;
    atomic_fetch_add(&jobs->waiting, 1);
    if (number == 0 && jobs->bad[0] == 1) {
        while (atomic_load(&jobs->waiting) < 3)
            ;
        return tc_fail(error, TC_INVALID, "test", "the first");
    }
    while (!tc_pool_stopped(worker))
        ;
    return true;
}

static const struct tc_pool_work endless = {
    .context = &list, .next = next_job, .job_size = sizeof(size_t), .run = wait_for_stop};

Test(thread_pool, cancelling_ends_what_runs_and_starts_no_more, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    struct tc_pool pool;
    start_list(MOST_JOBS);
    cr_assert(tc_pool_start(&pool, &endless, 3, &failure));
    while (atomic_load(&list.waiting) < 3)
        ;
    tc_pool_cancel(&pool);
    cr_assert(tc_pool_finish(&pool, &failure), "it is no failure");
    cr_assert_eq(failure.class, TC_OK);
    cr_assert_eq(list.waiting, 3);
    cr_assert_eq(list.next, 3);
}

Test(thread_pool, a_failure_stops_the_jobs_behind_it, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    start_list(MOST_JOBS);
    list.bad[0] = 1;
    cr_assert_not(tc_pool_run(&endless, 3, &failure));
    cr_assert_str_eq(failure.message, "the first");
    cr_assert_eq(list.next, 3);
}

Test(thread_pool, finishing_waits_for_all_jobs, .timeout = 600) {
    struct tc_pool pool;
    start_list(MOST_JOBS);
    cr_assert(tc_pool_start(&pool, &counting, 0, &failure), "one at least");
    cr_assert(tc_pool_finish(&pool, &failure));
    for (size_t i = 0; i < MOST_JOBS; i++)
        cr_assert_eq(list.done[i], 1);
}

static bool only_the_caller(void *context, struct tc_pool_worker *worker, const void *job,
                            struct tc_error *error) {
    (void)job;
    pthread_t *caller = context;
    if (worker->is_caller != (pthread_equal(*caller, pthread_self()) != 0))
        return tc_fail(error, TC_INVALID, "test", "it is not the caller");
    return true;
}

static size_t ten;

static bool ten_jobs(void *context, void *job) {
    (void)context;
    (void)job;
    return ten++ < 10;
}

Test(thread_pool, the_caller_is_one_of_the_threads, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    pthread_t caller = pthread_self();
    const struct tc_pool_work work = {.context = &caller, .next = ten_jobs, .run = only_the_caller};
    cr_assert(tc_pool_run(&work, 1, &failure));
    cr_assert_eq(ten, 11, "alone it does them all");
    ten = 0;
    cr_assert(tc_pool_run(&work, 4, &failure));
}

Test(thread_pool, memory_is_asked_for_before_a_job_starts, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    struct tc_pool_work large = counting;
    start_list(10);
    large.memory_size = 100 << 20;
    tc_memory_limit(1);
    cr_assert_not(tc_pool_run(&large, 8, &failure));
    cr_assert_str_eq(failure.code, "memory-limit");
    cr_assert_eq(list.next, 0);
}
