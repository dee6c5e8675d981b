#include <criterion/criterion.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/test/sanitized.h"

Test(arena, pieces_are_zeroed_aligned_and_apart) {
    struct tc_arena arena;
    struct tc_error error = {0};
    tc_arena_init(&arena, 0);
    unsigned char *pieces[100];
    for (size_t i = 0; i < 100; i++) {
        pieces[i] = tc_arena_alloc(&arena, i * 97 + 1, &error);
        cr_assert_not_null(pieces[i]);
        cr_assert_eq((uintptr_t)pieces[i] % 16, 0);
        for (size_t at = 0; at < i * 97 + 1; at++)
            cr_assert_eq(pieces[i][at], 0);
        memset(pieces[i], (int)i, i * 97 + 1);
    }
    for (size_t i = 0; i < 100; i++)
        cr_assert_eq(pieces[i][i * 97], i);
    tc_arena_release(&arena);
}

Test(arena, budget_is_a_limit_not_a_crash) {
    struct tc_arena arena;
    struct tc_error error = {0};
    tc_arena_init(&arena, 1 << 16);
    cr_assert_null(tc_arena_alloc(&arena, 1 << 17, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    cr_assert_str_eq(error.code, "memory-limit");
    tc_arena_release(&arena);
}

Test(arena, sizes_that_overflow_fail) {
    struct tc_arena arena;
    struct tc_error error = {0};
    tc_arena_init(&arena, 0);
    cr_assert_null(tc_arena_array(&arena, UINT64_MAX / 2, 16, &error));
    cr_assert_eq(error.class, TC_IO);
    tc_arena_release(&arena);
}

Test(checked, overflow_is_told_and_leaves_the_result) {
    uint64_t result = 7;
    cr_assert_not(tc_add(UINT64_MAX, 1, &result));
    cr_assert_not(tc_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &result));
    cr_assert_not(tc_align_up(UINT64_MAX - 3, 8, &result));
    cr_assert_eq(result, 7);
    cr_assert(tc_add(UINT64_MAX - 1, 1, &result));
    cr_assert_eq(result, UINT64_MAX);
    cr_assert(tc_align_up(17, 8, &result));
    cr_assert_eq(result, 24);
    cr_assert(tc_range_within(10, 0, 10));
    cr_assert_not(tc_range_within(11, 0, 10));
    cr_assert_not(tc_range_within(8, UINT64_MAX, 10));
}

Test(arena, packed_pieces_stand_close_and_are_zero) {
    struct tc_arena arena;
    struct tc_error error = {0};
    tc_arena_init(&arena, 0);
    for (unsigned i = 0; i < 100000; i++) {
        unsigned alignment = 1u << i % 4;
        unsigned char *piece = tc_arena_pack(&arena, i % 37, alignment, &error);
        cr_assert(piece);
        cr_assert_eq((uintptr_t)piece % alignment, 0);
        for (unsigned at = 0; at < i % 37; at++)
            cr_assert_eq(piece[at], 0);
        if (i % 37)
            memset(piece, 0xFF, i % 37);
    }
    /* 18 bytes and 3.5 for the alignment on average; the last block is empty at worst. */
    if (!TEST_SANITIZED)
        cr_assert_lt(arena.used, 100000 * 22 + (2u << 20));
    tc_arena_release(&arena);
}

Test(arena, rewinding_gives_memory_back_zeroed) {
    struct tc_arena arena;
    struct tc_error error = {0};
    tc_arena_init(&arena, 0);
    char *kept = tc_arena_copy(&arena, "kept", 4, &error);
    struct tc_arena_place place = tc_arena_here(&arena);
    char *first = tc_arena_pack(&arena, 100, 8, &error);
    memset(first, 0xFF, 100);
    tc_arena_rewind(&arena, place);
    char *second = tc_arena_pack(&arena, 100, 8, &error);
    cr_assert_eq(second, first);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(second[i], 0);
    cr_assert_str_eq(kept, "kept");
    /* Where another block was begun since, all of it stays. */
    place = tc_arena_here(&arena);
    char *much = tc_arena_pack(&arena, 4000, 8, &error);
    memset(much, 7, 4000);
    tc_arena_rewind(&arena, place);
    cr_assert_eq(much[3999], 7);
    cr_assert_neq(tc_arena_pack(&arena, 8, 8, &error), much);
    tc_arena_release(&arena);
}

Test(arena, a_large_piece_can_be_returned) {
    struct tc_arena arena;
    struct tc_error error = {0};
    tc_arena_init(&arena, 8u << 20);
    cr_assert(tc_arena_alloc(&arena, 16, &error));
    /* Ten arrays of 6 MiB fit one after the other, not at once. */
    for (int i = 0; i < 10; i++) {
        char *large = tc_arena_alloc(&arena, 6u << 20, &error);
        cr_assert(large, "%s", error.message);
        tc_arena_return(&arena, large);
    }
    char *small = tc_arena_copy(&arena, "small", 5, &error);
    tc_arena_return(&arena, small);
    cr_assert_str_eq(small, "small");
    cr_assert(tc_arena_alloc(&arena, 6u << 20, &error));
    cr_assert_not(tc_arena_alloc(&arena, 6u << 20, &error));
    tc_arena_release(&arena);
}
