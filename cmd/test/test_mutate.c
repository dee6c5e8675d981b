/* Changes by chance must be the same everywhere and stay within their room: scripts/fuzz --fixed is
 * made of them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/test/fuzz/inputs.h"
#include "cmd/test/fuzz/mutate.h"
#include "core/base/text.h"
#include "core/test/temporary.h"

static const struct tc_text words[] = {{"word", 4}, {"\0", 1}};

/* One sum over what many changes make, each from a state of its own. */
static uint64_t sum_of(size_t capacity) {
    const struct mutate_sources sources = {words, 2, TC_TEXT("the other input")};
    uint64_t sum = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct generator generator = {seed};
        unsigned char *bytes = malloc(capacity); /* of exactly this size, for the sanitizers */
        size_t length = seed % 20 < capacity ? seed % 20 : capacity;
        memset(bytes, 'x', length);
        length = mutate(&generator, bytes, length, capacity, &sources);
        cr_assert_leq(length, capacity);
        for (size_t i = 0; i < length; i++)
            sum = sum * 31 + bytes[i];
        sum = sum * 31 + length;
        free(bytes);
    }
    return sum;
}

/* Whoever changes what is made changes what CI runs: all of testdata/fuzz anew. */
Test(mutate, the_same_changes_everywhere) {
    cr_assert_eq(sum_of(64), UINT64_C(11259218742181105266), "%llu",
                 (unsigned long long)sum_of(64));
}

Test(mutate, changes_stay_within_their_room) {
    for (size_t capacity = 1; capacity < 24; capacity++)
        sum_of(capacity);
}

Test(mutate, chance_is_even) {
    unsigned counts[6] = {0};
    struct generator generator = {7};
    for (int i = 0; i < 60000; i++)
        counts[generator_below(&generator, 6)]++;
    for (int i = 0; i < 6; i++)
        cr_assert(counts[i] > 9500 && counts[i] < 10500, "%d: %u", i, counts[i]);
}

Test(mutate, words_of_a_dictionary) {
    static const char text[] = "# a comment\n\n\"plain\"\nname=\"\\x00\\\\\\\"\\x7fz\"\n";
    char path[TEST_PATH_MAX];
    struct inputs inputs = {0};
    int fd = test_temporary_file(path);
    cr_assert_eq(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    close(fd);
    inputs_add_words(&inputs, path);
    cr_assert_eq(inputs.word_count, 2);
    cr_assert(tc_text_equal(inputs.words[0], TC_TEXT("plain")));
    cr_assert(tc_text_equal(inputs.words[1], TC_TEXT("\0\\\"\x7fz")));
    inputs_release(&inputs);
    unlink(path);
}
