/*
 * A pipe of chunks from one thread to another: a producer reads or decodes
 * ahead while the consumer writes, and a third thread may hash what was written.
 * A fixed number of chunks goes round, so memory is bounded and the faster
 * side waits for the slower.
 *
 * The producer's function runs in its own thread, takes empty chunks with
 * tc_pipe_take, fills them and sends them with tc_pipe_send; it returns false
 * with *error filled when it fails. Once the consumer wants no more, it returns
 * at once, and its result is ignored. The consumer gets the chunks in order with
 * tc_pipe_next and gives each back with tc_chunk_release. The pipe owns the
 * chunks.
 */
#ifndef TCONV_CORE_IO_CHUNK_PIPE_H
#define TCONV_CORE_IO_CHUNK_PIPE_H

#include <pthread.h>

#include "core/base/error.h"
#include "core/io/sha256.h"

#define TC_CHUNK_BYTES ((size_t)1 << 20)

struct tc_pipe;
struct tc_chunk_home;

struct tc_chunk {
    unsigned char *bytes; /* TC_CHUNK_BYTES of room */
    size_t length;
    size_t item;     /* set by the producer: which tensor these bytes belong to */
    uint64_t offset; /* set by it where chunks come in any order: their place in the tensor */
    /* Set by it where the consumer wants that: how many bytes it was before it was packed, and the
     * CRC-32 of those. */
    size_t unpacked;
    uint32_t crc;
    struct tc_chunk *next;
    struct tc_chunk_home *home;
    size_t owner; /* which producer fills it, where there are several */
    unsigned holders;
};

/* Whom chunks belong to, and go back to when nobody holds them any more. */
struct tc_chunk_home {
    pthread_mutex_t lock;
    void (*take_back)(struct tc_chunk *chunk); /* called with the lock held */
};

struct tc_queue {
    struct tc_chunk *first;
    struct tc_chunk *last;
};

void tc_queue_push(struct tc_queue *queue, struct tc_chunk *chunk);
void tc_queue_push_front(struct tc_queue *queue, struct tc_chunk *chunk);
/* NULL where it is empty. */
struct tc_chunk *tc_queue_pop(struct tc_queue *queue);

typedef bool tc_pipe_producer(struct tc_pipe *pipe, void *context, struct tc_error *error);

struct tc_pipe {
    struct tc_chunk_home home; /* must be first */
    pthread_cond_t emptied;    /* the producer waits for this */
    pthread_cond_t filled;     /* and the consumer for this */
    bool producer_waits;
    bool consumer_waits;
    size_t empty_count;
    struct tc_queue empty;
    struct tc_queue full;
    struct tc_chunk *chunks;
    size_t chunk_count;
    pthread_t thread;
    bool running;
    bool ended;     /* the producer has returned */
    bool succeeded; /* what it returned */
    bool stopped;   /* the consumer wants no more */
    tc_pipe_producer *producer;
    void *context;
    struct tc_error error; /* the producer's */
};

bool tc_pipe_start(struct tc_pipe *pipe, tc_pipe_producer *producer, void *context,
                   struct tc_error *error);
/* Stops the producer if it still runs, joins it, frees everything. */
void tc_pipe_end(struct tc_pipe *pipe);

/* The result of asking for a chunk. */
enum tc_next {
    TC_NEXT_CHUNK,
    TC_NEXT_END,    /* there is no other, and nothing failed; *chunk is NULL */
    TC_NEXT_FAILED, /* the error says why; *chunk is NULL */
};

/* The producer's side: gives an empty chunk. TC_NEXT_END means that the consumer
 * wants no more; the only failure is a lack of memory. */
enum tc_next tc_pipe_take(struct tc_pipe *pipe, struct tc_chunk **chunk, struct tc_error *error);
void tc_pipe_send(struct tc_pipe *pipe, struct tc_chunk *chunk);

/* The consumer's side: gives the next full chunk. TC_NEXT_END means that the
 * producer has sent everything; a failure is the producer's. */
enum tc_next tc_pipe_next(struct tc_pipe *pipe, struct tc_chunk **chunk, struct tc_error *error);
void tc_chunk_hold(struct tc_chunk *chunk);
void tc_chunk_release(struct tc_chunk *chunk);

/*
 * SHA-256 in a thread of its own, where there may be one, over bytes given in order. Chunks are
 * held, not copied. tc_hash_thread_bytes hashes in the caller's thread, and waits until all
 * chunks that were given before are hashed.
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
    bool alone; /* there is no thread for it, so that the caller's hashes */
    bool closing;
    size_t granted; /* by tc_cores_begin */
};

bool tc_hash_thread_start(struct tc_hash_thread *hashing, struct tc_error *error);
void tc_hash_thread_bytes(struct tc_hash_thread *hashing, const void *bytes, size_t length);
void tc_hash_thread_chunk(struct tc_hash_thread *hashing, struct tc_chunk *chunk);
/* Waits for the thread; the digest is of everything given. */
void tc_hash_thread_finish(struct tc_hash_thread *hashing, unsigned char digest[TC_SHA256_BYTES]);
/* Runs in place of finish, where the digest is not wanted. */
void tc_hash_thread_abort(struct tc_hash_thread *hashing);

#endif
