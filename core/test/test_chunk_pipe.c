#include <criterion/criterion.h>
#include <string.h>

#include "core/base/error.h"
#include "core/io/chunk_pipe.h"
#include "core/io/sha256.h"

static bool count_up(struct tc_pipe *pipe, void *context, struct tc_error *error) {
    size_t *chunks = context;
    for (size_t i = 0; i < *chunks; i++) {
        struct tc_chunk *chunk;
        if (tc_pipe_take(pipe, &chunk, error) != TC_NEXT_CHUNK)
            return false;
        memset(chunk->bytes, (int)i, 1000);
        chunk->length = 1000;
        chunk->item = i;
        tc_pipe_send(pipe, chunk);
    }
    return *chunks != 77 || tc_fail(error, TC_INVALID, "test", "seventy-seven");
}

Test(chunk_pipe, chunks_arrive_in_order) {
    struct tc_pipe pipe;
    struct tc_error error = {0};
    size_t chunks = 1000;
    cr_assert(tc_pipe_start(&pipe, count_up, &chunks, &error));
    for (size_t i = 0; i < chunks; i++) {
        struct tc_chunk *chunk;
        cr_assert_eq(tc_pipe_next(&pipe, &chunk, &error), TC_NEXT_CHUNK);
        cr_assert_eq(chunk->item, i);
        cr_assert_eq(chunk->bytes[999], (unsigned char)i);
        tc_chunk_release(chunk);
    }
    struct tc_chunk *last;
    cr_assert_eq(tc_pipe_next(&pipe, &last, &error), TC_NEXT_END);
    cr_assert_null(last);
    cr_assert_eq(error.class, TC_OK);
    tc_pipe_end(&pipe);
}

Test(chunk_pipe, a_failure_comes_behind_what_was_sent) {
    struct tc_pipe pipe;
    struct tc_error error = {0};
    size_t chunks = 77;
    size_t got = 0;
    cr_assert(tc_pipe_start(&pipe, count_up, &chunks, &error));
    struct tc_chunk *chunk;
    while (tc_pipe_next(&pipe, &chunk, &error) == TC_NEXT_CHUNK) {
        got++;
        tc_chunk_release(chunk);
    }
    cr_assert_eq(got, 77);
    cr_assert_eq(tc_pipe_next(&pipe, &chunk, &error), TC_NEXT_FAILED);
    cr_assert_null(chunk);
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert_str_eq(error.message, "seventy-seven");
    tc_pipe_end(&pipe);
}

Test(chunk_pipe, ending_early_stops_the_producer, .timeout = 600) {
    struct tc_pipe pipe;
    struct tc_error error = {0};
    size_t chunks = SIZE_MAX;
    cr_assert(tc_pipe_start(&pipe, count_up, &chunks, &error));
    struct tc_chunk *chunk;
    cr_assert_eq(tc_pipe_next(&pipe, &chunk, &error), TC_NEXT_CHUNK);
    tc_chunk_release(chunk);
    tc_pipe_end(&pipe);
}

Test(chunk_pipe, the_hash_thread_hashes_what_was_given_in_order) {
    struct tc_pipe pipe;
    struct tc_hash_thread hashing;
    struct tc_sha256 plain;
    struct tc_error error = {0};
    size_t chunks = 300;
    unsigned char expected[TC_SHA256_BYTES];
    unsigned char got[TC_SHA256_BYTES];
    cr_assert(tc_pipe_start(&pipe, count_up, &chunks, &error));
    cr_assert(tc_hash_thread_start(&hashing, &error));
    cr_assert(tc_sha256_init(&plain, &error));
    tc_hash_thread_bytes(&hashing, "head", 4);
    tc_sha256_update(&plain, "head", 4);
    struct tc_chunk *chunk;
    while (tc_pipe_next(&pipe, &chunk, &error) == TC_NEXT_CHUNK) {
        tc_sha256_update(&plain, chunk->bytes, chunk->length);
        tc_hash_thread_chunk(&hashing, chunk);
        tc_chunk_release(chunk);
    }
    tc_hash_thread_finish(&hashing, got);
    tc_sha256_finish(&plain, expected);
    cr_assert_arr_eq(got, expected, TC_SHA256_BYTES);
    tc_pipe_end(&pipe);
}

Test(hash, sha256_of_abc) {
    struct tc_sha256 hash;
    struct tc_error error = {0};
    unsigned char digest[TC_SHA256_BYTES];
    char text[2 * TC_SHA256_BYTES + 1];
    cr_assert(tc_sha256_init(&hash, &error));
    tc_sha256_update(&hash, "abc", 3);
    tc_sha256_finish(&hash, digest);
    tc_hex(digest, sizeof digest, text);
    cr_assert_str_eq(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
