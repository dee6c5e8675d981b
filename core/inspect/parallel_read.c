#include "core/inspect/parallel_read.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/io/chunk_pipe.h"
#include "core/io/thread_pool.h"
#include "core/tensor/dtype.h"

/* A step fits a core's own cache; a piece is what a thread takes at once: so many steps. */
#define STEP ((size_t)48 << 12)
#define PIECE_STEPS 32u

/* What the threads share. A job is a piece of a tensor. */
struct run {
    const struct tc_parallel_read *read;
    size_t next; /* the tensor of the next piece, and where it starts */
    uint64_t next_at;
    pthread_mutex_t merging; /* guards `partials` */
    struct partial *partials;
    atomic_uint_fast64_t done; /* bytes read so far */
    uint64_t total;
};

/* A tensor of several pieces, until all of them are merged. */
struct partial {
    struct partial *next;
    size_t position;
    uint64_t taken; /* bytes */
    max_align_t state[];
};

struct piece {
    size_t position;
    uint64_t at;
    uint64_t length;
};

/* The most bytes, at most `most`, that hold whole elements: a multiple of 48 does for every dtype
 * but block dtypes, which come in whole blocks. */
static size_t whole_elements(const struct tc_tensor *tensor, size_t most) {
    size_t unit = tc_dtype_is_block(tensor->dtype) ? tc_dtype_block_bytes(tensor->dtype) : 48;
    return most / unit * unit;
}

static bool next_piece(void *context, void *job) {
    struct run *run = context;
    const struct tc_table *table = &run->read->reader->table;
    while (run->next < table->count && !run->read->wanted[run->next])
        run->next++;
    if (run->next == table->count)
        return false;
    const struct tc_tensor *tensor = &table->tensors[run->next];
    uint64_t left = tensor->nbytes - run->next_at;
    uint64_t most = (uint64_t)PIECE_STEPS * whole_elements(tensor, STEP);
    uint64_t length = left < most ? left : most;
    *(struct piece *)job = (struct piece){run->next, run->next_at, length};
    run->next_at += length;
    if (length == left) {
        run->next++;
        run->next_at = 0;
    }
    return true;
}

/* Merges the state of a piece into that of its tensor; the lock is held. With the last piece the
 * tensor leaves the list and becomes *whole, which the caller frees. */
static bool add_piece(struct run *run, const struct piece *piece, const void *state,
                      struct partial **whole, struct tc_error *error) {
    const struct tc_parallel_read *read = run->read;
    struct partial **link = &run->partials;
    while (*link && (*link)->position != piece->position)
        link = &(*link)->next;
    if (!*link) {
        struct partial *partial = calloc(1, sizeof *partial + read->state_size);
        if (!partial)
            return tc_fail_memory(error);
        partial->position = piece->position;
        *link = partial;
    }
    struct partial *partial = *link;
    read->merge(partial->state, state);
    partial->taken += piece->length;
    if (partial->taken == read->reader->table.tensors[piece->position].nbytes) {
        *link = partial->next;
        *whole = partial;
    }
    return true;
}

/* Ends a piece: one that is a whole tensor needs no merging; any other may complete its tensor. */
static bool end_piece(struct run *run, const struct piece *piece, void *state,
                      struct tc_error *error) {
    const struct tc_parallel_read *read = run->read;
    struct partial *whole = NULL;
    if (piece->length == read->reader->table.tensors[piece->position].nbytes) {
        read->done(read->context, state, piece->position);
        return true;
    }
    pthread_mutex_lock(&run->merging);
    bool ok = add_piece(run, piece, state, &whole, error);
    pthread_mutex_unlock(&run->merging);
    if (whole)
        read->done(read->context, whole->state, piece->position);
    free(whole);
    return ok;
}

/* Only the caller's own thread reports progress. */
static void advance(struct run *run, size_t length, bool is_caller) {
    uint64_t done = atomic_fetch_add(&run->done, length) + length;
    if (is_caller && run->read->progress)
        run->read->progress(run->read->progress_context, done, run->total);
}

static bool read_piece(void *context, struct tc_pool_worker *worker, const void *job,
                       struct tc_error *error) {
    struct run *run = context;
    const struct tc_parallel_read *read = run->read;
    const struct piece *piece = job;
    const struct tc_tensor *tensor = &read->reader->table.tensors[piece->position];
    /* A thread's memory holds the bytes of a step, then the state of a piece. */
    unsigned char *buffer = worker->memory;
    void *state = buffer + STEP;
    size_t most = whole_elements(tensor, STEP);
    memset(state, 0, read->state_size);
    for (uint64_t at = 0; at < piece->length;) {
        uint64_t left = piece->length - at;
        size_t step = left < most ? left : most;
        if (tc_pool_stopped(worker))
            return true;
        if (!tc_reader_read(read->reader, tensor, piece->at + at, buffer, step, error))
            return false;
        read->take(read->context, state, tensor, buffer, step);
        advance(run, step, worker->is_caller);
        at += step;
    }
    return end_piece(run, piece, state, error);
}

static bool run_in_pieces(struct run *run, struct tc_error *error) {
    const struct tc_pool_work work = {.context = run,
                                      .next = next_piece,
                                      .job_size = sizeof(struct piece),
                                      .run = read_piece,
                                      .memory_size = STEP + run->read->state_size};
    size_t threads = run->read->threads                     ? run->read->threads
                     : tc_reader_in_step(run->read->reader) ? 1
                                                            : tc_thread_count();
    /* At most one thread for each step, so that small files start none. */
    uint64_t useful = run->total / STEP + 1;
    return tc_pool_run(&work, threads < useful ? threads : (size_t)useful, error);
}

static bool read_ahead(struct tc_pipe *pipe, void *context, struct tc_error *error) {
    const struct tc_parallel_read *read = context;
    const struct tc_table *table = &read->reader->table;
    for (size_t i = 0; i < table->count; i++) {
        uint64_t nbytes = read->wanted[i] ? table->tensors[i].nbytes : 0;
        size_t most = whole_elements(&table->tensors[i], TC_CHUNK_BYTES);
        for (uint64_t at = 0; at < nbytes;) {
            struct tc_chunk *chunk;
            if (tc_pipe_take(pipe, &chunk, error) != TC_NEXT_CHUNK)
                return false;
            chunk->length = nbytes - at < most ? nbytes - at : most;
            if (!tc_reader_read(read->reader, &table->tensors[i], at, chunk->bytes, chunk->length,
                                error)) {
                tc_chunk_release(chunk);
                return false;
            }
            at += chunk->length;
            tc_pipe_send(pipe, chunk);
        }
    }
    return true;
}

/* Works on what the other thread reads of one tensor. */
static bool follow_tensor(struct run *run, struct tc_pipe *pipe, size_t position, void *state,
                          struct tc_error *error) {
    const struct tc_parallel_read *read = run->read;
    const struct tc_tensor *tensor = &read->reader->table.tensors[position];
    memset(state, 0, read->state_size);
    for (uint64_t left = tensor->nbytes; left;) {
        struct tc_chunk *chunk;
        /* read_ahead sends exactly these bytes, so it ends early only where it fails. */
        if (tc_pipe_next(pipe, &chunk, error) != TC_NEXT_CHUNK)
            return false;
        left -= chunk->length;
        read->take(read->context, state, tensor, chunk->bytes, chunk->length);
        advance(run, chunk->length, true);
        tc_chunk_release(chunk);
    }
    read->done(read->context, state, position);
    return true;
}

static bool run_in_sequence(struct run *run, struct tc_error *error) {
    const struct tc_parallel_read *read = run->read;
    struct tc_pipe pipe;
    void *state = malloc(read->state_size);
    if (!state)
        return tc_fail_memory(error);
    bool ok = tc_pipe_start(&pipe, read_ahead, (void *)(uintptr_t)read, error);
    if (ok) {
        for (size_t i = 0; i < read->reader->table.count && ok; i++)
            ok = !read->wanted[i] || follow_tensor(run, &pipe, i, state, error);
        tc_pipe_end(&pipe);
    }
    free(state);
    return ok;
}

bool tc_parallel_read_run(const struct tc_parallel_read *read, struct tc_error *error) {
    const struct tc_table *table = &read->reader->table;
    struct run run = {.read = read};
    struct tc_reader *reader = read->reader;
    bool *wanted = (bool *)(uintptr_t)read->wanted;
    bool in_sequence = false;
    for (size_t i = 0; i < table->count; i++)
        if (read->wanted[i]) {
            run.total += table->tensors[i].nbytes;
            in_sequence |= table->tensors[i].sequential;
        }
    struct tc_checksum_thread *checksums =
        read->again ? NULL : tc_checksum_thread_start(&reader, &wanted, 1, error);
    bool ok = checksums || read->again;
    pthread_mutex_init(&run.merging, NULL);
    ok = ok && (in_sequence ? run_in_sequence(&run, error) : run_in_pieces(&run, error));
    pthread_mutex_destroy(&run.merging);
    while (run.partials) {
        struct partial *next = run.partials->next;
        free(run.partials);
        run.partials = next;
    }
    ok = tc_checksum_thread_join(checksums, error) && ok;
    ok = ok && tc_reader_unchanged(reader, error);
    return ok ? true : tc_error_in_file(error, reader->input->path);
}
