#include "core/inspect/parallel_read.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/io/chunk_pipe.h"

#define MAX_WORKERS 16
/* Multiples of 48 hold whole elements of every dtype, packed ones too. A step
 * fits a core's own cache; a piece is what a worker takes at once. */
#define STEP ((size_t)48 << 12)
#define PIECE (UINT64_C(32) * STEP)
#define CHUNK (TC_CHUNK_BYTES / 48 * 48)

struct sweeping {
    const struct tc_parallel_read *sweep;
    pthread_mutex_t lock; /* of all that follows, but for the atomic ones */
    size_t next;          /* the tensor of the next piece, and where it starts */
    uint64_t next_at;
    struct partial *partials;
    atomic_uint_fast64_t read; /* bytes */
    atomic_bool stop;
    uint64_t total;
};

/* A tensor of several pieces, until the last of them is in. */
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

struct worker {
    struct sweeping *sweeping;
    pthread_t thread;
    bool first;
    struct tc_error error;
};

static bool next_piece(struct sweeping *sweeping, struct piece *piece) {
    const struct tc_parallel_read *sweep = sweeping->sweep;
    const struct tc_table *table = &sweep->reader->table;
    pthread_mutex_lock(&sweeping->lock);
    while (sweeping->next < table->count && !sweep->wanted[sweeping->next])
        sweeping->next++;
    bool found = sweeping->next < table->count;
    if (found) {
        uint64_t left = table->tensors[sweeping->next].nbytes - sweeping->next_at;
        *piece = (struct piece){sweeping->next, sweeping->next_at, left < PIECE ? left : PIECE};
        sweeping->next_at += piece->length;
        if (piece->length == left) {
            sweeping->next++;
            sweeping->next_at = 0;
        }
    }
    pthread_mutex_unlock(&sweeping->lock);
    return found;
}

/* Adds a piece to what is there of its tensor, under the lock; the tensor's
 * state comes out of the list with its last piece. */
static bool add_partial(struct sweeping *sweeping, const struct piece *piece, const void *state,
                        struct partial **whole, struct tc_error *error) {
    const struct tc_parallel_read *sweep = sweeping->sweep;
    struct partial **link = &sweeping->partials;
    while (*link && (*link)->position != piece->position)
        link = &(*link)->next;
    if (!*link) {
        struct partial *partial = calloc(1, sizeof *partial + sweep->state_size);
        if (!partial)
            return tc_fail_memory(error);
        partial->position = piece->position;
        *link = partial;
    }
    struct partial *partial = *link;
    sweep->merge(partial->state, state);
    partial->taken += piece->length;
    if (partial->taken == sweep->reader->table.tensors[piece->position].nbytes) {
        *link = partial->next;
        *whole = partial;
    }
    return true;
}

/* One that is whole is done at once, and so is one that its last piece makes whole. */
static bool end_piece(struct sweeping *sweeping, const struct piece *piece, void *state,
                      struct tc_error *error) {
    const struct tc_parallel_read *sweep = sweeping->sweep;
    struct partial *whole = NULL;
    if (piece->length == sweep->reader->table.tensors[piece->position].nbytes) {
        sweep->done(sweep->context, state, piece->position);
        return true;
    }
    pthread_mutex_lock(&sweeping->lock);
    bool ok = add_partial(sweeping, piece, state, &whole, error);
    pthread_mutex_unlock(&sweeping->lock);
    if (whole)
        sweep->done(sweep->context, whole->state, piece->position);
    free(whole);
    return ok;
}

static void tell(struct sweeping *sweeping, size_t length, bool aloud) {
    uint64_t done = atomic_fetch_add(&sweeping->read, length) + length;
    if (aloud && sweeping->sweep->progress)
        sweeping->sweep->progress(sweeping->sweep->progress_context, done, sweeping->total);
}

static bool take_piece(struct worker *worker, const struct piece *piece, void *state,
                       unsigned char *buffer) {
    struct sweeping *sweeping = worker->sweeping;
    const struct tc_parallel_read *sweep = sweeping->sweep;
    const struct tc_tensor *tensor = &sweep->reader->table.tensors[piece->position];
    for (uint64_t at = 0; at < piece->length && !atomic_load(&sweeping->stop);) {
        uint64_t left = piece->length - at;
        size_t step = left < STEP ? left : STEP;
        if (!tc_reader_read(sweep->reader, tensor, piece->at + at, buffer, step, &worker->error))
            return false;
        sweep->take(sweep->context, state, tensor, buffer, step);
        tell(sweeping, step, worker->first);
        at += step;
    }
    return true;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct sweeping *sweeping = worker->sweeping;
    size_t state_size = sweeping->sweep->state_size;
    unsigned char *buffer = malloc(STEP);
    void *state = malloc(state_size);
    struct piece piece;
    bool ok = (buffer && state) || tc_fail_memory(&worker->error);
    while (ok && !atomic_load(&sweeping->stop) && next_piece(sweeping, &piece)) {
        memset(state, 0, state_size);
        ok = take_piece(worker, &piece, state, buffer) &&
             (atomic_load(&sweeping->stop) || end_piece(sweeping, &piece, state, &worker->error));
    }
    if (!ok)
        atomic_store(&sweeping->stop, true);
    free(buffer);
    free(state);
    return NULL;
}

static bool run_workers(struct sweeping *sweeping, struct tc_error *error) {
    struct worker workers[MAX_WORKERS] = {{0}};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t pieces = (size_t)(sweeping->total / STEP) + 1;
    size_t wanted = cores < 1 ? 1 : cores > MAX_WORKERS ? MAX_WORKERS : (size_t)cores;
    size_t started = 1; /* this thread is the first worker */
    wanted = wanted < pieces ? wanted : pieces;
    for (size_t i = 0; i < wanted; i++)
        workers[i].sweeping = sweeping;
    workers[0].first = true;
    while (started < wanted &&
           tc_thread_start(&workers[started].thread, work, &workers[started], error))
        started++;
    if (error->class != TC_OK)
        atomic_store(&sweeping->stop, true);
    work(&workers[0]);
    for (size_t i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < started; i++)
        if (workers[i].error.class != TC_OK && error->class == TC_OK)
            *error = workers[i].error;
    return error->class == TC_OK;
}

static bool read_ahead(struct tc_pipe *flow, void *context, struct tc_error *error) {
    const struct tc_parallel_read *sweep = context;
    const struct tc_table *table = &sweep->reader->table;
    for (size_t i = 0; i < table->count; i++) {
        uint64_t nbytes = sweep->wanted[i] ? table->tensors[i].nbytes : 0;
        for (uint64_t at = 0; at < nbytes;) {
            struct tc_chunk *chunk = tc_pipe_take(flow, error);
            if (!chunk)
                return false;
            chunk->item = i;
            chunk->length = nbytes - at < CHUNK ? nbytes - at : CHUNK;
            if (!tc_reader_read(sweep->reader, &table->tensors[i], at, chunk->bytes, chunk->length,
                                error)) {
                tc_chunk_release(chunk);
                return false;
            }
            at += chunk->length;
            tc_pipe_send(flow, chunk);
        }
    }
    return true;
}

/* Works on what the other thread reads. */
static bool follow(struct sweeping *sweeping, struct tc_pipe *flow, struct tc_error *error) {
    const struct tc_parallel_read *sweep = sweeping->sweep;
    const struct tc_table *table = &sweep->reader->table;
    void *state = malloc(sweep->state_size);
    bool ok = state || tc_fail_memory(error);
    for (size_t i = 0; i < table->count && ok; i++) {
        uint64_t left = table->tensors[i].nbytes;
        if (!sweep->wanted[i])
            continue;
        memset(state, 0, sweep->state_size);
        while (left && ok) {
            struct tc_chunk *chunk = tc_pipe_next(flow, error);
            ok = chunk != NULL;
            if (!ok)
                break;
            left -= chunk->length;
            sweep->take(sweep->context, state, &table->tensors[i], chunk->bytes, chunk->length);
            tell(sweeping, chunk->length, true);
            tc_chunk_release(chunk);
        }
        if (ok)
            sweep->done(sweep->context, state, i);
    }
    free(state);
    return ok;
}

static bool run_in_sequence(struct sweeping *sweeping, struct tc_error *error) {
    struct tc_pipe flow;
    if (!tc_pipe_start(&flow, read_ahead, (void *)(uintptr_t)sweeping->sweep, error))
        return false;
    bool ok = follow(sweeping, &flow, error);
    tc_pipe_end(&flow);
    return ok;
}

bool tc_parallel_read_run(const struct tc_parallel_read *sweep, struct tc_error *error) {
    const struct tc_table *table = &sweep->reader->table;
    struct sweeping sweeping = {.sweep = sweep};
    struct tc_reader *reader = sweep->reader;
    bool *wanted = (bool *)(uintptr_t)sweep->wanted;
    bool in_sequence = false;
    for (size_t i = 0; i < table->count; i++)
        if (sweep->wanted[i]) {
            sweeping.total += table->tensors[i].nbytes;
            in_sequence |= table->tensors[i].sequential;
        }
    struct tc_verify *verify = sweep->again ? NULL : tc_verify_start(&reader, &wanted, 1, error);
    bool ok = verify || sweep->again;
    pthread_mutex_init(&sweeping.lock, NULL);
    ok = ok && (in_sequence ? run_in_sequence(&sweeping, error) : run_workers(&sweeping, error));
    pthread_mutex_destroy(&sweeping.lock);
    while (sweeping.partials) {
        struct partial *next = sweeping.partials->next;
        free(sweeping.partials);
        sweeping.partials = next;
    }
    ok = tc_verify_join(verify, error) && ok;
    ok = ok && tc_reader_unchanged(reader, error);
    return ok ? true : tc_error_in_file(error, reader->input->path);
}
