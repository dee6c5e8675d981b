/* zstd and deflate: data survives a round trip, and malformed streams are refused. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/crc_combine.h"
#include "core/io/deflate.h"
#include "core/io/input.h"
#include "core/io/zstd.h"
#include "core/test/temporary.h"

static bool collect(void *context, const void *bytes, size_t length, struct tc_error *error) {
    (void)error;
    tc_buffer_add(context, bytes, length);
    return true;
}

/* An input file that holds these bytes. */
static struct tc_input *input_of(const void *bytes, size_t length) {
    char path[TEST_PATH_MAX];
    int fd = test_temporary_file(path);
    struct tc_error error = {0};
    cr_assert(tc_write_all(fd, bytes, length, &error));
    close(fd);
    struct tc_input *input = tc_input_open(path, NULL, &error);
    unlink(path);
    cr_assert_not_null(input);
    return input;
}

#define SIZE 300000

static unsigned char *sample(void) {
    unsigned char *bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i % 251 * (i / 5000));
    return bytes;
}

static struct tc_buffer zstd_of(const void *bytes, size_t length) {
    struct tc_buffer packed = {0};
    struct tc_zstd_encoder encoder;
    struct tc_error error = {0};
    cr_assert(tc_zstd_encoder_init(&encoder, 3, collect, &packed, &error));
    cr_assert(tc_zstd_encode(&encoder, bytes, length, &error));
    cr_assert(tc_zstd_encoder_finish(&encoder, &error));
    tc_zstd_encoder_release(&encoder);
    return packed;
}

/* A range that ends before it starts, as sizes in a file may make one, is an empty one. */
Test(codecs, a_range_behind_its_end_is_empty) {
    unsigned char bytes[64] = {0};
    struct tc_input *input = input_of(bytes, sizeof bytes);
    struct tc_error cut = {0};
    struct tc_error again = {0};
    struct tc_error frame = {0};
    struct tc_inflater inflater;
    struct tc_zstd_decoder decoder;
    cr_assert(tc_inflater_init(&inflater, input, 40, 20, &cut));
    cr_assert_not(tc_inflate(&inflater, bytes, 1, &cut));
    cr_assert_str_eq(cut.code, "truncated");
    tc_inflater_restart(&inflater, 50);
    cr_assert_not(tc_inflate(&inflater, bytes, 1, &again));
    cr_assert_str_eq(again.code, "truncated");
    tc_inflater_release(&inflater);
    cr_assert(tc_zstd_decoder_init(&decoder, input, 40, 20, &frame));
    cr_assert_not(tc_zstd_decode(&decoder, bytes, 1, &frame));
    cr_assert_eq(frame.class, TC_INVALID);
    tc_zstd_decoder_release(&decoder);
    tc_input_close(input);
}

/* Decodes `length` bytes, which must be all; returns the error's class. */
static enum tc_class unzstd(const struct tc_buffer *packed, size_t cut, void *to, size_t length) {
    struct tc_input *input = input_of(packed->bytes, packed->length - cut);
    struct tc_zstd_decoder decoder;
    struct tc_error error = {0};
    (void)(tc_zstd_decoder_init(&decoder, input, 0, input->size, &error) &&
           tc_zstd_decode(&decoder, to, length, &error) && tc_zstd_decoder_end(&decoder, &error));
    tc_zstd_decoder_release(&decoder);
    tc_input_close(input);
    return error.class;
}

Test(zstd, round_trip_and_exact_ends) {
    unsigned char *bytes = sample();
    unsigned char *back = calloc(1, SIZE + 1);
    struct tc_buffer packed = zstd_of(bytes, SIZE);
    cr_assert_eq(unzstd(&packed, 0, back, SIZE), TC_OK);
    cr_assert_arr_eq(back, bytes, SIZE);
    cr_assert_eq(unzstd(&packed, 0, back, SIZE - 1), TC_INVALID, "more than declared");
    cr_assert_eq(unzstd(&packed, 0, back, SIZE + 1), TC_INVALID, "less than declared");
    for (size_t cut = 1; cut < 40; cut++)
        cr_assert_eq(unzstd(&packed, cut, back, SIZE), TC_INVALID, "cut by %zu", cut);
    tc_buffer_add(&packed, "x", 1);
    cr_assert_eq(unzstd(&packed, 0, back, SIZE), TC_INVALID, "a byte behind the frame");
    struct tc_buffer again = zstd_of(bytes, SIZE);
    cr_assert_arr_eq(again.bytes, packed.bytes, again.length, "not deterministic");
    tc_buffer_release(&again);
    tc_buffer_release(&packed);
    free(bytes);
    free(back);
}

Test(zstd, nothing_is_a_frame_too) {
    struct tc_buffer packed = zstd_of("", 0);
    cr_assert_gt(packed.length, 0);
    cr_assert_eq(unzstd(&packed, 0, NULL, 0), TC_OK);
    tc_buffer_release(&packed);
}

/* In pieces of at most `piece` bytes. */
static struct tc_buffer deflate_in(const unsigned char *bytes, size_t length, int level,
                                   size_t piece) {
    struct tc_buffer stream = {0};
    struct tc_deflater deflater;
    struct tc_error error = {0};
    unsigned char *packed = malloc(TC_DEFLATE_ROOM);
    cr_assert(tc_deflater_init(&deflater, level, &error));
    for (size_t at = 0; at < length; at += piece) {
        size_t window = at < TC_DEFLATE_WINDOW ? at : TC_DEFLATE_WINDOW;
        size_t step = length - at < piece ? length - at : piece;
        size_t made;
        cr_assert(tc_deflate_piece(&deflater, bytes + at, window, step, packed, &made, &error));
        tc_buffer_add(&stream, packed, made);
    }
    tc_buffer_add(&stream, tc_deflate_end, TC_DEFLATE_END_BYTES);
    tc_deflater_release(&deflater);
    free(packed);
    return stream;
}

static struct tc_buffer deflate_of(const void *bytes, size_t length, int level) {
    return deflate_in(bytes, length, level, TC_DEFLATE_PIECE);
}

static enum tc_class inflate(const struct tc_buffer *packed, size_t cut, unsigned char *to,
                             size_t length, size_t step) {
    struct tc_input *input = input_of(packed->bytes, packed->length - cut);
    struct tc_inflater inflater;
    struct tc_error error = {0};
    bool ok = tc_inflater_init(&inflater, input, 0, input->size, &error);
    for (size_t at = 0; at < length && ok; at += step)
        ok = tc_inflate(&inflater, to + at, length - at < step ? length - at : step, &error);
    if (ok)
        tc_inflater_end(&inflater, &error);
    tc_inflater_release(&inflater);
    tc_input_close(input);
    return error.class;
}

Test(deflate, round_trip_and_exact_ends) {
    unsigned char *bytes = sample();
    unsigned char *back = calloc(1, SIZE + 1);
    for (int level = 1; level <= 9; level += 4) {
        struct tc_buffer packed = deflate_of(bytes, SIZE, level);
        cr_assert_lt(packed.length, SIZE / 2);
        cr_assert_eq(inflate(&packed, 0, back, SIZE, 7001), TC_OK);
        cr_assert_arr_eq(back, bytes, SIZE);
        cr_assert_eq(inflate(&packed, 0, back, SIZE - 1, SIZE), TC_INVALID);
        cr_assert_eq(inflate(&packed, 0, back, SIZE + 1, SIZE + 1), TC_INVALID);
        for (size_t cut = 1; cut < 40; cut++)
            cr_assert_eq(inflate(&packed, cut, back, SIZE, SIZE), TC_INVALID, "cut %zu", cut);
        tc_buffer_add(&packed, "x", 1);
        cr_assert_eq(inflate(&packed, 0, back, SIZE, SIZE), TC_INVALID);
        tc_buffer_release(&packed);
    }
    free(bytes);
    free(back);
}

/* Each piece refers back to those before it, so that many cost little more than one. */
Test(deflate, pieces_share_their_window) {
    unsigned char *bytes = sample();
    unsigned char *back = calloc(1, SIZE);
    for (int level = 1; level <= 9; level += 4) {
        struct tc_buffer one = deflate_of(bytes, SIZE, level);
        struct tc_buffer many = deflate_in(bytes, SIZE, level, 4096);
        cr_assert_eq(inflate(&many, 0, back, SIZE, 7001), TC_OK);
        cr_assert_arr_eq(back, bytes, SIZE);
        cr_assert_lt(many.length, one.length + SIZE / 4096 * 512);
        tc_buffer_release(&one);
        tc_buffer_release(&many);
    }
    free(bytes);
    free(back);
}

/* What can't be packed grows by a few bytes, and never beyond the room for it. */
Test(deflate, noise_fits_the_room) {
    unsigned char *bytes = malloc(TC_DEFLATE_PIECE);
    unsigned char *back = malloc(TC_DEFLATE_PIECE);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < TC_DEFLATE_PIECE; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (unsigned char)(state >> 32);
    }
    for (int level = 1; level <= 9; level++) {
        struct tc_buffer packed = deflate_of(bytes, TC_DEFLATE_PIECE, level);
        cr_assert_lt(packed.length, TC_DEFLATE_PIECE + TC_DEFLATE_PIECE / 512);
        cr_assert_eq(inflate(&packed, 0, back, TC_DEFLATE_PIECE, 65536), TC_OK);
        cr_assert_arr_eq(back, bytes, TC_DEFLATE_PIECE);
        tc_buffer_release(&packed);
    }
    free(bytes);
    free(back);
}

/* The CRCs of pieces, in any order, give that of the whole. */
Test(deflate, crcs_are_combined) {
    unsigned char *bytes = sample();
    static const size_t cuts[] = {0, 1, 2, 1000, 65536, 65537, 200000, SIZE};
    uint32_t crc = 0;
    uint32_t crc_c = 0;
    uint64_t sum = 0;
    for (size_t i = sizeof cuts / sizeof *cuts - 1; i-- > 0;) {
        size_t length = cuts[i + 1] - cuts[i];
        uint64_t behind = SIZE - cuts[i + 1];
        crc ^= tc_crc32_moved(tc_crc32(0, bytes + cuts[i], length), behind);
        crc_c ^= tc_crc32c_moved(tc_crc32c(0, bytes + cuts[i], length), behind);
        sum ^= tc_sum_moved(tc_sum_of(bytes + cuts[i], length), behind);
    }
    cr_assert_eq(crc, tc_crc32(0, bytes, SIZE));
    cr_assert_eq(crc_c, tc_crc32c(0, bytes, SIZE));
    cr_assert_eq(sum, (uint64_t)crc << 32 | crc_c);
    cr_assert_eq(tc_sum_add(tc_sum_of(bytes, 999), bytes + 999, SIZE - 999), sum);
    free(bytes);
}

Test(deflate, streams_behind_each_other) {
    unsigned char got[16];
    struct tc_error error = {0};
    struct tc_buffer one = deflate_of("first", 5, 6);
    struct tc_buffer two = deflate_of("second", 6, 6);
    struct tc_buffer both = {0};
    tc_buffer_add(&both, one.bytes, one.length);
    tc_buffer_add(&both, "gap", 3);
    tc_buffer_add(&both, two.bytes, two.length);
    struct tc_input *input = input_of(both.bytes, both.length);
    struct tc_inflater inflater;
    cr_assert(tc_inflater_init(&inflater, input, 0, both.length, &error));
    const uint64_t starts[] = {0, one.length + 3, 0, one.length + 3};
    for (size_t i = 0; i < 4; i++) {
        size_t length;
        tc_inflater_restart(&inflater, starts[i]);
        cr_assert(tc_inflate_some(&inflater, got, sizeof got, &length, &error), "%s",
                  error.message);
        cr_assert_eq(length, i % 2 ? 6 : 5);
        cr_assert_arr_eq(got, i % 2 ? "second" : "first", length);
        cr_assert_eq(tc_inflater_at(&inflater), i % 2 ? both.length : one.length);
    }
    tc_inflater_release(&inflater);
    tc_input_close(input);
    tc_buffer_release(&one);
    tc_buffer_release(&two);
    tc_buffer_release(&both);
}

Test(deflate, garbage_is_refused_quickly, .timeout = 600) {
    unsigned char back[1000];
    uint32_t state = 1;
    for (int round = 0; round < 300; round++) {
        struct tc_buffer noise = {0};
        for (int i = 0; i < 200; i++) {
            state = state * 1664525 + 1013904223;
            unsigned char byte = (unsigned char)(state >> 24);
            tc_buffer_add(&noise, &byte, 1);
        }
        cr_assert_neq(inflate(&noise, 0, back, sizeof back, 100), TC_OK);
        tc_buffer_release(&noise);
    }
}

Test(deflate, crc32_is_that_of_zip) {
    cr_assert_eq(tc_crc32(0, "123456789", 9), 0xCBF43926);
    cr_assert_eq(tc_crc32(tc_crc32(0, "1234", 4), "56789", 5), 0xCBF43926);
}

/* The examples of RFC 3720, B.4, and the usual check value, the CRC of "123456789". */
Test(deflate, crc32c_is_castagnolis) {
    unsigned char bytes[32] = {0};
    cr_assert_eq(tc_crc32c(0, "123456789", 9), 0xE3069283);
    cr_assert_eq(tc_crc32c(tc_crc32c(0, "1234", 4), "56789", 5), 0xE3069283);
    cr_assert_eq(tc_crc32c(0, "", 0), 0);
    cr_assert_eq(tc_crc32c(0, bytes, 32), 0x8A9136AA);
    memset(bytes, 0xFF, 32);
    cr_assert_eq(tc_crc32c(0, bytes, 32), 0x62A8AB43);
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    cr_assert_eq(tc_crc32c(0, bytes, 32), 0x46DD794E);
}
