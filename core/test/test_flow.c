/*
 * The flow: whatever the number of threads, chunks come in the order of the jobs, each once, and a
 * failure comes behind what was before it; without any thread the taker does it all.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/error.h"
#include "core/io/chunk_pipe.h"
#include "core/io/cores.h"
#include "core/io/flow.h"
#include "core/io/sha256.h"

struct numbers {
    size_t count; /* of jobs */
    size_t next;
    size_t bad[2];   /* jobs that fail; 0: none */
    size_t long_one; /* every nth job has several steps; 0: none has */
    size_t empty;    /* every nth job makes no chunk; 0: each does */
    atomic_size_t under_way;
    atomic_size_t most; /* jobs at the same time */
    atomic_size_t released;
};

struct job {
    size_t number;
    size_t steps;
    size_t done;
};

static bool next_job(void *context, void *description) {
    struct numbers *numbers = context;
    if (numbers->next == numbers->count)
        return false;
    size_t number = numbers->next++;
    size_t steps = numbers->long_one && number % numbers->long_one == 0 ? 40 : 1;
    *(struct job *)description = (struct job){number, steps, 0};
    return true;
}

static enum tc_step do_step(void *context, struct tc_flow_worker *worker, void *description,
                            struct tc_chunk *chunk, struct tc_error *error) {
    struct numbers *numbers = context;
    struct job *job = description;
    size_t *own = worker->memory;
    size_t now = atomic_fetch_add(&numbers->under_way, 1) + 1;
    size_t most = atomic_load(&numbers->most);
    while (now > most && !atomic_compare_exchange_weak(&numbers->most, &most, now))
        ;
    ++*own;
    atomic_fetch_sub(&numbers->under_way, 1);
    if (job->number && (job->number == numbers->bad[0] || job->number == numbers->bad[1])) {
        tc_fail(error, TC_INVALID, "test", "job %zu", job->number);
        return TC_STEP_FAILED;
    }
    if (!numbers->empty || job->number % numbers->empty) {
        memset(chunk->bytes, (int)job->number, 100);
        chunk->length = 100;
        chunk->item = job->number;
        chunk->offset = job->done;
    }
    return ++job->done == job->steps ? TC_STEP_DONE : TC_STEP_MORE;
}

static void release(void *context, void *memory) {
    (void)memory;
    atomic_fetch_add(&((struct numbers *)context)->released, 1);
}

static struct tc_flow_work work_of(struct numbers *numbers) {
    return (struct tc_flow_work){.context = numbers,
                                 .next = next_job,
                                 .job_size = sizeof(struct job),
                                 .step = do_step,
                                 .memory_size = sizeof(size_t),
                                 .release = release};
}

static const size_t thread_counts[] = {1, 2, 3, 8, 16};
#define THREAD_COUNTS (sizeof thread_counts / sizeof *thread_counts)

Test(flow, chunks_come_in_the_order_of_the_jobs, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t t = 0; t < THREAD_COUNTS; t++) {
        struct numbers numbers = {.count = 3000, .long_one = 7};
        const struct tc_flow_work work = work_of(&numbers);
        struct tc_error error = {0};
        struct tc_flow flow;
        struct tc_chunk *chunk;
        size_t job = 0;
        size_t step = 0;
        cr_assert(tc_flow_start(&flow, &work, thread_counts[t], &error));
        while (tc_flow_next(&flow, &chunk, &error) == TC_NEXT_CHUNK) {
            cr_assert_eq(chunk->item, job);
            cr_assert_eq(chunk->offset, step);
            cr_assert_eq(chunk->bytes[99], (unsigned char)job);
            tc_chunk_release(chunk);
            if (++step == (job % 7 ? 1u : 40u)) {
                step = 0;
                job++;
            }
        }
        cr_assert_eq(job, 3000);
        cr_assert_eq(error.class, TC_OK);
        cr_assert_leq(atomic_load(&numbers.most), thread_counts[t]);
        tc_flow_end(&flow);
        cr_assert_eq(atomic_load(&numbers.released), thread_counts[t]);
    }
}

Test(flow, any_order_loses_and_doubles_nothing, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t t = 0; t < THREAD_COUNTS; t++) {
        struct numbers numbers = {.count = 700, .long_one = 7};
        struct tc_flow_work work = work_of(&numbers);
        struct tc_error error = {0};
        struct tc_flow flow;
        struct tc_chunk *chunk;
        unsigned char steps[700] = {0};
        work.any_order = true;
        cr_assert(tc_flow_start(&flow, &work, thread_counts[t], &error));
        while (tc_flow_next(&flow, &chunk, &error) == TC_NEXT_CHUNK) {
            cr_assert_eq(chunk->offset, steps[chunk->item]);
            steps[chunk->item]++;
            tc_chunk_release(chunk);
        }
        for (size_t i = 0; i < 700; i++)
            cr_assert_eq(steps[i], i % 7 ? 1 : 40);
        tc_flow_end(&flow);
    }
}

Test(flow, jobs_without_chunks_do_not_block, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t t = 0; t < THREAD_COUNTS; t++) {
        struct numbers numbers = {.count = 5000, .empty = 1};
        const struct tc_flow_work work = work_of(&numbers);
        struct tc_error error = {0};
        struct tc_flow flow;
        struct tc_chunk *chunk;
        cr_assert(tc_flow_start(&flow, &work, thread_counts[t], &error));
        cr_assert_eq(tc_flow_next(&flow, &chunk, &error), TC_NEXT_END);
        cr_assert_eq(numbers.next, 5000);
        tc_flow_end(&flow);
    }
}

Test(flow, the_first_failure_counts, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t t = 0; t < THREAD_COUNTS; t++)
        for (int any = 0; any < 2; any++) {
            struct numbers numbers = {.count = 3000, .bad = {1001, 1000}};
            struct tc_flow_work work = work_of(&numbers);
            struct tc_error error = {0};
            struct tc_flow flow;
            struct tc_chunk *chunk;
            size_t before = 0;
            work.any_order = any;
            cr_assert(tc_flow_start(&flow, &work, thread_counts[t], &error));
            while (tc_flow_next(&flow, &chunk, &error) == TC_NEXT_CHUNK) {
                before += chunk->item < 1000;
                cr_assert(any || chunk->item < 1000);
                tc_chunk_release(chunk);
            }
            cr_assert_eq(before, 1000);
            cr_assert_str_eq(error.message, "job 1000");
            cr_assert_eq(tc_flow_next(&flow, &chunk, &error), TC_NEXT_FAILED);
            cr_assert_null(chunk);
            tc_flow_end(&flow);
        }
}

Test(flow, it_may_end_early, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t t = 0; t < THREAD_COUNTS; t++)
        for (size_t taken = 0; taken < 50; taken += 7) {
            struct numbers numbers = {.count = 100000, .long_one = 3};
            const struct tc_flow_work work = work_of(&numbers);
            struct tc_error error = {0};
            struct tc_flow flow;
            struct tc_chunk *chunk;
            cr_assert(tc_flow_start(&flow, &work, thread_counts[t], &error));
            for (size_t i = 0; i < taken; i++) {
                cr_assert_eq(tc_flow_next(&flow, &chunk, &error), TC_NEXT_CHUNK);
                tc_chunk_release(chunk);
            }
            tc_flow_end(&flow);
        }
}

/* A hashing thread holds chunks longer than the taker does. */
Test(flow, chunks_may_be_held, .timeout = 600) {
    tc_cores_set(TC_MOST_CORES);
    for (size_t t = 0; t < THREAD_COUNTS; t++) {
        struct numbers numbers = {.count = 500};
        const struct tc_flow_work work = work_of(&numbers);
        struct tc_error error = {0};
        struct tc_flow flow;
        struct tc_hash_thread hashing;
        struct tc_chunk *chunk;
        unsigned char digest[2][TC_SHA256_BYTES];
        struct tc_sha256 plain;
        cr_assert(tc_flow_start(&flow, &work, thread_counts[t], &error));
        cr_assert(tc_hash_thread_start(&hashing, &error));
        cr_assert(tc_sha256_init(&plain, &error));
        while (tc_flow_next(&flow, &chunk, &error) == TC_NEXT_CHUNK) {
            tc_sha256_update(&plain, chunk->bytes, chunk->length);
            tc_hash_thread_chunk(&hashing, chunk);
            tc_chunk_release(chunk);
        }
        tc_hash_thread_finish(&hashing, digest[0]);
        tc_sha256_finish(&plain, digest[1]);
        cr_assert_arr_eq(digest[0], digest[1], TC_SHA256_BYTES);
        tc_flow_end(&flow);
    }
}
