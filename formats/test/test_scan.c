/*
 * Data is not mistaken for pickles: a million storages of every usual kind, from
 * a fixed seed, and not one finding; and what is a pickle is found among them.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/test/sanitized.h"
#include "formats/scan/scan.h"
#include "formats/test/make_zip.h"
#include "formats/test/support.h"

TestSuite(scan, .init = test_folder_make, .fini = test_folder_remove);

#define STORAGES (TEST_SANITIZED ? 20000u : 1000000u)
#define BATCH 5000u
#define LARGEST 3000u

/* xorshift64*, so that the same seed gives the same bytes everywhere. */
static uint64_t next(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

static double uniform(uint64_t *state) {
    return (double)(next(state) >> 11) / 9007199254740992.0;
}

static float normal(uint64_t *state) {
    return (float)(sqrt(-2 * log(1 - uniform(state))) * cos(6.283185307179586 * uniform(state)));
}

enum kind { NOISE, F32, BF16, F16, I64, I32, U8, ZEROS, SAME, BOOLS, KINDS };

static uint16_t to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 23 & 0xFF) - 112;
    return exponent <= 0 || exponent > 30
               ? (uint16_t)(bits >> 16 & 0x8000)
               : (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 |
                            (bits >> 13 & 0x3FF));
}

static void fill(unsigned char *bytes, size_t length, enum kind kind, uint64_t *state) {
    unsigned char same = (unsigned char)next(state);
    for (size_t at = 0; at < length;) {
        unsigned char value[8];
        size_t size = 8;
        float weight = kind == F32 || kind == BF16 || kind == F16 ? normal(state) * 0.05f : 0;
        uint64_t number = next(state);
        uint16_t half = to_half(weight);
        memcpy(value, &number, sizeof number);
        if (kind == F32)
            memcpy(value, &weight, size = 4);
        else if (kind == BF16)
            memcpy(value, (const char *)&weight + 2, size = 2);
        else if (kind == F16)
            memcpy(value, &half, size = 2);
        else if (kind == I64 || kind == I32)
            tc_store(value, number % 50000, kind == I64 ? 8 : 4);

        else if (kind == ZEROS || kind == SAME)
            memset(value, kind == SAME ? same : 0, size);
        else if (kind == BOOLS)
            for (size_t i = 0; i < size; i++)
                value[i] &= 1;
        size = kind == I32 && size == 8 ? 4 : size;
        size = size < length - at ? size : length - at;
        memcpy(bytes + at, value, size);
        at += size;
    }
}

static char *text_of(const char *format, unsigned number) {
    char *text = NULL;
    cr_assert(asprintf(&text, format, number) > 0);
    return text;
}

/* A torch archive around storages, scanned; their names are 0, 1, … */
static struct scan scan_storages(struct test_member *storages, size_t count) {
    struct test_member *members = calloc(count + 2, sizeof *members);
    struct tc_error error = {0};
    struct scan scan;
    cr_assert(members);
    members[0] = (struct test_member){"a/data.pkl", "\x80\2}.", 4, false};
    members[1] = (struct test_member){"a/version", "3\n", 2, false};
    for (size_t i = 0; i < count; i++) {
        members[i + 2] = storages[i];
        members[i + 2].name = text_of("a/data/%u", (unsigned)i);
    }
    test_write_zip(test_path("in.pt"), members, count + 2);
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)members[i + 2].name);
    free(members);
    scan_init(&scan, &test_options);
    cr_assert(scan_file(&scan, test_path("in.pt"), &error), "%s", error.message);
    return scan;
}

static void check_batch(unsigned batch, uint64_t *state) {
    struct test_member *storages = calloc(BATCH, sizeof *storages);
    unsigned char *bytes = malloc((size_t)BATCH * LARGEST);
    cr_assert(storages && bytes);
    size_t used = 0; /* one behind the other, so that little memory is touched */
    for (unsigned i = 0; i < BATCH; i++) {
        /* Most are short, so that a STOP is often all that is missing. */
        size_t length = next(state) % 4 ? next(state) % 24 : next(state) % LARGEST;
        fill(bytes + used, length, next(state) % KINDS, state);
        storages[i] = (struct test_member){NULL, bytes + used, length, false};
        used += length;
    }
    struct scan scan = scan_storages(storages, BATCH);
    cr_expect(scan_verdict(&scan, SCAN_ALLOWED) == SCAN_CLEAN && scan.count == 0,
              "batch %u: %zu findings, first \"%s\" in %.*s; %s", batch, scan.count,
              scan.count ? scan.findings[0].name.bytes : "",
              scan.count ? (int)scan.findings[0].member.length : 0,
              scan.count ? scan.findings[0].member.bytes : "", scan.broken->message);
    scan_release(&scan);
    free(storages);
    free(bytes);
}

Test(scan, data_is_not_mistaken, .timeout = 1800) {
    uint64_t state = UINT64_C(0x9E3779B97F4A7C15);
    for (unsigned batch = 0; batch < STORAGES / BATCH; batch++)
        check_batch(batch, &state);
}

/* Every byte alone, again and again, up to a size where limits of depth show. */
Test(scan, one_byte_again_and_again) {
    enum { LENGTH = 70000 };
    struct test_member storages[256];
    unsigned char *bytes = malloc(256 * LENGTH);
    cr_assert(bytes);
    for (int byte = 0; byte < 256; byte++) {
        memset(bytes + byte * LENGTH, byte, LENGTH);
        storages[byte] = (struct test_member){NULL, bytes + byte * LENGTH, LENGTH, false};
    }
    struct scan scan = scan_storages(storages, 256);
    cr_expect_eq(scan_verdict(&scan, SCAN_ALLOWED), SCAN_CLEAN, "%s", scan.broken->message);
    scan_release(&scan);
    free(bytes);
}

/* Behind anything that only pushes, a name is found in what should be numbers. */
Test(scan, a_pickle_among_numbers) {
    static const struct {
        const char *bytes;
        size_t length;
    } before[] = {{"", 0},     {"N", 1},        {"]", 1},           {"}", 1},
                  {"(", 1},    {"K\1", 2},      {"\x80\2", 2},      {"\x80\7", 2},
                  {"N.N.", 4}, {"U\3abc", 5},   {"\x8c\1a\x94", 4}, {"I1\n", 3},
                  {"((((", 4}, {"J\0\0\0\0", 5}};
    static const char hostile[] = "cos\nsystem\n(S'true'\ntR";
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        char bytes[64];
        memcpy(bytes, before[i].bytes, before[i].length);
        memcpy(bytes + before[i].length, hostile, sizeof hostile - 1);
        struct test_member storage = {NULL, bytes, before[i].length + sizeof hostile - 1, i % 2};
        struct scan scan = scan_storages(&storage, 1);
        cr_expect_eq(scan_verdict(&scan, SCAN_ALLOWED), SCAN_UNSAFE, "behind %zu", i);
        cr_expect(scan.count &&
                  tc_text_equal(scan.findings[scan.count - 1].name, TC_TEXT("os.system")));
        scan_release(&scan);
    }
}
