/* The command's side of the conversation: shared by remote.c (the connection) and
 * blocks.c (ranges of files). */
#ifndef TCONV_CORE_REMOTE_CLIENT_H
#define TCONV_CORE_REMOTE_CLIENT_H

#include <pthread.h>
#include <sys/types.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/remote/protocol.h"

#define BLOCK_BYTES ((uint64_t)1 << 16)
#define CACHE_BLOCKS 384u /* 24 MiB */
#define BUCKETS 512u

/* Who reads a file: one thread may check its sums while others read its data. */
enum client_side { SIDE_DATA, SIDE_CHECK, SIDES };

struct client_file;

/* A piece of a file: whole and at hand once `filled` is `length`. */
struct block {
    struct client_file *file;
    uint64_t index;
    uint32_t length;
    uint32_t filled;
    uint32_t request; /* that brings it */
    unsigned users;   /* who wait for it or copy from it */
    bool failed;
    bool ahead;       /* nobody asked for it yet */
    bool read[SIDES]; /* by whom, since sums are checked */
    unsigned char *bytes;
    struct block *chain; /* in its bucket */
    struct block *newer; /* by last use */
    struct block *older;
};

struct client_file {
    struct tc_remote *remote;
    uint32_t number;
    unsigned users;
    char *address;
    struct tc_remote_facts facts;
    bool answered;         /* OPEN was */
    struct tc_error error; /* why it, or a range of it, failed; TC_OK: it did not */
    uint32_t status;       /* of the answer that it failed with; 0: of none */
    /* The stretch that is being read from one end to the other. */
    uint64_t run_start;
    uint64_t run_end;
    uint64_t expected_start; /* the range that was announced last */
    uint64_t expected_end;
    unsigned ranges_in_run; /* how many announced ranges it had */
    /* While sums are checked, what one side has read is kept for the other, and who is too far
     * ahead waits. */
    bool paced;
    bool checking;
    bool alone; /* who checks sums need not wait: the data has been read */
    pthread_t checker;
    size_t lead[SIDES];    /* blocks that only this side has read */
    unsigned waits[SIDES]; /* threads of it that wait for the other */
    /* A copy of the whole file. */
    int spool;
    uint64_t spooled;
    uint64_t spool_checked;
    bool spool_done;
    struct client_file *next;
};

struct client_call {
    uint32_t id;
    uint64_t most;
    bool wants;
    uint64_t want_offset;
    uint64_t want_length;
    bool done;
    struct tc_buffer *body;
    struct tc_remote_status *status;
    struct tc_error *error;
    struct client_call *next;
};

struct tc_remote {
    int fd;
    pid_t pid;
    unsigned jobs;
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t news;
    pthread_t receiver;
    bool receiving; /* the thread was started */
    bool broken;
    uint32_t last_number;
    uint32_t last_request;
    struct client_file *files;
    struct client_call *calls;
    struct block *buckets[BUCKETS];
    struct block *newest;
    struct block *oldest;
    size_t blocks;
    size_t ahead;      /* blocks that nobody asked for yet */
    unsigned waiting;  /* threads that wait for bytes */
    uint64_t progress; /* counts what was read */
};

/* All of these with the lock held. */
bool client_send(struct tc_remote *remote, const struct tc_frame *frame, const void *payload,
                 struct tc_error *error);
bool client_broken(struct tc_error *error);

/* The blocks' side. */
extern const struct tc_input_source client_source;
/* Makes the block for what comes with the answer to OPEN; false without memory. */
bool blocks_prepare_first(struct client_file *file, uint32_t request);
/* The file is open: its first block is whole, or was not sent. */
void blocks_settle_first(struct client_file *file);
/* Bytes came; false where nobody asked for them. */
bool blocks_store(struct client_file *file, uint64_t offset, const unsigned char *bytes,
                  size_t length);
/* What this request was to bring does not come. */
void blocks_fail(struct tc_remote *remote, uint32_t request);
void blocks_drop_file(struct client_file *file);

/* The file goes when nobody uses it any more. */
void client_file_hold(void *file);
void client_file_drop(void *file);

#endif
