#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(deathtensors, .init = test_folder_make, .fini = test_folder_remove);

#define CHECKSUM TESTDATA "/deathtensors/checksum.deathtensors"

/* With a footer no single bit can change a value unseen. */
Test(deathtensors, every_flipped_bit_is_found, .timeout = 600) {
    size_t length;
    char *bytes = test_load(CHECKSUM, &length);
    for (size_t bit = 0; bit<8 * length; bit += length> 2000 ? 5 : 1) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        enum tc_class class = test_open_class("x.deathtensors", bytes, length);
        cr_assert(class == TC_INVALID || (class == TC_UNSUPPORTED && bit < 16 * 8),
                  "bit %zu: class %d", bit, (int)class);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    free(bytes);
}

Test(deathtensors, versions_and_flags_fail_closed) {
    size_t length;
    char *bytes = test_load(TESTDATA "/deathtensors/raw.deathtensors", &length);
    static const int versions[] = {0, 2, 0xFF};
    for (size_t i = 0; i < 3; i++) {
        bytes[8] = (char)versions[i];
        cr_assert_eq(test_open_class("x.dt", bytes, length), TC_UNSUPPORTED);
    }
    bytes[8] = 1;
    for (int bit = 2; bit < 32; bit++) {
        bytes[12 + bit / 8] = (char)(1 << bit % 8);
        cr_assert_eq(test_open_class("x.dt", bytes, length), TC_UNSUPPORTED, "flag %d", bit);
        bytes[12 + bit / 8] = 0;
    }
    cr_assert_eq(test_open_class("x.dt", bytes, length), TC_OK);
    bytes[12] = 2; /* a footer that is not there */
    cr_assert_eq(test_open_class("x.dt", bytes, length), TC_INVALID);
    free(bytes);
}

static void expect_header_size(char *bytes, size_t length, uint64_t size) {
    for (int i = 0; i < 8; i++)
        bytes[16 + i] = (char)(size >> 8 * i);
    cr_assert_eq(test_open_class("x.dt", bytes, length), TC_INVALID, "%llu",
                 (unsigned long long)size);
}

Test(deathtensors, lying_header_sizes) {
    size_t length;
    char *bytes = test_load(TESTDATA "/deathtensors/raw.deathtensors", &length);
    expect_header_size(bytes, length, 0);
    expect_header_size(bytes, length, length);
    expect_header_size(bytes, length, UINT64_MAX);
    expect_header_size(bytes, length, UINT64_MAX - 23);
    expect_header_size(bytes, length, UINT64_MAX - 31);
    free(bytes);
}

/* All but created_by, and the sizes that follow from it, is the original's. */
Test(deathtensors, writes_what_the_original_writes) {
    size_t a;
    size_t b;
    struct tc_plan_options options = {.write = {.checksum = false}};
    const char *source = TESTDATA "/deathtensors/raw.deathtensors";
    const char *out = test_path("out.deathtensors");
    cr_assert_eq(test_convert(source, out, tc_registry_named("deathtensors"), &options, NULL),
                 TC_OK);
    char *theirs = test_load(source, &a);
    char *ours = test_load(out, &b);
    const char *key = "\"created_by\": \"";
    char *their_value = memmem(theirs, a, key, strlen(key));
    char *our_value = memmem(ours, b, key, strlen(key));
    cr_assert(their_value && our_value);
    cr_assert_eq(their_value - theirs, our_value - ours);
    cr_assert_arr_eq(ours, theirs, 16);
    cr_assert_arr_eq(ours + 24, theirs + 24, (size_t)(our_value - ours) - 24);
    const char *their_rest = strchr(their_value + strlen(key), '"');
    const char *our_rest = strchr(our_value + strlen(key), '"');
    /* Up to the padding, then the data from the end. */
    cr_assert_str_eq(our_rest, their_rest);
    cr_assert_arr_eq(ours + b - 795, theirs + a - 795, 795);
    free(theirs);
    free(ours);
}

Test(deathtensors, shards_know_their_place) {
    struct tc_plan_options options = {.shard_size = 3000, .write = {.checksum = true}};
    const char *source = TESTDATA "/deathtensors/sharded/model.deathtensors";
    const char *out = test_path("model.deathtensors");
    cr_assert_eq(test_convert(source, out, tc_registry_named("deathtensors"), &options, NULL),
                 TC_OK, "%s", test_error.message);
    struct tc_reader *reader = test_open(out);
    cr_assert_eq(reader->shard_count, 4);
    cr_assert_str_eq(reader->shards[0], "model-00001-of-0004.deathtensors");
    cr_assert_eq(reader->table.metadata.count, 1, "structure is no metadata");
    tc_reader_close(reader);
    size_t length;
    char *shard = test_load(test_path("model-00002-of-0004.deathtensors"), &length);
    cr_assert(memmem(shard, length, "\"deathtensors.shard.index\": \"1\"", 31));
    free(shard);
    char *first = test_digest(source);
    char *second = test_digest(out);
    cr_assert_str_eq(first, second);
    free(first);
    free(second);
}
