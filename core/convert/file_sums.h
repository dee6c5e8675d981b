/*
 * The SHA-256 of whole files, taken by other threads while the caller goes on with its own work; of
 * several at once, which one core hashes in hardly more time than one. Files that are written
 * meanwhile are followed as they grow.
 */
#ifndef TCONV_CORE_CONVERT_FILE_SUMS_H
#define TCONV_CORE_CONVERT_FILE_SUMS_H

#include <pthread.h>

#include "core/base/error.h"
#include "core/io/cores.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"

enum tc_file_sum_state { TC_SUM_WAITS, TC_SUM_TAKEN, TC_SUM_DONE, TC_SUM_FAILED };

struct tc_file_sum {
    struct tc_file_sum *next;
    size_t number;                     /* in the list */
    struct tc_input *input;            /* NULL: a file that is followed */
    int fd;                            /* of that, -1 otherwise */
    const char *path;                  /* of that, for messages */
    struct tc_outfile_progress follow; /* how far that is written */
    enum tc_file_sum_state state;
    uint64_t at; /* bytes that are hashed */
    struct tc_sha256 hash;
    char hex[2 * TC_SHA256_BYTES + 1];
};

/* All zero: there are none. */
struct tc_file_sums {
    pthread_mutex_t lock;   /* guards all below, and the state of each sum */
    pthread_cond_t changed; /* there is something to do, or to end */
    struct tc_file_sum *first;
    struct tc_file_sum *last;
    struct tc_file_sum *waiting; /* none before it waits; NULL: none does */
    bool begun;
    bool closing;    /* no file is added any more */
    bool cancelled;  /* nothing is wanted any more */
    size_t open;     /* files that are neither done nor failed */
    size_t idle;     /* threads that have no file */
    size_t followed; /* descriptors of files that are followed */
    struct tc_error error;
    size_t failed; /* the number of the first that failed, whose error that is; SIZE_MAX: none */
    pthread_t threads[TC_MOST_CORES];
    size_t running;
    size_t granted;
};

/* Begins with these inputs, which stay open until the sums are finished or released. The list
 * starts with them, in their order. */
bool tc_file_sums_start(struct tc_file_sums *sums, struct tc_input *const *inputs, size_t count,
                        struct tc_error *error);
/* Adds one; NULL without memory. */
struct tc_file_sum *tc_file_sums_add(struct tc_file_sums *sums, struct tc_input *input,
                                     struct tc_error *error);
/* Follows a file of which nothing is written yet, where there is a thread for it: out->progress is
 * then the sum's. */
void tc_file_sums_follow(struct tc_file_sums *sums, struct tc_outfile *out);
/* The sum of a file that was followed, and is sealed; NULL: it was not, or could not be, since what
 * was hashed was written again. */
struct tc_file_sum *tc_file_sums_followed(struct tc_file_sums *sums, struct tc_outfile *out);
/* Waits for all of them, and takes those that no thread has taken. More can be added then, for
 * another call. */
bool tc_file_sums_finish(struct tc_file_sums *sums, struct tc_error *error);
/* Stops what still runs; also where they were never started. */
void tc_file_sums_release(struct tc_file_sums *sums);

/* The SHA-256 of all bytes of a file, in hexadecimal; in the caller's thread. */
bool tc_input_sum(struct tc_input *input, char hex[2 * TC_SHA256_BYTES + 1],
                  struct tc_error *error);

#endif
