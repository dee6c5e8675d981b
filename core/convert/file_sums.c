#include "core/convert/file_sums.h"

#include <stdlib.h>

#define STEP ((size_t)1 << 18)

/* Takes the sum of a file; with a worker, as long as that is not stopped. */
static bool take_sum(struct tc_input *input, const struct tc_pool_worker *worker,
                     unsigned char *buffer, char hex[2 * TC_SHA256_BYTES + 1],
                     struct tc_error *error) {
    unsigned char sum[TC_SHA256_BYTES];
    struct tc_sha256 hash;
    bool ok = tc_sha256_init(&hash, error);
    for (uint64_t at = 0; at < input->size && ok && !(worker && tc_pool_stopped(worker));) {
        uint64_t left = input->size - at;
        size_t step = left < STEP ? left : STEP;
        ok = tc_input_read(input, at, buffer, step, error);
        if (ok)
            tc_sha256_update(&hash, buffer, step);
        else
            tc_sha256_release(&hash);
        at += step;
    }
    if (!ok)
        return false;
    tc_sha256_finish(&hash, sum);
    tc_hex(sum, sizeof sum, hex);
    return tc_input_unchanged(input, error);
}

bool tc_input_sum(struct tc_input *input, char hex[2 * TC_SHA256_BYTES + 1],
                  struct tc_error *error) {
    unsigned char *buffer = malloc(STEP);
    bool ok = buffer ? take_sum(input, NULL, buffer, hex, error) : tc_fail_memory(error);
    free(buffer);
    return ok;
}

static bool next_file(void *context, void *job) {
    struct tc_file_sums *sums = context;
    *(size_t *)job = sums->next;
    return sums->next < sums->count && ++sums->next;
}

static bool sum_file(void *context, struct tc_pool_worker *worker, const void *job,
                     struct tc_error *error) {
    struct tc_file_sums *sums = context;
    size_t number = *(const size_t *)job;
    struct tc_input *input = sums->inputs[number];
    return take_sum(input, worker, worker->memory, sums->hex[number], error) ||
           tc_error_in_file(error, input->path);
}

bool tc_file_sums_start(struct tc_file_sums *sums, struct tc_input *const *inputs, size_t count,
                        struct tc_error *error) {
    *sums = (struct tc_file_sums){.inputs = inputs, .count = count};
    sums->work = (struct tc_pool_work){.context = sums,
                                       .next = next_file,
                                       .job_size = sizeof(size_t),
                                       .run = sum_file,
                                       .memory_size = STEP};
    sums->hex = calloc(count + 1, sizeof *sums->hex);
    if (!sums->hex)
        return tc_fail_memory(error);
    /* With a single core the caller does its own work first. */
    size_t threads = tc_thread_count() > 1 ? tc_thread_count() : 0;
    threads = threads < count ? threads : count;
    sums->running = threads && tc_pool_start(&sums->pool, &sums->work, threads, error);
    return sums->running || error->class == TC_OK;
}

bool tc_file_sums_finish(struct tc_file_sums *sums, struct tc_error *error) {
    bool ok = !sums->running || tc_pool_finish(&sums->pool, error);
    sums->running = false;
    /* Those that no thread has taken. */
    return ok && (sums->next == sums->count || tc_pool_run(&sums->work, tc_thread_count(), error));
}

void tc_file_sums_release(struct tc_file_sums *sums) {
    struct tc_error ignored = {0};
    if (sums->running) {
        tc_pool_cancel(&sums->pool);
        tc_pool_finish(&sums->pool, &ignored);
    }
    free(sums->hex);
    *sums = (struct tc_file_sums){0};
}
