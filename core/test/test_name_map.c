#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/name_map.h"
#include "core/base/text.h"

#define MIB (UINT64_C(1) << 20)

static struct tc_arena arena;
static struct tc_name_map map;
static struct tc_error error;

static void setup(void) {
    tc_arena_init(&arena, 0);
    tc_name_map_init(&map, &arena);
    error = (struct tc_error){0};
}

static void teardown(void) {
    tc_name_map_release(&map);
    tc_arena_release(&arena);
}

TestSuite(name_map, .init = setup, .fini = teardown);

static void expect(struct tc_text name, uint32_t number) {
    const uint32_t *found = tc_name_map_find(&map, name);
    cr_assert(found, "%.*s is not there", (int)name.length, name.bytes);
    cr_assert_eq(*found, number, "%.*s has %u (expected %u)", (int)name.length, name.bytes, *found,
                 number);
}

Test(name_map, an_empty_map_has_nothing) {
    cr_assert_null(tc_name_map_find(&map, TC_TEXT("")));
    cr_assert_null(tc_name_map_find(&map, TC_TEXT("a")));
    cr_assert_eq(map.count, 0);
    cr_assert_eq(arena.used, 0);
}

Test(name_map, numbers_are_the_owner_s_and_may_change) {
    cr_assert(tc_name_map_add(&map, TC_TEXT("a"), 7, &error));
    cr_assert(tc_name_map_add(&map, TC_TEXT("b"), 7, &error));
    cr_assert(tc_name_map_add(&map, TC_TEXT("c"), UINT32_MAX, &error));
    *tc_name_map_find(&map, TC_TEXT("b")) = 0;
    expect(TC_TEXT("a"), 7);
    expect(TC_TEXT("b"), 0);
    expect(TC_TEXT("c"), UINT32_MAX);
    cr_assert_eq(map.entries[1].number, 0);
}

Test(name_map, a_name_twice_is_refused_and_changes_nothing) {
    cr_assert(tc_name_map_add(&map, TC_TEXT("a"), 1, &error));
    cr_assert_not(tc_name_map_add(&map, TC_TEXT("a"), 2, &error));
    cr_assert_eq(error.class, TC_INVALID);
    cr_assert_str_eq(error.code, "duplicate-name");
    cr_assert_str_eq(error.tensor, "a");
    cr_assert_eq(map.count, 1);
    expect(TC_TEXT("a"), 1);
}

Test(name_map, any_bytes_are_a_name) {
    static const struct tc_text names[] = {
        {"", 0},         {"\0", 1},        {"\0\0", 2},     {"a", 1},         {"a\0", 2},
        {"a\0b", 3},     {"a\0c", 3},      {"\0a", 2},      {"\xff\xfe", 2},  {"\xff\xfe\0", 3},
        {"12345678", 8}, {"1234567\0", 8}, {"12345679", 8}, {"123456789", 9},
    };
    size_t count = sizeof names / sizeof *names;
    for (size_t i = 0; i < count; i++)
        cr_assert(tc_name_map_add(&map, names[i], (uint32_t)i, &error), "%zu", i);
    for (size_t i = 0; i < count; i++) {
        const uint32_t *found = tc_name_map_find(&map, names[i]);
        cr_assert(found && *found == i, "%zu", i);
        cr_assert(tc_text_equal(map.entries[i].name, names[i]), "%zu", i);
    }
    /* An empty name equals any other, wherever it points. */
    expect((struct tc_text){NULL, 0}, 0);
}

/* Criterion sends every assertion to another process, which is slow: loops count
 * what is wrong, and one assertion follows. */

/* Names of one length that differ in few bits: of 65536 in 131072 slots, tens of
 * thousands collide. */
Test(name_map, names_of_one_length_that_collide) {
    enum { COUNT = 65536, LENGTH = 40 };
    char *names = malloc(COUNT * LENGTH);
    cr_assert(names);
    memset(names, 'x', COUNT * LENGTH);
    size_t refused = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        char *name = names + i * LENGTH;
        for (int bit = 0; bit < 16; bit++)
            name[2 * bit] = i >> bit & 1 ? 'y' : 'x';
        refused += !tc_name_map_add(&map, (struct tc_text){name, LENGTH}, i, &error);
    }
    cr_assert_eq(refused, 0);
    size_t displaced = 0;
    size_t wrong = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct tc_text name = {names + i * LENGTH, LENGTH};
        struct tc_text shorter = {name.bytes, LENGTH - 1};
        const uint32_t *found = tc_name_map_find(&map, name);
        wrong += !found || *found != i || tc_name_map_find(&map, shorter);
        /* Where the slot before is taken, this name may have been moved on by a
         * collision. */
        const struct tc_name_slot *slot =
            (const void *)tc_name_index_slot(&map.index, map.entries, name);
        displaced += slot > map.index.slots && slot[-1].position != 0;
    }
    cr_assert_eq(wrong, 0);
    cr_assert_gt(displaced, COUNT / 8);
    free(names);
}

Test(name_map, a_million_names, .timeout = 600) {
    enum { COUNT = 1000000, LENGTH = 16 };
    char *names = malloc(COUNT * LENGTH);
    cr_assert(names);
    size_t refused = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        char *name = names + i * LENGTH;
        size_t length = (size_t)snprintf(name, LENGTH, "layer.%u", i);
        refused += !tc_name_map_add(&map, (struct tc_text){name, length}, 3 * i, &error);
    }
    cr_assert_eq(refused, 0);
    cr_assert_eq(map.count, COUNT);
    size_t wrong = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t *found = tc_name_map_find(&map, tc_text_of(names + i * LENGTH));
        wrong += found != &map.entries[i].number || *found != 3 * i;
    }
    cr_assert_eq(wrong, 0);
    cr_assert_null(tc_name_map_find(&map, TC_TEXT("layer.")));
    cr_assert_null(tc_name_map_find(&map, TC_TEXT("layer.1000000")));
    /* The index is at most two thirds full, and all memory is counted. */
    cr_assert_geq(map.index.slot_count * 2, map.count * 3);
    cr_assert_eq(arena.used, map.capacity * sizeof *map.entries +
                                 map.index.slot_count * sizeof *map.index.slots);
    free(names);
}

/* Adds numbered names until one is refused. */
static size_t fill(struct tc_arena *texts, size_t most) {
    char name[32];
    struct tc_error ignored = {0};
    for (size_t i = 0; i < most; i++) {
        size_t length = (size_t)snprintf(name, sizeof name, "%zu", i);
        char *copy = tc_arena_copy(texts, name, length, &ignored);
        if (!copy || !tc_name_map_add(&map, (struct tc_text){copy, length}, (uint32_t)i, &error))
            return i;
    }
    return most;
}

static void expect_filled(size_t count) {
    char name[32];
    size_t wrong = 0;
    cr_assert_eq(map.count, count);
    for (size_t i = 0; i <= count; i++) {
        snprintf(name, sizeof name, "%zu", i);
        const uint32_t *found = tc_name_map_find(&map, tc_text_of(name));
        wrong += i == count ? found != NULL : !found || *found != i;
    }
    cr_assert_eq(wrong, 0);
}

Test(name_map, the_arena_s_budget_bounds_it) {
    struct tc_arena texts;
    tc_arena_init(&texts, 0);
    arena.budget = 100000;
    size_t count = fill(&texts, 100000);
    cr_assert_gt(count, 1000);
    cr_assert_lt(count, 100000 / sizeof *map.entries);
    cr_assert_eq(error.class, TC_UNSAFE);
    cr_assert_str_eq(error.code, "memory-limit");
    cr_assert_leq(arena.used, arena.budget);
    expect_filled(count);
    tc_arena_release(&texts);
}

/* The command's budget refuses an allocation, be it of the entries or of the index:
 * what was added before stays, and more can be added once there is memory. */
Test(name_map, no_memory_leaves_it_as_it_was) {
    struct tc_arena texts;
    tc_arena_init(&texts, 0);
    size_t most = 2000000;
    char *ballast = malloc(136 * MIB);
    cr_assert(ballast);
    tc_memory_limit(96 * MIB);
    size_t count = fill(&texts, most);
    cr_assert_gt(count, 10000);
    cr_assert_lt(count, most);
    cr_assert(tc_memory_refused());
    cr_assert_neq(error.class, TC_OK);
    expect_filled(count);
    free(ballast);
    error = (struct tc_error){0};
    cr_assert(tc_name_map_add(&map, TC_TEXT("more"), 5, &error));
    expect(TC_TEXT("more"), 5);
    cr_assert_eq(map.count, count + 1);
    tc_arena_release(&texts);
}

Test(name_map, released_it_is_empty_and_can_be_filled_again) {
    cr_assert(tc_name_map_add(&map, TC_TEXT("a"), 1, &error));
    tc_name_map_release(&map);
    cr_assert_null(tc_name_map_find(&map, TC_TEXT("a")));
    cr_assert(tc_name_map_add(&map, TC_TEXT("a"), 2, &error));
    expect(TC_TEXT("a"), 2);
}

struct pair {
    struct tc_text name;
    int value;
};

Test(name_map, an_index_follows_its_array) {
    struct pair pairs[] = {{TC_TEXT("c"), 3}, {TC_TEXT("a"), 1}, {TC_TEXT("b"), 2}};
    struct tc_name_index index;
    size_t position = 9;
    tc_name_index_init(&index, NULL, sizeof *pairs);
    cr_assert_not(tc_name_index_find(&index, pairs, TC_TEXT("a"), &position));
    cr_assert(tc_name_index_reserve(&index, 3, &error));
    tc_name_index_rebuild(&index, pairs, 3);
    cr_assert(tc_name_index_find(&index, pairs, TC_TEXT("a"), &position));
    cr_assert_eq(position, 1);
    struct pair first = pairs[0];
    pairs[0] = pairs[1];
    pairs[1] = first;
    tc_name_index_rebuild(&index, pairs, 2);
    cr_assert(tc_name_index_find(&index, pairs, TC_TEXT("a"), &position));
    cr_assert_eq(position, 0);
    cr_assert(tc_name_index_find(&index, pairs, TC_TEXT("c"), &position));
    cr_assert_eq(position, 1);
    cr_assert_not(tc_name_index_find(&index, pairs, TC_TEXT("b"), &position));
    tc_name_index_clear(&index);
    cr_assert_not(tc_name_index_find(&index, pairs, TC_TEXT("a"), &position));
    tc_name_index_release(&index);
}
