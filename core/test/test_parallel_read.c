/*
 * A parallel read reads every byte once, and neither its result nor its error depends on the number
 * of threads.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/inspect/digest.h"
#include "core/inspect/parallel_read.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "core/test/temporary.h"

#define TENSORS 5u

/* Tensors that are empty, small, of one piece and of several. */
static const uint64_t sizes[TENSORS][1] = {{0}, {7}, {6291456}, {20000001}, {300000}};
static struct tc_reader *reader;
static struct tc_error error;
static uint64_t damaged_from[TENSORS]; /* reading a byte from here on fails */
static bool sequential;

static bool open_made(struct tc_reader *made, struct tc_error *failure) {
    static const char *const names[TENSORS] = {"empty", "small", "piece", "large", "last"};
    for (size_t i = 0; i < TENSORS; i++) {
        struct tc_tensor tensor = {.name = tc_text_of(names[i]),
                                   .shape = sizes[i],
                                   .rank = 1,
                                   .dtype = TC_U8,
                                   .nbytes = sizes[i][0],
                                   .cookie = (uint32_t)i,
                                   .sequential = sequential};
        if (!tc_table_add(&made->table, &tensor, failure))
            return false;
    }
    return true;
}

static unsigned char byte_at(size_t tensor, uint64_t offset) {
    return (unsigned char)(offset * 131 + (offset >> 9) + tensor * 17);
}

static bool read_made(struct tc_reader *made, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *failure) {
    (void)made;
    size_t which = tensor->cookie;
    if (offset + length > damaged_from[which])
        return tc_fail(failure, TC_INVALID, "test", "damage in tensor %zu", which);
    for (size_t i = 0; i < length; i++)
        ((unsigned char *)buffer)[i] = byte_at(which, offset + i);
    return true;
}

static void close_made(struct tc_reader *made) {
    (void)made;
}

static int probe_made(const struct tc_probe *probe) {
    (void)probe;
    return 0;
}

static const char *const extensions[] = {".made", NULL};
static const struct tc_backend backend = {.name = "made",
                                          .extensions = extensions,
                                          .max_rank = 1,
                                          .max_name = 100,
                                          .probe = probe_made,
                                          .open = open_made,
                                          .read = read_made,
                                          .close = close_made};

static void open_reader(bool in_sequence) {
    static struct tc_format_options options;
    char path[TEST_PATH_MAX];
    cr_assert_eq(close(test_temporary_file(path)), 0);
    options = (struct tc_format_options){.limits = TC_LIMITS_DEFAULT};
    sequential = in_sequence;
    memset(damaged_from, 0xFF, sizeof damaged_from);
    error = (struct tc_error){0};
    struct tc_input *input = tc_input_open(path, NULL, &error);
    reader = input ? tc_reader_open(&backend, input, &options, &error) : NULL;
    unlink(path);
    cr_assert_not_null(reader, "%s", error.message);
}

static void close_reader(void) {
    tc_reader_close(reader);
}

struct seen {
    uint64_t bytes;
    uint64_t counts[256];
};

static struct seen seen[TENSORS];
static unsigned finished[TENSORS];

static void take(void *context, void *state, const struct tc_tensor *tensor, const void *bytes,
                 size_t length) {
    (void)context;
    (void)tensor;
    struct seen *sum = state;
    sum->bytes += length;
    for (size_t i = 0; i < length; i++)
        sum->counts[((const unsigned char *)bytes)[i]]++;
}

static void merge(void *into, const void *from) {
    struct seen *sum = into;
    const struct seen *more = from;
    sum->bytes += more->bytes;
    for (size_t i = 0; i < 256; i++)
        sum->counts[i] += more->counts[i];
}

static void done(void *context, void *state, size_t position) {
    (void)context;
    memcpy(&seen[position], state, sizeof *seen);
    finished[position]++;
}

static const bool wanted[TENSORS] = {true, true, true, true, false};

static bool run(size_t threads) {
    const struct tc_parallel_read read = {.reader = reader,
                                          .wanted = wanted,
                                          .state_size = sizeof(struct seen),
                                          .take = take,
                                          .merge = merge,
                                          .done = done,
                                          .threads = threads};
    memset(seen, 0, sizeof seen);
    memset(finished, 0, sizeof finished);
    error = (struct tc_error){0};
    return tc_parallel_read_run(&read, &error);
}

static void expect_all(const char *how) {
    for (size_t i = 0; i < TENSORS; i++) {
        struct seen expected = {.bytes = wanted[i] ? sizes[i][0] : 0};
        for (uint64_t at = 0; at < expected.bytes; at++)
            expected.counts[byte_at(i, at)]++;
        cr_assert_arr_eq(&seen[i], &expected, sizeof expected, "tensor %zu %s", i, how);
        cr_assert_eq(finished[i], wanted[i], "tensor %zu %s", i, how);
    }
}

TestSuite(parallel_read, .fini = close_reader, .timeout = 600);

Test(parallel_read, gathers_the_same_on_any_number_of_threads) {
    open_reader(false);
    for (size_t threads = 0; threads <= 9; threads++) {
        cr_assert(run(threads), "%s", error.message);
        expect_all("in pieces");
    }
}

Test(parallel_read, gathers_the_same_in_sequence) {
    open_reader(true);
    cr_assert(run(8), "%s", error.message);
    expect_all("in sequence");
}

Test(parallel_read, fails_with_the_first_damage) {
    open_reader(false);
    damaged_from[2] = sizes[2][0] - 1; /* found late, while the other damage is found at once */
    damaged_from[3] = 0;
    for (size_t threads = 1; threads <= 8; threads++) {
        cr_assert_not(run(threads));
        cr_assert_str_eq(error.message, "damage in tensor 2", "on %zu threads", threads);
        cr_assert_str_eq(error.tensor, "piece");
    }
}

Test(parallel_read, fails_in_sequence) {
    open_reader(true);
    damaged_from[3] = 5000000;
    cr_assert_not(run(8));
    cr_assert_str_eq(error.message, "damage in tensor 3");
}

Test(parallel_read, a_digest_fails_with_the_first_damage) {
    struct tc_digest digest = {0};
    open_reader(false);
    damaged_from[2] = sizes[2][0] - 1;
    damaged_from[4] = 0;
    cr_assert_not(tc_digest_make(&digest, reader, &error));
    cr_assert_str_eq(error.message, "damage in tensor 2");
    tc_digest_release(&digest);
}
