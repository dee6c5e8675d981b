#include "core/io/chunk_pipe.h"

#include <stdlib.h>
#include <string.h>

#include "core/io/cores.h"
#include "core/io/thread_pool.h"

/* Enough that a producer and a hashing thread seldom wait for each other. */
#define CHUNKS 16u
/* Waking a thread takes as long as hashing this much. */
#define SMALL_CHUNK ((size_t)1 << 12)

void tc_queue_push(struct tc_queue *queue, struct tc_chunk *chunk) {
    chunk->next = NULL;
    *(queue->last ? &queue->last->next : &queue->first) = chunk;
    queue->last = chunk;
}

void tc_queue_push_front(struct tc_queue *queue, struct tc_chunk *chunk) {
    chunk->next = queue->first;
    queue->first = chunk;
    if (!queue->last)
        queue->last = chunk;
}

struct tc_chunk *tc_queue_pop(struct tc_queue *queue) {
    struct tc_chunk *chunk = queue->first;
    if (chunk) {
        queue->first = chunk->next;
        if (!queue->first)
            queue->last = NULL;
    }
    return chunk;
}

static void take_back(struct tc_chunk *chunk) {
    struct tc_pipe *pipe = (struct tc_pipe *)chunk->home;
    tc_queue_push_front(&pipe->empty, chunk); /* it is still in the CPU's cache */
    /* A producer that ran out of chunks sleeps until half of them are back: waking it for each
     * would cost a thread switch per tensor when tensors are small. All come back in the end, since
     * nobody who holds one waits for the producer. */
    if (++pipe->empty_count >= CHUNKS / 2 && pipe->producer_waits)
        pthread_cond_signal(&pipe->emptied);
}

static void *produce(void *argument) {
    struct tc_pipe *pipe = argument;
    bool succeeded = pipe->producer(pipe, pipe->context, &pipe->error);
    pthread_mutex_lock(&pipe->home.lock);
    pipe->succeeded = succeeded;
    pipe->ended = true;
    pthread_cond_signal(&pipe->filled);
    pthread_mutex_unlock(&pipe->home.lock);
    return NULL;
}

bool tc_pipe_start(struct tc_pipe *pipe, tc_pipe_producer *producer, void *context,
                   struct tc_error *error) {
    *pipe = (struct tc_pipe){.home.take_back = take_back,
                             .producer = producer,
                             .context = context,
                             .chunk_count = CHUNKS};
    pthread_mutex_init(&pipe->home.lock, NULL);
    pthread_cond_init(&pipe->emptied, NULL);
    pthread_cond_init(&pipe->filled, NULL);
    pipe->empty_count = CHUNKS;
    pipe->chunks = calloc(CHUNKS, sizeof *pipe->chunks);
    if (!pipe->chunks) {
        tc_pipe_end(pipe);
        return tc_fail_memory(error);
    }
    for (size_t i = 0; i < CHUNKS; i++) {
        pipe->chunks[i].home = &pipe->home;
        tc_queue_push(&pipe->empty, &pipe->chunks[i]);
    }
    pipe->running = tc_thread_start(&pipe->thread, produce, pipe, error);
    if (!pipe->running)
        tc_pipe_end(pipe);
    return pipe->running;
}

void tc_pipe_end(struct tc_pipe *pipe) {
    if (pipe->running) {
        pthread_mutex_lock(&pipe->home.lock);
        pipe->stopped = true;
        pthread_cond_signal(&pipe->emptied);
        pthread_mutex_unlock(&pipe->home.lock);
        pthread_join(pipe->thread, NULL);
    }
    if (pipe->chunk_count) {
        pthread_mutex_destroy(&pipe->home.lock);
        pthread_cond_destroy(&pipe->emptied);
        pthread_cond_destroy(&pipe->filled);
    }
    for (size_t i = 0; pipe->chunks && i < pipe->chunk_count; i++)
        free(pipe->chunks[i].bytes);
    free(pipe->chunks);
    *pipe = (struct tc_pipe){0};
}

enum tc_next tc_pipe_take(struct tc_pipe *pipe, struct tc_chunk **taken, struct tc_error *error) {
    pthread_mutex_lock(&pipe->home.lock);
    while (!pipe->empty.first && !pipe->stopped) {
        pipe->producer_waits = true;
        pthread_cond_wait(&pipe->emptied, &pipe->home.lock);
    }
    pipe->producer_waits = false;
    struct tc_chunk *chunk = pipe->stopped ? NULL : tc_queue_pop(&pipe->empty);
    pipe->empty_count -= chunk != NULL;
    pthread_mutex_unlock(&pipe->home.lock);
    *taken = NULL;
    if (!chunk)
        return TC_NEXT_END;
    chunk->holders = 1;
    chunk->length = 0;
    /* Chunks get their memory when they are first used: small files need one. */
    if (!chunk->bytes && !(chunk->bytes = aligned_alloc(4096, TC_CHUNK_BYTES))) {
        tc_fail_memory(error);
        tc_chunk_release(chunk);
        return TC_NEXT_FAILED;
    }
    *taken = chunk;
    return TC_NEXT_CHUNK;
}

void tc_pipe_send(struct tc_pipe *pipe, struct tc_chunk *chunk) {
    pthread_mutex_lock(&pipe->home.lock);
    tc_queue_push(&pipe->full, chunk);
    if (pipe->consumer_waits)
        pthread_cond_signal(&pipe->filled);
    pthread_mutex_unlock(&pipe->home.lock);
}

enum tc_next tc_pipe_next(struct tc_pipe *pipe, struct tc_chunk **chunk, struct tc_error *error) {
    pthread_mutex_lock(&pipe->home.lock);
    while (!pipe->full.first && !pipe->ended) {
        pipe->consumer_waits = true;
        pthread_cond_wait(&pipe->filled, &pipe->home.lock);
    }
    pipe->consumer_waits = false;
    *chunk = tc_queue_pop(&pipe->full);
    pthread_mutex_unlock(&pipe->home.lock);
    if (*chunk)
        return TC_NEXT_CHUNK;
    if (pipe->succeeded)
        return TC_NEXT_END;
    if (error->class == TC_OK)
        *error = pipe->error;
    return TC_NEXT_FAILED;
}

void tc_chunk_hold(struct tc_chunk *chunk) {
    pthread_mutex_lock(&chunk->home->lock);
    chunk->holders++;
    pthread_mutex_unlock(&chunk->home->lock);
}

void tc_chunk_release(struct tc_chunk *chunk) {
    struct tc_chunk_home *home = chunk->home;
    pthread_mutex_lock(&home->lock);
    if (--chunk->holders == 0)
        home->take_back(chunk);
    pthread_mutex_unlock(&home->lock);
}

static void *hash_chunks(void *argument) {
    struct tc_hash_thread *hashing = argument;
    for (;;) {
        pthread_mutex_lock(&hashing->lock);
        while (hashing->waiting == 0 && !hashing->closing)
            pthread_cond_wait(&hashing->changed, &hashing->lock);
        struct tc_chunk *chunk = hashing->waiting ? hashing->ring[hashing->head] : NULL;
        pthread_mutex_unlock(&hashing->lock);
        if (!chunk)
            return NULL;
        tc_sha256_update(&hashing->hash, chunk->bytes, chunk->length);
        tc_chunk_release(chunk);
        pthread_mutex_lock(&hashing->lock);
        hashing->head = (hashing->head + 1) % hashing->capacity;
        hashing->waiting--;
        pthread_cond_broadcast(&hashing->changed);
        pthread_mutex_unlock(&hashing->lock);
    }
}

bool tc_hash_thread_start(struct tc_hash_thread *hashing, struct tc_error *error) {
    *hashing = (struct tc_hash_thread){.capacity = CHUNKS};
    if (!tc_sha256_init(&hashing->hash, error))
        return false;
    hashing->ring = calloc(CHUNKS, sizeof(struct tc_chunk *));
    if (!hashing->ring) {
        tc_sha256_release(&hashing->hash);
        return tc_fail_memory(error);
    }
    pthread_mutex_init(&hashing->lock, NULL);
    pthread_cond_init(&hashing->changed, NULL);
    return true;
}

void tc_hash_thread_bytes(struct tc_hash_thread *hashing, const void *bytes, size_t length) {
    pthread_mutex_lock(&hashing->lock);
    while (hashing->waiting)
        pthread_cond_wait(&hashing->changed, &hashing->lock);
    pthread_mutex_unlock(&hashing->lock);
    tc_sha256_update(&hashing->hash, bytes, length);
}

/* Whether all that came so far is hashed, and nobody is at it. */
static bool is_idle(struct tc_hash_thread *hashing) {
    pthread_mutex_lock(&hashing->lock);
    bool idle = hashing->waiting == 0;
    pthread_mutex_unlock(&hashing->lock);
    return idle;
}

void tc_hash_thread_chunk(struct tc_hash_thread *hashing, struct tc_chunk *chunk) {
    struct tc_error ignored = {0};
    if (chunk->length <= SMALL_CHUNK && is_idle(hashing)) {
        tc_sha256_update(&hashing->hash, chunk->bytes, chunk->length);
        return;
    }
    if (!hashing->running && !hashing->alone) {
        hashing->granted = tc_cores_begin(2);
        hashing->running = hashing->granted > 1 &&
                           tc_thread_start(&hashing->thread, hash_chunks, hashing, &ignored);
        hashing->alone = !hashing->running;
    }
    if (hashing->alone) {
        tc_sha256_update(&hashing->hash, chunk->bytes, chunk->length);
        return;
    }
    tc_chunk_hold(chunk);
    pthread_mutex_lock(&hashing->lock);
    while (hashing->waiting == hashing->capacity)
        pthread_cond_wait(&hashing->changed, &hashing->lock);
    hashing->ring[(hashing->head + hashing->waiting) % hashing->capacity] = chunk;
    hashing->waiting++;
    pthread_cond_broadcast(&hashing->changed);
    pthread_mutex_unlock(&hashing->lock);
}

static void hash_thread_stop(struct tc_hash_thread *hashing) {
    if (hashing->running) {
        pthread_mutex_lock(&hashing->lock);
        hashing->closing = true;
        pthread_cond_broadcast(&hashing->changed);
        pthread_mutex_unlock(&hashing->lock);
        pthread_join(hashing->thread, NULL);
    }
    tc_cores_end(hashing->granted);
    hashing->granted = 0;
    pthread_mutex_destroy(&hashing->lock);
    pthread_cond_destroy(&hashing->changed);
    free(hashing->ring);
    hashing->ring = NULL;
    hashing->running = false;
}

void tc_hash_thread_finish(struct tc_hash_thread *hashing, unsigned char digest[TC_SHA256_BYTES]) {
    hash_thread_stop(hashing);
    tc_sha256_finish(&hashing->hash, digest);
}

void tc_hash_thread_abort(struct tc_hash_thread *hashing) {
    hash_thread_stop(hashing);
    tc_sha256_release(&hashing->hash);
}
