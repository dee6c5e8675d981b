#include <criterion/criterion.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"

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
