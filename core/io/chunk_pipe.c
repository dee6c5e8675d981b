#include "core/io/chunk_pipe.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Enough that a producer and a hashing observer seldom wait for each other. */
#define CHUNKS 16u

bool tc_thread_start(pthread_t *thread, void *(*run)(void *), void *context,
                     struct tc_error *error) {
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed ? tc_fail_errno(error, failed, "thread", "cannot start a thread") : true;
}

static void queue_push(struct tc_queue *queue, struct tc_chunk *chunk) {
    chunk->next = NULL;
    *(queue->last ? &queue->last->next : &queue->first) = chunk;
    queue->last = chunk;
}

static void queue_push_front(struct tc_queue *queue, struct tc_chunk *chunk) {
    chunk->next = queue->first;
    queue->first = chunk;
    if (!queue->last)
        queue->last = chunk;
}

static struct tc_chunk *queue_pop(struct tc_queue *queue) {
    struct tc_chunk *chunk = queue->first;
    if (chunk) {
        queue->first = chunk->next;
        if (!queue->first)
            queue->last = NULL;
    }
    return chunk;
}

static void *produce(void *argument) {
    struct tc_pipe *flow = argument;
    flow->producer(flow, flow->context, &flow->error);
    pthread_mutex_lock(&flow->lock);
    flow->ended = true;
    pthread_cond_signal(&flow->filled);
    pthread_mutex_unlock(&flow->lock);
    return NULL;
}

bool tc_pipe_start(struct tc_pipe *flow, tc_pipe_producer *producer, void *context,
                   struct tc_error *error) {
    *flow = (struct tc_pipe){.producer = producer, .context = context, .chunk_count = CHUNKS};
    pthread_mutex_init(&flow->lock, NULL);
    pthread_cond_init(&flow->emptied, NULL);
    pthread_cond_init(&flow->filled, NULL);
    flow->empty_count = CHUNKS;
    flow->chunks = calloc(CHUNKS, sizeof *flow->chunks);
    if (!flow->chunks) {
        tc_pipe_end(flow);
        return tc_fail_memory(error);
    }
    for (size_t i = 0; i < CHUNKS; i++) {
        flow->chunks[i].flow = flow;
        queue_push(&flow->empty, &flow->chunks[i]);
    }
    flow->running = tc_thread_start(&flow->thread, produce, flow, error);
    if (!flow->running)
        tc_pipe_end(flow);
    return flow->running;
}

void tc_pipe_end(struct tc_pipe *flow) {
    if (flow->running) {
        pthread_mutex_lock(&flow->lock);
        flow->stopped = true;
        pthread_cond_signal(&flow->emptied);
        pthread_mutex_unlock(&flow->lock);
        pthread_join(flow->thread, NULL);
    }
    if (flow->chunk_count) {
        pthread_mutex_destroy(&flow->lock);
        pthread_cond_destroy(&flow->emptied);
        pthread_cond_destroy(&flow->filled);
    }
    for (size_t i = 0; flow->chunks && i < flow->chunk_count; i++)
        free(flow->chunks[i].bytes);
    free(flow->chunks);
    *flow = (struct tc_pipe){0};
}

struct tc_chunk *tc_pipe_take(struct tc_pipe *flow, struct tc_error *error) {
    pthread_mutex_lock(&flow->lock);
    while (!flow->empty.first && !flow->stopped) {
        flow->producer_waits = true;
        pthread_cond_wait(&flow->emptied, &flow->lock);
    }
    flow->producer_waits = false;
    struct tc_chunk *chunk = flow->stopped ? NULL : queue_pop(&flow->empty);
    flow->empty_count -= chunk != NULL;
    pthread_mutex_unlock(&flow->lock);
    if (!chunk)
        return NULL;
    chunk->holders = 1;
    chunk->length = 0;
    /* Chunks get their memory when they are first used: small files need one. */
    if (!chunk->bytes && !(chunk->bytes = aligned_alloc(4096, TC_CHUNK_BYTES))) {
        tc_fail_memory(error);
        tc_chunk_release(chunk);
        return NULL;
    }
    return chunk;
}

void tc_pipe_send(struct tc_pipe *flow, struct tc_chunk *chunk) {
    pthread_mutex_lock(&flow->lock);
    queue_push(&flow->full, chunk);
    if (flow->consumer_waits)
        pthread_cond_signal(&flow->filled);
    pthread_mutex_unlock(&flow->lock);
}

struct tc_chunk *tc_pipe_next(struct tc_pipe *flow, struct tc_error *error) {
    pthread_mutex_lock(&flow->lock);
    while (!flow->full.first && !flow->ended) {
        flow->consumer_waits = true;
        pthread_cond_wait(&flow->filled, &flow->lock);
    }
    flow->consumer_waits = false;
    struct tc_chunk *chunk = queue_pop(&flow->full);
    pthread_mutex_unlock(&flow->lock);
    if (!chunk && flow->error.class != TC_OK && error->class == TC_OK)
        *error = flow->error;
    return chunk;
}

void tc_chunk_hold(struct tc_chunk *chunk) {
    pthread_mutex_lock(&chunk->flow->lock);
    chunk->holders++;
    pthread_mutex_unlock(&chunk->flow->lock);
}

void tc_chunk_release(struct tc_chunk *chunk) {
    struct tc_pipe *flow = chunk->flow;
    pthread_mutex_lock(&flow->lock);
    if (--chunk->holders == 0) {
        queue_push_front(&flow->empty, chunk); /* the warmest goes out first */
        /* A producer that ran out sleeps until half of the chunks are back:
         * waking it for each would cost a switch a tensor when they are small.
         * All come back in the end, for nobody else waits for it meanwhile. */
        if (++flow->empty_count >= CHUNKS / 2 && flow->producer_waits)
            pthread_cond_signal(&flow->emptied);
    }
    pthread_mutex_unlock(&flow->lock);
}

static void *observe(void *argument) {
    struct tc_hash_thread *observer = argument;
    for (;;) {
        pthread_mutex_lock(&observer->lock);
        while (observer->waiting == 0 && !observer->closing)
            pthread_cond_wait(&observer->changed, &observer->lock);
        struct tc_chunk *chunk = observer->waiting ? observer->ring[observer->head] : NULL;
        pthread_mutex_unlock(&observer->lock);
        if (!chunk)
            return NULL;
        tc_sha256_update(&observer->hash, chunk->bytes, chunk->length);
        tc_chunk_release(chunk);
        pthread_mutex_lock(&observer->lock);
        observer->head = (observer->head + 1) % observer->capacity;
        observer->waiting--;
        pthread_cond_broadcast(&observer->changed);
        pthread_mutex_unlock(&observer->lock);
    }
}

bool tc_hash_thread_start(struct tc_hash_thread *observer, struct tc_error *error) {
    *observer = (struct tc_hash_thread){.capacity = CHUNKS};
    if (!tc_sha256_init(&observer->hash, error))
        return false;
    observer->ring = calloc(CHUNKS, sizeof(struct tc_chunk *));
    if (!observer->ring) {
        tc_sha256_release(&observer->hash);
        return tc_fail_memory(error);
    }
    pthread_mutex_init(&observer->lock, NULL);
    pthread_cond_init(&observer->changed, NULL);
    return true;
}

void tc_hash_thread_bytes(struct tc_hash_thread *observer, const void *bytes, size_t length) {
    tc_sha256_update(&observer->hash, bytes, length);
}

bool tc_hash_thread_chunk(struct tc_hash_thread *observer, struct tc_chunk *chunk,
                          struct tc_error *error) {
    if (!observer->running) {
        if (!tc_thread_start(&observer->thread, observe, observer, error))
            return false;
        observer->running = true;
    }
    tc_chunk_hold(chunk);
    pthread_mutex_lock(&observer->lock);
    while (observer->waiting == observer->capacity)
        pthread_cond_wait(&observer->changed, &observer->lock);
    observer->ring[(observer->head + observer->waiting) % observer->capacity] = chunk;
    observer->waiting++;
    pthread_cond_broadcast(&observer->changed);
    pthread_mutex_unlock(&observer->lock);
    return true;
}

static void observer_stop(struct tc_hash_thread *observer) {
    if (observer->running) {
        pthread_mutex_lock(&observer->lock);
        observer->closing = true;
        pthread_cond_broadcast(&observer->changed);
        pthread_mutex_unlock(&observer->lock);
        pthread_join(observer->thread, NULL);
    }
    pthread_mutex_destroy(&observer->lock);
    pthread_cond_destroy(&observer->changed);
    free(observer->ring);
    observer->ring = NULL;
    observer->running = false;
}

void tc_hash_thread_finish(struct tc_hash_thread *observer, unsigned char digest[TC_SHA256_BYTES]) {
    observer_stop(observer);
    tc_sha256_finish(&observer->hash, digest);
}

void tc_hash_thread_abort(struct tc_hash_thread *observer) {
    observer_stop(observer);
    tc_sha256_release(&observer->hash);
}
