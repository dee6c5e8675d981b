#include "core/convert/view_copy.h"

#include <pthread.h>

#include "core/io/input.h"
#include "core/io/thread_pool.h"
#include "core/tensor/permute.h"
#include "core/tensor/view_blocks.h"

/* Smaller tensors are rearranged as a whole, or read as a stream. */
#define LEAST_BYTES (UINT64_C(512) << 10)
/* Smaller ones still make no difference. */
#define LEAST_SMALL 4096u
/* What all threads take together for their blocks: each has one as it is read, with half as much
 * room for gaps, and one as it is written. The larger a block, the longer are the runs in which it
 * is read and written: 8 MiB of F32 give 5 KiB. */
#define MEMORY_BYTES ((size_t)40 << 20)
#define LEAST_BLOCK ((size_t)256 << 10)

struct copying {
    const struct tc_strided *strided;
    struct tc_view_blocks blocks;
    struct tc_outfile *out;
    uint64_t place;
    uint64_t next;
    struct tc_progress_sum *progress;
    bool reports;
    pthread_mutex_t writing; /* an output is one thread's at a time */
};

static bool plan_blocks(const struct tc_strided *strided, size_t threads,
                        struct tc_view_blocks *blocks) {
    size_t most = MEMORY_BYTES * 2 / 5 / (threads < 2 ? 2 : threads);
    return tc_view_blocks_plan(blocks, &strided->view, most > LEAST_BLOCK ? most : LEAST_BLOCK);
}

bool tc_view_copy_pays(const struct tc_strided *strided, uint64_t nbytes, size_t threads) {
    struct tc_view_blocks blocks;
    /* What comes over the network comes in ranges that follow each other. */
    return !strided->input->source && nbytes >= LEAST_BYTES &&
           plan_blocks(strided, threads, &blocks);
}

static bool fetch(void *context, uint64_t offset, void *buffer, size_t length,
                  struct tc_error *error) {
    const struct tc_strided *strided = context;
    return tc_input_read(strided->input, strided->offset + offset, buffer, length, error) ||
           tc_error_in_file(error, strided->input->path);
}

static bool put(void *context, uint64_t offset, const unsigned char *bytes, size_t length,
                struct tc_error *error) {
    const struct copying *copying = context;
    return tc_outfile_write_apart(copying->out, copying->place + offset, bytes, length, error);
}

bool tc_view_read_pays(const struct tc_strided *strided, uint64_t nbytes) {
    struct tc_view_blocks blocks;
    return !strided->input->source && nbytes >= LEAST_SMALL && nbytes <= TC_VIEW_SMALL &&
           tc_view_blocks_plan(&blocks, &strided->view, TC_VIEW_SMALL) && blocks.count == 1;
}

size_t tc_view_read_scratch(void) {
    return TC_VIEW_SMALL + TC_VIEW_SMALL / 2 + TC_PERMUTE_SLACK;
}

bool tc_view_read(const struct tc_strided *strided, unsigned char *bytes, unsigned char *scratch,
                  struct tc_error *error) {
    struct tc_view_blocks blocks;
    if (!tc_view_blocks_plan(&blocks, &strided->view, TC_VIEW_SMALL) || blocks.count != 1)
        return tc_fail(error, TC_INTERNAL, "view-block", "a view is larger than it was");
    return tc_view_blocks_read(&blocks, 0, fetch, (void *)(uintptr_t)strided, scratch, bytes,
                               error);
}

static bool next_block(void *context, void *description) {
    struct copying *copying = context;
    uint64_t *number = description;
    *number = copying->next++;
    return *number < copying->blocks.count;
}

static bool copy_block(void *context, struct tc_pool_worker *worker, const void *description,
                       struct tc_error *error) {
    struct copying *copying = context;
    const struct tc_view_blocks *blocks = &copying->blocks;
    uint64_t number = *(const uint64_t *)description;
    unsigned char *bytes = worker->memory;
    if (!tc_view_blocks_read(blocks, number, fetch, (void *)copying->strided,
                             bytes + blocks->largest, bytes, error))
        return false;
    pthread_mutex_lock(&copying->writing);
    bool ok = tc_view_blocks_put(blocks, number, bytes, put, copying, error);
    pthread_mutex_unlock(&copying->writing);
    tc_progress_add(copying->progress, tc_view_blocks_size(blocks, number));
    if (copying->reports && worker->is_caller)
        tc_progress_report(copying->progress);
    return ok;
}

bool tc_view_copy(const struct tc_strided *strided, uint64_t nbytes, struct tc_outfile *out,
                  size_t threads, struct tc_progress_sum *progress, bool reports,
                  struct tc_error *error) {
    struct copying copying = {.strided = strided,
                              .out = out,
                              .place = out->position,
                              .progress = progress,
                              .reports = reports};
    if (!plan_blocks(strided, threads, &copying.blocks))
        return tc_fail(error, TC_INTERNAL, "view-block", "a view has no blocks");
    const struct tc_pool_work work = {.context = &copying,
                                      .next = next_block,
                                      .job_size = sizeof(uint64_t),
                                      .run = copy_block,
                                      .memory_size =
                                          copying.blocks.largest + copying.blocks.scratch};
    pthread_mutex_init(&copying.writing, NULL);
    uint64_t blocks = copying.blocks.count;
    bool ok = tc_pool_run(&work, blocks < threads ? (size_t)blocks : threads, error);
    pthread_mutex_destroy(&copying.writing);
    if (ok)
        tc_outfile_skip(out, nbytes);
    return ok;
}
