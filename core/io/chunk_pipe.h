/*
 * A flow of chunks from one thread to the next: a producer reads or decodes
 * ahead while the consumer writes, and an observer may hash what was written.
 * A fixed number of chunks goes round, so memory is bounded and the faster
 * side waits for the slower.
 *
 * The producer's function runs in its own thread, takes empty chunks with
 * tc_pipe_take, fills them and sends them with tc_pipe_send; it returns false
 * with *error filled when it fails. The consumer gets them in order with
 * tc_pipe_next and gives each back with tc_chunk_release.
 */
#ifndef TCONV_CORE_IO_CHUNK_PIPE_H
#define TCONV_CORE_IO_CHUNK_PIPE_H

#include <pthread.h>

#include "core/base/error.h"
#include "core/io/sha256.h"

#define TC_CHUNK_BYTES ((size_t)1 << 20)

struct tc_pipe;

struct tc_chunk {
    unsigned char *bytes; /* TC_CHUNK_BYTES of room */
    size_t length;
    size_t item; /* the producer's note: which tensor these bytes belong to */
    struct tc_chunk *next;
    struct tc_pipe *flow;
    unsigned holders;
};

struct tc_queue {
    struct tc_chunk *first;
    struct tc_chunk *last;
};

typedef bool tc_pipe_producer(struct tc_pipe *flow, void *context, struct tc_error *error);

struct tc_pipe {
    pthread_mutex_t lock;
    pthread_cond_t emptied; /* the producer waits for this */
    pthread_cond_t filled;  /* and the consumer for this */
    bool producer_waits;
    bool consumer_waits;
    size_t empty_count;
    struct tc_queue empty;
    struct tc_queue full;
    struct tc_chunk *chunks;
    size_t chunk_count;
    pthread_t thread;
    bool running;
    bool ended;   /* the producer is through */
    bool stopped; /* the consumer wants no more */
    tc_pipe_producer *producer;
    void *context;
    struct tc_error error; /* the producer's */
};

bool tc_pipe_start(struct tc_pipe *flow, tc_pipe_producer *producer, void *context,
                   struct tc_error *error);
/* Stops the producer if it still runs, joins it, frees everything. */
void tc_pipe_end(struct tc_pipe *flow);

/* The producer's side. NULL: the consumer stopped, or there is no memory and
 * the error says so; return at once. */
struct tc_chunk *tc_pipe_take(struct tc_pipe *flow, struct tc_error *error);
void tc_pipe_send(struct tc_pipe *flow, struct tc_chunk *chunk);

/* The consumer's side. NULL at the end, or with *error filled when the
 * producer failed. */
struct tc_chunk *tc_pipe_next(struct tc_pipe *flow, struct tc_error *error);
void tc_chunk_hold(struct tc_chunk *chunk);
void tc_chunk_release(struct tc_chunk *chunk);

/* pthread_create with every signal blocked in the new thread, so that the
 * main thread alone handles them. */
bool tc_thread_start(pthread_t *thread, void *(*run)(void *), void *context,
                     struct tc_error *error);

/*
 * SHA-256 in a thread of its own, over bytes given in order. Chunks are held,
 * not copied; other bytes must be given while no chunk is in flight, that is
 * before the first tc_hash_thread_chunk.
 */
struct tc_hash_thread {
    struct tc_sha256 hash;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tc_chunk **ring; /* chunks waiting to be hashed */
    size_t capacity;
    size_t head;
    size_t waiting;
    bool running;
    bool closing;
};

bool tc_hash_thread_start(struct tc_hash_thread *observer, struct tc_error *error);
void tc_hash_thread_bytes(struct tc_hash_thread *observer, const void *bytes, size_t length);
bool tc_hash_thread_chunk(struct tc_hash_thread *observer, struct tc_chunk *chunk,
                          struct tc_error *error);
/* Waits for the thread; the digest is of everything given. */
void tc_hash_thread_finish(struct tc_hash_thread *observer, unsigned char digest[TC_SHA256_BYTES]);
/* After start, unless finish ran. */
void tc_hash_thread_abort(struct tc_hash_thread *observer);

#endif
