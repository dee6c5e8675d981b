/*
 * Sums of files that are there, and of files that are written meanwhile, whatever the order of the
 * writes and the number of threads.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/convert/file_sums.h"
#include "core/io/cores.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "core/test/temporary.h"

#define BYTES ((size_t)3 << 20)
#define INPUTS 6u

static char folder[TEST_PATH_MAX];
static unsigned char *bytes;
static struct tc_input *inputs[INPUTS];
static const size_t sizes[INPUTS] = {0, 1, 64, 1 << 17, 1000001, BYTES};

static void setup(void) {
    struct tc_error error = {0};
    test_temporary_folder(folder);
    bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * i >> 7);
    for (size_t i = 0; i < INPUTS; i++) {
        char path[TEST_PATH_MAX + 16];
        snprintf(path, sizeof path, "%s/in%zu", folder, i);
        FILE *file = fopen(path, "w");
        cr_assert_eq(fwrite(bytes, 1, sizes[i], file), sizes[i]);
        fclose(file);
        inputs[i] = tc_input_open(path, NULL, &error);
        cr_assert_not_null(inputs[i]);
    }
}

static void teardown(void) {
    for (size_t i = 0; i < INPUTS; i++)
        tc_input_close(inputs[i]);
    free(bytes);
    test_remove_folder(folder);
}

TestSuite(file_sums, .init = setup, .fini = teardown);

static void expect_sum(const struct tc_file_sum *sum, const unsigned char *message, size_t length) {
    unsigned char digest[TC_SHA256_BYTES];
    char hex[2 * TC_SHA256_BYTES + 1];
    struct tc_error error = {0};
    cr_assert(tc_sha256_of(message, length, digest, &error));
    tc_hex(digest, sizeof digest, hex);
    cr_assert_eq(sum->state, TC_SUM_DONE);
    cr_assert_str_eq(sum->hex, hex, "%zu bytes", length);
}

Test(file_sums, of_inputs) {
    for (size_t threads = 1; threads <= 8; threads *= 2) {
        struct tc_file_sums sums;
        struct tc_error error = {0};
        tc_cores_set(threads);
        cr_assert(tc_file_sums_start(&sums, inputs, INPUTS, &error));
        cr_assert(tc_file_sums_finish(&sums, &error));
        const struct tc_file_sum *sum = sums.first;
        for (size_t i = 0; i < INPUTS; i++, sum = sum->next)
            expect_sum(sum, bytes, sizes[i]);
        cr_assert_null(sum);
        tc_file_sums_release(&sums);
    }
}

/* Of several that fail, the first of the list is told. */
Test(file_sums, of_a_file_that_is_cut) {
    char path[TEST_PATH_MAX + 16];
    struct tc_error error = {0};
    struct tc_file_sums sums;
    for (size_t i = 3; i < INPUTS; i++) {
        snprintf(path, sizeof path, "%s/in%zu", folder, i);
        fclose(fopen(path, "w"));
    }
    tc_cores_set(4);
    cr_assert(tc_file_sums_start(&sums, inputs, INPUTS, &error));
    cr_assert_not(tc_file_sums_finish(&sums, &error));
    cr_assert(strstr(error.file, "in3"), "%s", error.file);
    tc_file_sums_release(&sums);
}

/* Writes all bytes in pieces, some out of order, and some twice. */
static void write_pieces(struct tc_outfile *out, unsigned turn) {
    static const char header[] = "header!";
    const size_t part = BYTES / 8;
    struct tc_error error = {0};
    cr_assert(tc_outfile_write(out, turn & 1 ? (const void *)header : bytes, 8, &error));
    for (size_t i = 0; i < 8; i++) {
        size_t place = turn & 2 ? i ^ 1 : i; /* each second before the first */
        size_t at = place == 0 ? 8 : place * part;
        size_t end = (place + 1) * part;
        cr_assert(tc_outfile_write_apart(out, at, bytes + at, end - at, &error));
    }
    if (turn & 1)
        cr_assert(tc_outfile_write_at(out, 0, bytes, 8, &error));
    cr_assert(tc_outfile_seal(out, &error));
}

Test(file_sums, of_a_file_that_is_written) {
    char path[TEST_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/out", folder);
    for (unsigned turn = 0; turn < 16; turn++) {
        struct tc_publish publish;
        struct tc_file_sums sums;
        struct tc_error error = {0};
        tc_cores_set(turn < 8 ? 2 : 1);
        cr_assert(tc_publish_begin(&publish, path, false,
                                   (struct tc_publish_options){.no_sync = true}, &error));
        struct tc_outfile *out = tc_outfile_open(&publish, "out", &error);
        cr_assert(out && tc_file_sums_start(&sums, inputs, INPUTS, &error));
        tc_file_sums_follow(&sums, out);
        cr_assert_eq(out->progress != NULL, turn < 8);
        write_pieces(out, turn % 4);
        struct tc_input *input = tc_outfile_reopen(out, NULL, &error);
        struct tc_file_sum *sum = tc_file_sums_followed(&sums, out);
        if (turn < 8 && !(turn & 1))
            cr_assert_not_null(sum, "nothing was written twice");
        if (!sum)
            sum = tc_file_sums_add(&sums, input, &error);
        cr_assert(tc_file_sums_finish(&sums, &error), "%s", error.message);
        expect_sum(sum, bytes, BYTES);
        tc_file_sums_release(&sums);
        tc_input_close(input);
        tc_publish_end(&publish);
    }
}

Test(file_sums, given_up) {
    struct tc_file_sums none = {0};
    struct tc_file_sums sums;
    struct tc_error error = {0};
    tc_cores_set(2);
    cr_assert(tc_file_sums_start(&sums, inputs, INPUTS, &error));
    tc_file_sums_release(&sums);
    tc_file_sums_release(&none);
}

/* What is given up, or whole, just when the thread finds nothing new: it must not sleep on. */
Test(file_sums, ended_at_any_moment) {
    char path[TEST_PATH_MAX + 16];
    struct tc_publish publish;
    struct tc_error error = {0};
    snprintf(path, sizeof path, "%s/out", folder);
    tc_cores_set(2);
    for (unsigned turn = 0; turn < 500; turn++) {
        struct tc_file_sums sums;
        cr_assert(tc_publish_begin(&publish, path, false,
                                   (struct tc_publish_options){.no_sync = true}, &error));
        struct tc_outfile *out = tc_outfile_open(&publish, "out", &error);
        cr_assert(out && tc_file_sums_start(&sums, inputs + 2, 1, &error));
        tc_file_sums_follow(&sums, out);
        for (unsigned i = 0; i < turn % 16; i++)
            cr_assert(tc_outfile_write_apart(out, i, bytes, 1, &error));
        for (volatile unsigned i = 0; i < turn % 64 * 32; i++)
            continue;
        if (turn & 1)
            cr_assert(tc_outfile_seal(out, &error) && tc_file_sums_finish(&sums, &error));
        tc_file_sums_release(&sums);
        tc_publish_end(&publish);
    }
}
