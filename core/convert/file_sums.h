/*
 * The SHA-256 of whole files, taken by other threads while the caller goes on with its own work.
 */
#ifndef TCONV_CORE_CONVERT_FILE_SUMS_H
#define TCONV_CORE_CONVERT_FILE_SUMS_H

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/io/sha256.h"
#include "core/io/thread_pool.h"

/* All zero: there are none. */
struct tc_file_sums {
    struct tc_input *const *inputs;
    size_t count;
    size_t next;
    char (*hex)[2 * TC_SHA256_BYTES + 1]; /* by input; NULL: not asked for */
    struct tc_pool_work work;
    struct tc_pool pool;
    bool running;
};

/* The inputs stay open until the sums are finished or released. */
bool tc_file_sums_start(struct tc_file_sums *sums, struct tc_input *const *inputs, size_t count,
                        struct tc_error *error);
/* Waits for all of them. */
bool tc_file_sums_finish(struct tc_file_sums *sums, struct tc_error *error);
/* Stops what still runs; also where they were never started. */
void tc_file_sums_release(struct tc_file_sums *sums);

/* The SHA-256 of all bytes of a file, in hexadecimal; in the caller's thread. */
bool tc_input_sum(struct tc_input *input, char hex[2 * TC_SHA256_BYTES + 1],
                  struct tc_error *error);

#endif
