/*
 * Input files: opened once, read by range with pread, never mapped (a mapped file
 * that is truncated meanwhile reads as zeros or ends the program by SIGBUS).
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

/* Who reads an input, where checksums are checked beside. */
enum tc_input_checking {
    TC_CHECKING_BEGINS, /* from now on this thread reads all that others read too */
    TC_CHECKING_ENDS,   /* it has */
    TC_CHECKING_ALONE,  /* nobody else reads any more, whether it has begun or not */
};

/* Where the bytes of an input come from that is no file of this machine. `context` is
 * shared by the input and its parts: `hold` and `drop` count them. */
struct tc_input_source {
    bool (*read)(void *context, uint64_t offset, void *buffer, size_t length,
                 struct tc_error *error);
    /* This range will be read: what is not there yet may be fetched ahead. */
    void (*expect)(void *context, uint64_t offset, uint64_t length);
    void (*check)(void *context, enum tc_input_checking what);
    /* False with the error filled where a read has failed for a reason that it knows. */
    bool (*sound)(void *context, struct tc_error *error);
    void (*hold)(void *context);
    void (*drop)(void *context);
};

struct tc_input_pool {
    pthread_mutex_t lock;
    struct tc_input *newest; /* the open inputs, by last use */
    struct tc_input *oldest;
    unsigned open;
};

/* What went wrong when a file was read, shared by the file's input, the parts of it and what was
 * unpacked from it. */
struct tc_input_failure {
    _Atomic unsigned users;
    _Atomic int errnum; /* of a read that failed, or 0 */
};

struct tc_input {
    char *path;  /* its name, also in messages */
    char *place; /* where it is opened: `path`, except for an output that is not published yet */
    uint64_t size;
    uint64_t base; /* where it starts in its file, for a part of another input; else 0 */
    int fd;
    unsigned users;
    struct tc_input_failure *failure;
    dev_t device;
    ino_t inode;
    bool is_list; /* it only lists the files of a model, and is none itself */
    mode_t mode;  /* permissions; all of them where it came out of a pipe */
    struct timespec modified;
    const struct tc_input_source *source; /* NULL: it is a file, which has a descriptor */
    void *context;                        /* of the source */
    bool copied;                /* from a server that gives no ranges, to a temporary file */
    struct tc_input_pool *pool; /* NULL: it stays open */
    struct tc_input *newer;
    struct tc_input *older;
};

void tc_input_pool_init(struct tc_input_pool *pool);
void tc_input_pool_release(struct tc_input_pool *pool);

/* "-" is standard input, which is first copied to an unlinked temporary file
 * unless it is a regular file. Any other path must be a regular file. */
struct tc_input *tc_input_open(const char *path, struct tc_input_pool *pool,
                               struct tc_error *error);
/* A file that is at `place` now and will be called `path`. */
struct tc_input *tc_input_open_at(const char *path, const char *place, struct tc_input_pool *pool,
                                  struct tc_error *error);
/* A range of another input, as an input of its own called `path`; it may outlive
 * the other. Only tc_input_read and tc_input_load work on it: its descriptor is
 * that of the whole file. */
struct tc_input *tc_input_part(struct tc_input *whole, const char *path, uint64_t offset,
                               uint64_t size, struct tc_error *error);
/* Makes an input of the descriptor of a temporary file, and takes the descriptor
 * over, also on failure. `source` is the input that its bytes come from, or NULL:
 * where one of the two can't be read, neither is sound. */
struct tc_input *tc_input_adopt(int fd, const char *path, uint64_t size, struct tc_input *source,
                                struct tc_error *error);
/* Makes an input of a source, of which it holds `context` until it is closed.
 * `number` tells inputs of one source from each other. */
struct tc_input *tc_input_from(const char *path, uint64_t size,
                               const struct tc_input_source *source, void *context, uint64_t number,
                               struct tc_error *error);
void tc_input_close(struct tc_input *input);

/* Exactly `length` bytes. A range beyond the end is TC_INVALID; a file that
 * got shorter since it was opened is TC_IO. */
bool tc_input_read(struct tc_input *input, uint64_t offset, void *buffer, size_t length,
                   struct tc_error *error);
/* Says which range will be read soon; does nothing for a file. */
void tc_input_expect(struct tc_input *input, uint64_t offset, uint64_t length);
/* Says that this thread checks checksums of what other threads read meanwhile, so that neither
 * gets far ahead of the other; or that one of them has ended. Does nothing for a file. */
void tc_input_check(struct tc_input *input, enum tc_input_checking what);
/* The descriptor, which an input of another source has not, and which stays open until
 * tc_input_release; -1 on failure. */
int tc_input_acquire(struct tc_input *input, struct tc_error *error);
void tc_input_release(struct tc_input *input);
/* Fails with TC_IO where a read of it or of a part of it has failed, though the caller went on
 * without. */
bool tc_input_sound(struct tc_input *input, struct tc_error *error);
/* The same, also where size or modification time are not what they were. */
bool tc_input_unchanged(struct tc_input *input, struct tc_error *error);

/* Reads a range, such as a header, into memory from malloc, and lets the memory
 * limit grow with it (tc_memory_earn). */
void *tc_input_load(struct tc_input *input, uint64_t offset, uint64_t length,
                    struct tc_error *error);

/* Where temporary files go: the first of $TMPDIR, /var/tmp and /tmp that will do. */
#define TC_TEMPFILE_FOLDERS 3
const char *tc_tempfile_folder(size_t i); /* NULL: not set */
/* An unlinked temporary file in one of them; -1 on failure. */
int tc_tempfile(struct tc_error *error);
/* Call before `more` bytes are added to a temporary file that has `length`: fails
 * where it would exceed TC_MAX_SPOOL or fill its disk. */
bool tc_tempfile_check(int fd, uint64_t length, uint64_t more, struct tc_error *error);
/* write() until all is written. */
bool tc_write_all(int fd, const void *bytes, size_t length, struct tc_error *error);
/* Reads what an open file holds from where it stands, as much of it as there is room for; returns
 * how many bytes that is, or -1 (errno). */
ssize_t tc_read_up_to(int fd, void *bytes, size_t room);

#endif
