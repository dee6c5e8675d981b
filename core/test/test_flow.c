#include <criterion/criterion.h>
#include <string.h>

#include "core/base/error.h"
#include "core/io/chunk_pipe.h"
#include "core/io/sha256.h"

static bool count_up(struct tc_pipe *flow, void *context, struct tc_error *error) {
    size_t *chunks = context;
    for (size_t i = 0; i < *chunks; i++) {
        struct tc_chunk *chunk = tc_pipe_take(flow, error);
        if (!chunk)
            return true;
        memset(chunk->bytes, (int)i, 1000);
        chunk->length = 1000;
        chunk->item = i;
        tc_pipe_send(flow, chunk);
    }
    return *chunks != 77 || tc_fail(error, TC_INVALID, "test", "seventy-seven");
}

Test(flow, chunks_arrive_in_order) {
    struct tc_pipe flow;
    struct tc_error error = {0};
    size_t chunks = 1000;
    cr_assert(tc_pipe_start(&flow, count_up, &chunks, &error));
    for (size_t i = 0; i < chunks; i++) {
        struct tc_chunk *chunk = tc_pipe_next(&flow, &error);
        cr_assert_not_null(chunk);
        cr_assert_eq(chunk->item, i);
        cr_assert_eq(chunk->bytes[999], (unsigned char)i);
        tc_chunk_release(chunk);
    }
    cr_assert_null(tc_pipe_next(&flow, &error));
    cr_assert_eq(error.class, TC_OK);
    tc_pipe_end(&flow);
}

Test(flow, a_failure_comes_behind_what_was_sent) {
    struct tc_pipe flow;
    struct tc_error error = {0};
    size_t chunks = 77;
    size_t got = 0;
    cr_assert(tc_pipe_start(&flow, count_up, &chunks, &error));
    struct tc_chunk *chunk;
    while ((chunk = tc_pipe_next(&flow, &error))) {
        got++;
        tc_chunk_release(chunk);
    }
    cr_assert_eq(got, 77);
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert_str_eq(error.message, "seventy-seven");
    tc_pipe_end(&flow);
}

Test(flow, ending_early_stops_the_producer, .timeout = 20) {
    struct tc_pipe flow;
    struct tc_error error = {0};
    size_t chunks = SIZE_MAX;
    cr_assert(tc_pipe_start(&flow, count_up, &chunks, &error));
    tc_chunk_release(tc_pipe_next(&flow, &error));
    tc_pipe_end(&flow);
}

Test(flow, the_observer_hashes_what_was_given_in_order) {
    struct tc_pipe flow;
    struct tc_hash_thread observer;
    struct tc_sha256 plain;
    struct tc_error error = {0};
    size_t chunks = 300;
    unsigned char expected[TC_SHA256_BYTES];
    unsigned char got[TC_SHA256_BYTES];
    cr_assert(tc_pipe_start(&flow, count_up, &chunks, &error));
    cr_assert(tc_hash_thread_start(&observer, &error));
    cr_assert(tc_sha256_init(&plain, &error));
    tc_hash_thread_bytes(&observer, "head", 4);
    tc_sha256_update(&plain, "head", 4);
    struct tc_chunk *chunk;
    while ((chunk = tc_pipe_next(&flow, &error))) {
        tc_sha256_update(&plain, chunk->bytes, chunk->length);
        cr_assert(tc_hash_thread_chunk(&observer, chunk, &error));
        tc_chunk_release(chunk);
    }
    tc_hash_thread_finish(&observer, got);
    tc_sha256_finish(&plain, expected);
    cr_assert_arr_eq(got, expected, TC_SHA256_BYTES);
    tc_pipe_end(&flow);
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
