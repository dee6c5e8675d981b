/* A reader whose tensors a test makes itself: `made_data` has the bytes of each by its cookie. */
#ifndef TCONV_CORE_TEST_MADE_READER_H
#define TCONV_CORE_TEST_MADE_READER_H

#include <criterion/criterion.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/table.h"
#include "core/test/temporary.h"

#define MADE_TENSORS 4

static const void *made_data[MADE_TENSORS];

static bool made_open(struct tc_reader *reader, struct tc_error *failure) {
    (void)reader;
    (void)failure;
    return true;
}

static bool made_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *failure) {
    (void)reader;
    (void)failure;
    cr_assert_leq(offset + length, tensor->nbytes);
    memcpy(buffer, (const char *)made_data[tensor->cookie] + offset, length);
    return true;
}

static void made_close(struct tc_reader *reader) {
    (void)reader;
}

/* A reader with an empty table. `options` must outlive it. */
static struct tc_reader *made_reader(struct tc_format_options *options) {
    static const struct tc_backend backend = {
        .name = "made", .open = made_open, .read = made_read, .close = made_close};
    struct tc_error failure = {0};
    char path[TEST_PATH_MAX];
    *options = (struct tc_format_options){.limits = TC_LIMITS_DEFAULT};
    cr_assert_eq(close(test_temporary_file(path)), 0);
    struct tc_input *input = tc_input_open(path, NULL, &failure);
    unlink(path);
    struct tc_reader *reader = input ? tc_reader_open(&backend, input, options, &failure) : NULL;
    cr_assert_not_null(reader, "%s", failure.message);
    return reader;
}

/* What each test begins with. */
static struct tc_format_options format_options;
static struct tc_reader *reader;
static struct tc_arena arena;
static struct tc_error error;

static void made_setup(void) {
    error = (struct tc_error){0};
    tc_arena_init(&arena, 0);
    reader = made_reader(&format_options);
}

static void made_teardown(void) {
    tc_reader_close(reader);
    tc_arena_release(&arena);
}

#endif
