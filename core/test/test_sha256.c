/*
 * SHA-256 by the CPU's own instructions against libcrypto's, which every CPU has: "plain".
 */
#include <criterion/criterion.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/base/error.h"
#include "core/io/sha256.h"
#include "core/io/sha256_lanes.h"

/* More than four blocks, so that every way of filling a block is tried before and behind others. */
#define MOST 300u

static unsigned char message[TC_SHA256_LANES * (MOST + 1)];
static unsigned char expected[TC_SHA256_LANES][MOST][TC_SHA256_BYTES];

static void fill_message(void) {
    uint32_t dice = 1;
    for (size_t i = 0; i < sizeof message; i++) {
        dice = dice * 1664525 + 1013904223;
        message[i] = (unsigned char)(dice >> 24);
    }
}

/* Where the messages of a lane begin: at any alignment. */
static const unsigned char *message_of(size_t lane) {
    return message + lane * (MOST + 1);
}

static void use_cpu(const char *cpu) {
    if (!tc_cpu_use(cpu))
        cr_skip_test("this CPU lacks %s", cpu);
}

static void begin(struct tc_sha256 *hash) {
    struct tc_error error = {0};
    cr_assert(tc_sha256_init(hash, &error));
}

static void setup(void) {
    struct tc_error error = {0};
    fill_message();
    use_cpu("plain");
    for (size_t lane = 0; lane < TC_SHA256_LANES; lane++)
        for (size_t length = 0; length < MOST; length++)
            cr_assert(tc_sha256_of(message_of(lane), length, expected[lane][length], &error));
    use_cpu("avx2");
}

TestSuite(sha256, .init = setup);

Test(sha256, every_length_in_every_two_parts) {
    unsigned char got[TC_SHA256_BYTES];
    for (size_t length = 0; length < MOST; length++)
        for (size_t first = 0; first <= length; first += length < 140 ? 1 : 37) {
            struct tc_sha256 hash;
            begin(&hash);
            tc_sha256_update(&hash, message, first);
            tc_sha256_update(&hash, message + first, length - first);
            tc_sha256_finish(&hash, got);
            cr_assert_arr_eq(got, expected[0][length], sizeof got, "%zu bytes, of them %zu first",
                             length, first);
        }
}

/* Streams side by side, of lengths that differ, each in two parts that differ, too. */
Test(sha256, any_number_of_streams) {
    uint32_t dice = 7;
    for (unsigned round = 0; round < 4000; round++) {
        struct tc_sha256 hashes[TC_SHA256_LANES];
        struct tc_sha256_piece parts[2][TC_SHA256_LANES];
        size_t lengths[TC_SHA256_LANES];
        size_t count = 1 + round % TC_SHA256_LANES;
        for (size_t i = 0; i < count; i++) {
            dice = dice * 1664525 + 1013904223;
            lengths[i] = (dice >> 8) % MOST;
            size_t first = lengths[i] ? (dice >> 17) % lengths[i] : 0;
            begin(&hashes[i]);
            parts[0][i] = (struct tc_sha256_piece){&hashes[i], message_of(i), first};
            parts[1][i] =
                (struct tc_sha256_piece){&hashes[i], message_of(i) + first, lengths[i] - first};
        }
        tc_sha256_update_several(parts[0], count);
        tc_sha256_update_several(parts[1], count);
        for (size_t i = 0; i < count; i++) {
            unsigned char got[TC_SHA256_BYTES];
            tc_sha256_finish(&hashes[i], got);
            cr_assert_arr_eq(got, expected[i][lengths[i]], sizeof got,
                             "stream %zu of %zu, %zu bytes", i, count, lengths[i]);
        }
    }
}

/* A length whose number of bits does not fit into four bytes. */
Test(sha256, long_message) {
    static unsigned char zeros[1 << 20];
    unsigned char sums[2][TC_SHA256_BYTES];
    const char *const cpus[] = {"plain", "avx2"};
    for (size_t cpu = 0; cpu < 2; cpu++) {
        struct tc_sha256 hash;
        use_cpu(cpus[cpu]);
        begin(&hash);
        for (size_t i = 0; i < 520; i++)
            tc_sha256_update(&hash, zeros, sizeof zeros);
        tc_sha256_finish(&hash, sums[cpu]);
    }
    cr_assert_arr_eq(sums[0], sums[1], TC_SHA256_BYTES);
}
