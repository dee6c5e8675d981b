/*
 * Input files: opened once, read by range with pread, never mapped (a mapped
 * file that is truncated meanwhile reads as silent zeros or kills us).
 *
 * An input in a pool (a shard) may be closed behind the scenes and opened
 * again when it is read, so that thousands of shards need few descriptors;
 * it must then still be the same file. Reading is safe from several threads.
 */
#ifndef TCONV_CORE_IO_INPUT_H
#define TCONV_CORE_IO_INPUT_H

#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#include "core/base/error.h"

struct tc_input;

struct tc_input_pool {
    pthread_mutex_t lock;
    struct tc_input *newest; /* open ones, by last use */
    struct tc_input *oldest;
    unsigned open;
};

struct tc_input {
    char *path;  /* what it is called, in messages too */
    char *place; /* where it is opened: the same, but for an output that is not published yet */
    uint64_t size;
    uint64_t base; /* of a part of another file: where it starts there */
    int fd;
    unsigned users;
    dev_t device;
    ino_t inode;
    mode_t mode; /* permissions; all of them where it came out of a pipe */
    struct timespec modified;
    struct tc_input_pool *pool; /* NULL: stays open */
    struct tc_input *newer;
    struct tc_input *older;
};

void tc_input_pool_init(struct tc_input_pool *pool);
void tc_input_pool_release(struct tc_input_pool *pool);

/* "-" is standard input; what is no regular file there is first copied to an
 * unlinked temporary file. Any other path must be a regular file. */
struct tc_input *tc_input_open(const char *path, struct tc_input_pool *pool,
                               struct tc_error *error);
/* A file that lies at `place` and will be called `path`. */
struct tc_input *tc_input_open_at(const char *path, const char *place, struct tc_input_pool *pool,
                                  struct tc_error *error);
/* A range of another input, as a file of its own called `path`; it outlives the
 * other. It can be read and nothing else: its descriptor is that of the whole. */
struct tc_input *tc_input_part(struct tc_input *whole, const char *path, uint64_t offset,
                               uint64_t size, struct tc_error *error);
/* A descriptor of a temporary file as an input, which takes it over, also on
 * failure. */
struct tc_input *tc_input_adopt(int fd, const char *path, uint64_t size, struct tc_error *error);
void tc_input_close(struct tc_input *input);

/* Exactly `length` bytes. A range beyond the end is TC_INVALID; a file that
 * got shorter since it was opened is TC_IO. */
bool tc_input_read(struct tc_input *input, uint64_t offset, void *buffer, size_t length,
                   struct tc_error *error);
/* The descriptor, kept open until released; -1 with the error filled. */
int tc_input_acquire(struct tc_input *input, struct tc_error *error);
void tc_input_release(struct tc_input *input);
/* Fails with TC_IO where size or modification time are not what they were. */
bool tc_input_unchanged(struct tc_input *input, struct tc_error *error);

/* Reads the whole of a small file's range into memory from malloc. */
void *tc_input_load(struct tc_input *input, uint64_t offset, uint64_t length,
                    struct tc_error *error);

/* An unlinked temporary file in $TMPDIR or /var/tmp; -1 with the error filled. */
int tc_tempfile(struct tc_error *error);
/* Before `more` bytes are added to a temporary file that has `length`: they must
 * stay below TC_MAX_SPOOL and leave its disk some room for others. */
bool tc_tempfile_check(int fd, uint64_t length, uint64_t more, struct tc_error *error);
/* write() until all is written. */
bool tc_write_all(int fd, const void *bytes, size_t length, struct tc_error *error);

#endif
