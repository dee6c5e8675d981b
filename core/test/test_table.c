#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

static struct tc_arena arena;
static struct tc_table table;
static struct tc_error error;

static void setup(void) {
    tc_arena_init(&arena, 0);
    tc_table_init(&table, &arena, 100000);
    error = (struct tc_error){0};
}

static void teardown(void) {
    tc_table_release(&table);
    tc_arena_release(&arena);
}

TestSuite(table, .init = setup, .fini = teardown);

static bool add(const char *name, uint64_t offset) {
    size_t length = strlen(name);
    char *copy = tc_arena_copy(&arena, name, length, &error);
    struct tc_tensor tensor = {.name = {copy, length}, .offset = offset};
    return tc_table_add(&table, &tensor, &error);
}

Test(table, finds_each_of_many) {
    char name[32];
    for (unsigned i = 0; i < 50000; i++) {
        snprintf(name, sizeof name, "layer.%u", i);
        cr_assert(add(name, 50000 - i));
    }
    cr_assert_eq(table.count, 50000);
    cr_assert(tc_table_sort(&table, &error));
    cr_assert(tc_text_equal(table.tensors[0].name, TC_TEXT("layer.49999")));
    for (unsigned i = 0; i < 50000; i += 777) {
        snprintf(name, sizeof name, "layer.%u", i);
        const struct tc_tensor *found = tc_table_find(&table, tc_text_of(name));
        cr_assert_not_null(found);
        cr_assert_eq(found->offset, 50000 - i);
    }
    cr_assert_null(tc_table_find(&table, TC_TEXT("layer.")));
}

Test(table, sort_keeps_the_order_of_equals) {
    add("c", 8), add("a", 8), add("b", 0), add("d", 8);
    cr_assert(tc_table_sort(&table, &error));
    static const char *const expected[] = {"b", "c", "a", "d"};
    for (size_t i = 0; i < 4; i++)
        cr_assert(tc_text_equal(table.tensors[i].name, tc_text_of(expected[i])));
}

Test(table, refuses_doubles_bad_names_and_too_many) {
    cr_assert(add("a", 0));
    cr_assert_not(add("a", 1));
    cr_assert_str_eq(error.code, "duplicate-name");
    cr_assert_str_eq(error.tensor, "a");
    struct tc_tensor nul = {.name = {"x\0y", 3}};
    error = (struct tc_error){0};
    cr_assert_not(tc_table_add(&table, &nul, &error));
    cr_assert_eq(error.class, TC_INVALID);
    struct tc_tensor utf8 = {.name = {"\xFF", 1}};
    error = (struct tc_error){0};
    cr_assert_not(tc_table_add(&table, &utf8, &error));
    cr_assert_eq(error.class, TC_INVALID);
    table.max_tensors = 1;
    error = (struct tc_error){0};
    cr_assert_not(add("b", 2));
    cr_assert_eq(error.class, TC_UNSAFE);
}

static enum tc_class measure(enum tc_dtype dtype, unsigned rank, const uint64_t *shape,
                             uint64_t *nbytes) {
    uint64_t count;
    struct tc_error inner = {0};
    tc_shape_measure(dtype, shape, rank, &count, nbytes, &inner);
    return inner.class;
}

Test(shape, overflow_does_not_hide_behind_a_zero) {
    const uint64_t big = UINT64_C(1) << 40;
    uint64_t nbytes = 1;
    cr_assert_eq(measure(TC_F32, 3, (const uint64_t[]){0, big, big}, &nbytes), TC_INVALID);
    cr_assert_eq(measure(TC_F32, 3, (const uint64_t[]){big, 0, big}, &nbytes), TC_INVALID);
    cr_assert_eq(measure(TC_F32, 3, (const uint64_t[]){big, big, 0}, &nbytes), TC_INVALID);
    cr_assert_eq(measure(TC_F32, 2, (const uint64_t[]){0, big}, &nbytes), TC_OK);
    cr_assert_eq(nbytes, 0);
    cr_assert_eq(measure(TC_F32, 0, NULL, &nbytes), TC_OK);
    cr_assert_eq(nbytes, 4);
    cr_assert_eq(measure(TC_F64, 1, (const uint64_t[]){UINT64_C(1) << 61}, &nbytes), TC_INVALID);
    cr_assert_eq(measure(TC_U8, 1, (const uint64_t[]){UINT64_C(1) << 63}, &nbytes), TC_INVALID);
}

Test(shape, packed_elements_fill_bytes) {
    uint64_t nbytes;
    cr_assert_eq(measure(TC_F4, 2, (const uint64_t[]){3, 8}, &nbytes), TC_OK);
    cr_assert_eq(nbytes, 12);
    cr_assert_eq(measure(TC_F4, 1, (const uint64_t[]){3}, &nbytes), TC_INVALID);
    cr_assert_eq(measure(TC_F6_E2M3, 1, (const uint64_t[]){4}, &nbytes), TC_OK);
    cr_assert_eq(nbytes, 3);
    cr_assert_eq(measure(TC_F6_E2M3, 1, (const uint64_t[]){2}, &nbytes), TC_INVALID);
}

Test(table, metadata_is_a_sorted_map) {
    struct tc_metadata metadata = {0};
    cr_assert(tc_metadata_set(&metadata, &arena, TC_TEXT("b"), TC_TEXT("2"), &error));
    cr_assert(tc_metadata_set(&metadata, &arena, TC_TEXT("a"), TC_TEXT("1"), &error));
    cr_assert(tc_metadata_set(&metadata, &arena, TC_TEXT("b"), TC_TEXT("3"), &error));
    cr_assert_eq(metadata.count, 2);
    cr_assert(tc_text_equal(metadata.pairs[0].key, TC_TEXT("a")));
    cr_assert(tc_text_equal(*tc_metadata_find(&metadata, TC_TEXT("b")), TC_TEXT("3")));
    tc_metadata_remove(&metadata, TC_TEXT("a"));
    cr_assert_null(tc_metadata_find(&metadata, TC_TEXT("a")));
    cr_assert_eq(metadata.count, 1);
    cr_assert(tc_metadata_add(&metadata, &arena, TC_TEXT("b"), TC_TEXT("4"), &error));
    cr_assert_not(tc_metadata_sort(&metadata, &error));
    cr_assert_str_eq(error.code, "duplicate-key");
}

static void add_part(const char *name, const char *role, const char *parent) {
    cr_assert(add(name, table.count));
    struct tc_metadata *metadata = tc_arena_alloc(&arena, sizeof *metadata, &error);
    tc_metadata_set(metadata, &arena, TC_TEXT("sparse_role"), tc_text_of(role), &error);
    tc_metadata_set(metadata, &arena, TC_TEXT("sparse_parent"), tc_text_of(parent), &error);
    table.tensors[table.count - 1].metadata = metadata;
}

Test(table, sparse_groups_go_by_role_not_by_name) {
    add_part("sp.indices", "indices", "sp");
    add_part("sp.values", "values", "sp");
    struct tc_sparse sparse;
    cr_assert_not(tc_sparse_of(&table, &table.tensors[0], &sparse), "incomplete");
    add_part("sp.shape", "shape", "sp");
    cr_assert(tc_sparse_of(&table, &table.tensors[1], &sparse));
    cr_assert(tc_text_equal(sparse.layout, TC_TEXT("coo")));
    cr_assert(tc_text_equal(sparse.parent, TC_TEXT("sp")));
    cr_assert(add("x.indices", 0) && add("x.values", 1) && add("x.shape", 2));
    cr_assert_not(tc_sparse_of(&table, tc_table_find(&table, TC_TEXT("x.indices")), &sparse));
}

Test(table, metadata_of_many_maps_is_joined_at_once) {
    enum { MAPS = 20000 };
    static struct tc_metadata maps[MAPS];
    static const struct tc_metadata *from[MAPS];
    static size_t conflicts[MAPS];
    static char keys[MAPS][16];
    struct tc_metadata into = {0};
    /* Values that are there come first, then those of the maps in their order. */
    arena.budget = 32 << 20;
    cr_assert(tc_metadata_add(&into, &arena, TC_TEXT("all"), TC_TEXT("0"), &error));
    for (size_t i = 0; i < MAPS; i++) {
        snprintf(keys[i], sizeof keys[i], "own%zu", MAPS - i);
        cr_assert(tc_metadata_add(&maps[i], &arena, TC_TEXT("all"),
                                  i % 2 ? TC_TEXT("1") : TC_TEXT("0"), &error));
        cr_assert(tc_metadata_add(&maps[i], &arena, tc_text_of(keys[i]), TC_TEXT("v"), &error));
        cr_assert(tc_metadata_sort(&maps[i], &error));
        from[i] = &maps[i];
    }
    /* One by one this would take 20000 copies of a growing map: gigabytes. */
    cr_assert(tc_metadata_join(&into, from, MAPS, &arena, conflicts, &error), "%s", error.message);
    cr_assert_eq(into.count, MAPS + 1);
    for (size_t i = 0; i < MAPS; i++)
        cr_assert_eq(conflicts[i], i % 2, "map %zu", i);
    for (size_t i = 1; i < into.count; i++)
        cr_assert_lt(tc_text_compare(into.pairs[i - 1].key, into.pairs[i].key), 0);
    cr_assert(tc_text_equal(*tc_metadata_find(&into, TC_TEXT("all")), TC_TEXT("0")));
    cr_assert(tc_text_equal(*tc_metadata_find(&into, TC_TEXT("own7")), TC_TEXT("v")));
}
