#include "core/tensor/table.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/base/near.h"

void tc_table_init(struct tc_table *table, struct tc_arena *arena, uint64_t max_tensors) {
    *table = (struct tc_table){.arena = arena, .max_tensors = max_tensors};
    tc_name_index_init(&table->names, arena, sizeof *table->tensors);
}

void tc_table_release(struct tc_table *table) {
    free(table->tensors);
    table->tensors = NULL;
    table->count = table->capacity = 0;
    tc_name_index_release(&table->names);
}

static bool table_grow(struct tc_table *table, struct tc_error *error) {
    size_t capacity = table->capacity ? table->capacity + table->capacity / 2 : 4;
    if (!tc_arena_charge(table->arena, (capacity - table->capacity) * sizeof *table->tensors,
                         error))
        return false;
    struct tc_tensor *tensors = reallocarray(table->tensors, capacity, sizeof *tensors);
    if (!tensors)
        return tc_fail_memory(error);
    table->tensors = tensors;
    if (!tc_name_index_reserve(&table->names, capacity, error))
        return false;
    table->capacity = capacity;
    return true;
}

bool tc_name_check(struct tc_text name, struct tc_error *error) {
    if (name.length > TC_MAX_NAME_BYTES) {
        tc_fail(error, TC_UNSAFE, "name-limit", "a tensor's name is too long (%zu bytes, limit %u)",
                name.length, TC_MAX_NAME_BYTES);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    if (name.length && memchr(name.bytes, '\0', name.length))
        return tc_fail(error, TC_INVALID, "name-nul", "a tensor's name holds a NUL character");
    if (!tc_utf8_valid(name))
        return tc_fail(error, TC_INVALID, "name-utf8", "a tensor's name is not valid UTF-8");
    return true;
}

/* Checks a name that is to be added behind `count` others. */
static bool check_next(struct tc_text name, size_t count, uint64_t most, struct tc_error *error) {
    if (!tc_name_check(name, error))
        return tc_error_in_tensor(error, name.bytes, name.length);
    if (count < most && count < TC_MAX_NAMES)
        return true;
    tc_fail(error, TC_UNSAFE, "tensor-limit", "more than %llu tensors", (unsigned long long)most);
    return tc_error_hint(error, "raise the limit with --max-tensors if you trust this file");
}

bool tc_name_add(struct tc_name_map *map, struct tc_text name, uint32_t number, uint64_t most,
                 struct tc_error *error) {
    return check_next(name, map->count, most, error) && tc_name_map_add(map, name, number, error);
}

void tc_table_expect(const struct tc_table *table, struct tc_text name) {
    tc_name_index_expect(&table->names, name);
}

bool tc_table_add(struct tc_table *table, const struct tc_tensor *tensor, struct tc_error *error) {
    if (!check_next(tensor->name, table->count, table->max_tensors, error) ||
        (table->count == table->capacity && !table_grow(table, error)))
        return false;
    uint32_t *slot = tc_name_index_slot(&table->names, table->tensors, tensor->name);
    if (*slot)
        return tc_fail_duplicate(tensor->name, error);
    table->tensors[table->count] = *tensor;
    *slot = (uint32_t)++table->count;
    return true;
}

bool tc_table_rename(struct tc_table *table, const struct tc_text *names, struct tc_error *error) {
    tc_name_index_clear(&table->names);
    for (size_t i = 0; i < table->count; i++) {
        if (!tc_name_check(names[i], error))
            return tc_error_in_tensor(error, names[i].bytes, names[i].length);
        uint32_t *slot = tc_name_index_slot(&table->names, table->tensors, names[i]);
        if (*slot)
            return tc_fail_duplicate(names[i], error);
        table->tensors[i].name = names[i];
        *slot = (uint32_t)i + 1;
    }
    return true;
}

struct tc_tensor *tc_table_find(const struct tc_table *table, struct tc_text name) {
    size_t position;
    return tc_name_index_find(&table->names, table->tensors, name, &position)
               ? &table->tensors[position]
               : NULL;
}

static int offset_compare(const void *a, const void *b, void *tensors) {
    uint32_t i = *(const uint32_t *)a;
    uint32_t j = *(const uint32_t *)b;
    uint64_t x = ((const struct tc_tensor *)tensors)[i].offset;
    uint64_t y = ((const struct tc_tensor *)tensors)[j].offset;
    if (x != y)
        return x < y ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Moves tensors so that position i holds what was at order[i]. It follows the
 * cycles of the permutation, so that a large table needs no second copy. Destroys
 * `order`. */
static void permute(struct tc_tensor *tensors, uint32_t *order, size_t count) {
    for (size_t start = 0; start < count; start++) {
        if (order[start] == UINT32_MAX)
            continue;
        struct tc_tensor first = tensors[start];
        size_t at = start;
        for (;;) {
            size_t from = order[at];
            order[at] = UINT32_MAX;
            if (from == start)
                break;
            tensors[at] = tensors[from];
            at = from;
        }
        tensors[at] = first;
    }
}

bool tc_table_hint(const struct tc_table *table, struct tc_text name, struct tc_error *error,
                   const char *otherwise) {
    struct tc_near near;
    tc_near_init(&near, name);
    for (size_t i = 0; i < table->count; i++)
        tc_near_try(&near, table->tensors[i].name);
    return tc_near_hint(&near, error, otherwise);
}

bool tc_table_sort(struct tc_table *table, struct tc_error *error) {
    size_t sorted = 1;
    while (sorted < table->count &&
           table->tensors[sorted - 1].offset <= table->tensors[sorted].offset)
        sorted++;
    if (sorted >= table->count)
        return true;
    uint32_t *order = malloc(table->count * sizeof *order);
    if (!order)
        return tc_fail_memory(error);
    for (size_t i = 0; i < table->count; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, table->count, sizeof *order, offset_compare, table->tensors);
    permute(table->tensors, order, table->count);
    free(order);
    tc_name_index_rebuild(&table->names, table->tensors, table->count);
    return true;
}

void tc_table_tie(struct tc_table *table, size_t first, size_t other) {
    struct tc_tensor *tensor = &table->tensors[first];
    if (!tensor->tie)
        tensor->tie = (uint32_t)first + 1;
    table->tensors[other].tie = tensor->tie;
}

size_t tc_table_source(const struct tc_table *table, size_t position) {
    uint32_t tie = table->tensors[position].tie;
    return tie ? tie - 1 : position;
}

bool tc_table_is_sequential(const struct tc_table *table) {
    for (size_t i = 0; i < table->count; i++)
        if (table->tensors[i].sequential)
            return true;
    return false;
}
