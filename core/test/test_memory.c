/* The command's budget: what counts, what is refused, what the message says. */

#include <criterion/criterion.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t held(void) {
    /* The peak only rises, so after a large allocation it shows what else is in use. */
    void *piece = malloc(512 * MIB);
    cr_assert(piece);
    uint64_t peak = tc_memory_peak();
    free(piece);
    return peak;
}

Test(memory, counts_every_kind) {
    uint64_t before = held();
    char *kinds[] = {malloc(MIB),
                     calloc(4, MIB / 4),
                     realloc(malloc(10), MIB),
                     reallocarray(NULL, 2, MIB / 2),
                     aligned_alloc(4096, MIB),
                     strdup("text"),
                     strndup("text", 2)};
    cr_assert_str_eq(kinds[5], "text");
    cr_assert_str_eq(kinds[6], "te");
    char *printed;
    cr_assert_eq(asprintf(&printed, "%d of %s", 7, "these"), 10);
    cr_assert_str_eq(printed, "7 of these");
    cr_assert_geq(held(), before + 5 * MIB);
    free(printed);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        free(kinds[i]);
}

Test(memory, what_is_given_back_can_be_had_again) {
    tc_memory_limit(64 * MIB);
    for (int i = 0; i < 100; i++) {
        void *piece = malloc(60 * MIB);
        cr_assert(piece, "round %d", i);
        piece = realloc(piece, MIB);
        piece = realloc(piece, 70 * MIB);
        cr_assert(piece);
        free(piece);
    }
    cr_assert_not(tc_memory_refused());
}

Test(memory, a_named_limit_and_the_buffers) {
    tc_memory_limit(64 * MIB);
    cr_assert_eq(tc_memory_allowed(), 64 * MIB);
    cr_assert(tc_memory_fits(64 * MIB));
    cr_assert_not(tc_memory_fits(64 * MIB + TC_MEMORY_BUFFERS + 1));
    cr_assert_null(malloc(64 * MIB + TC_MEMORY_BUFFERS + 1));
    cr_assert(tc_memory_refused());
    tc_memory_limit(0);
    void *piece = malloc(200 * MIB);
    cr_assert(piece);
    free(piece);
}

Test(memory, a_folder_is_counted_and_given_back) {
    struct dirent **entries = NULL;
    tc_memory_limit(MIB);
    for (int round = 0; round < 200; round++) {
        int count = scandir("/", &entries, NULL, NULL);
        cr_assert_gt(count, 2);
        for (int i = 0; i < count; i++)
            free(entries[i]);
        free(entries);
    }
    cr_assert(tc_memory_fits(MIB));
    cr_assert_not(tc_memory_fits(MIB + TC_MEMORY_BUFFERS + 1));
}

Test(memory, overflowing_products_are_refused) {
    cr_assert_null(calloc(SIZE_MAX / 2, 3));
    cr_assert_null(reallocarray(NULL, SIZE_MAX / 2, 3));
    cr_assert_not(tc_memory_refused());
}

Test(memory, follows_headers) {
    tc_memory_follow();
    cr_assert_eq(tc_memory_allowed(), TC_MEMORY_LEAST);
    tc_memory_open(UINT64_C(1) << 50);
    tc_memory_earn(4 * MIB);
    cr_assert_eq(tc_memory_allowed(), TC_MEMORY_LEAST);
    tc_memory_earn(6 * MIB);
    cr_assert_eq(tc_memory_allowed(), 640 * MIB - TC_MEMORY_BESIDE);
    tc_memory_earn(UINT64_C(1) << 40);
    cr_assert_eq(tc_memory_allowed(), TC_MEMORY_MOST);
    tc_memory_earn(UINT64_MAX);
    cr_assert_eq(tc_memory_allowed(), TC_MEMORY_MOST);
    tc_memory_begin_file();
    cr_assert_eq(tc_memory_allowed(), TC_MEMORY_LEAST);
    tc_memory_open(40 * MIB);
    tc_memory_earn_data(40 * MIB);
    cr_assert_eq(tc_memory_allowed(), 320 * MIB - TC_MEMORY_BESIDE);
}

Test(memory, a_small_file_earns_no_more_than_it_has) {
    tc_memory_follow();
    tc_memory_open(3 * MIB);
    tc_memory_earn(100 * MIB);
    cr_assert_eq(tc_memory_allowed(), TC_MEMORY_LEAST);
    tc_memory_open(5 * MIB);
    tc_memory_earn(1);
    cr_assert_eq(tc_memory_allowed(), 512 * MIB - TC_MEMORY_BESIDE);
}

Test(memory, a_named_limit_does_not_follow) {
    tc_memory_limit(MIB);
    tc_memory_earn(100 * MIB);
    cr_assert_eq(tc_memory_allowed(), MIB);
    tc_memory_begin_file();
    cr_assert_eq(tc_memory_allowed(), MIB);
}

Test(memory, the_message_names_the_option) {
    struct tc_error error = {0};
    struct tc_buffer text = {0};
    tc_memory_limit(MIB);
    while (!text.failed)
        tc_buffer_addf(&text, "%0999d", 0);
    cr_assert_not(tc_buffer_ok(&text, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    cr_assert_str_eq(error.code, "memory-limit");
    cr_assert(strstr(error.hint, "--max-memory"));
    tc_buffer_release(&text);
}

Test(memory, arenas_share_it) {
    struct tc_error error = {0};
    struct tc_arena arenas[8];
    bool refused = false;
    tc_memory_limit(16 * MIB);
    for (size_t i = 0; i < 8; i++) {
        tc_arena_init(&arenas[i], 0);
        refused |= !tc_arena_alloc(&arenas[i], 15 * MIB, &error);
    }
    cr_assert(refused);
    cr_assert_str_eq(error.code, "memory-limit");
    for (size_t i = 0; i < 8; i++)
        tc_arena_release(&arenas[i]);
}
