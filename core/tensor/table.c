#include "core/tensor/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/base/limits.h"
#include "core/base/near.h"
#include "core/base/sodium.h"

void tc_table_init(struct tc_table *table, struct tc_arena *arena, uint64_t max_tensors) {
    *table = (struct tc_table){.arena = arena, .max_tensors = max_tensors};
    /* A secret key: names chosen to collide would make the index a list. It
     * never shows in any output. Without entropy a fixed key still works. */
    if (getrandom(table->hash_key, sizeof table->hash_key, GRND_NONBLOCK) < 0)
        memset(table->hash_key, 0x5A, sizeof table->hash_key);
}

void tc_table_release(struct tc_table *table) {
    free(table->tensors);
    free(table->slots);
    table->tensors = NULL;
    table->slots = NULL;
    table->count = table->capacity = table->slot_count = 0;
}

static size_t slot_of(const struct tc_table *table, struct tc_text name) {
    uint64_t hash = tc_shorthash(table->hash_key, name.bytes, name.length);
    size_t mask = table->slot_count - 1;
    size_t slot = (size_t)hash & mask;
    while (table->slots[slot] && !tc_text_equal(table->tensors[table->slots[slot] - 1].name, name))
        slot = (slot + 1) & mask;
    return slot;
}

static void index_all(struct tc_table *table) {
    memset(table->slots, 0, table->slot_count * sizeof *table->slots);
    for (size_t i = 0; i < table->count; i++)
        table->slots[slot_of(table, table->tensors[i].name)] = (uint32_t)(i + 1);
}

static bool table_grow(struct tc_table *table, struct tc_error *error) {
    size_t capacity = table->capacity ? table->capacity + table->capacity / 2 : 16;
    if (!tc_arena_charge(table->arena, (capacity - table->capacity) * sizeof *table->tensors,
                         error))
        return false;
    struct tc_tensor *tensors = reallocarray(table->tensors, capacity, sizeof *tensors);
    if (!tensors)
        return tc_fail_memory(error);
    table->tensors = tensors;
    table->capacity = capacity;
    if (capacity * 3 / 2 <= table->slot_count)
        return true;
    size_t slot_count = table->slot_count ? table->slot_count * 2 : 32;
    if (!tc_arena_charge(table->arena, (slot_count - table->slot_count) * sizeof *table->slots,
                         error))
        return false;
    uint32_t *slots = reallocarray(table->slots, slot_count, sizeof *slots);
    if (!slots)
        return tc_fail_memory(error);
    table->slots = slots;
    table->slot_count = slot_count;
    index_all(table);
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

static bool fail_duplicate(struct tc_text name, struct tc_error *error) {
    tc_fail(error, TC_INVALID, "duplicate-name", "the name occurs twice");
    return tc_error_in_tensor(error, name.bytes, name.length);
}

bool tc_table_add(struct tc_table *table, const struct tc_tensor *tensor, struct tc_error *error) {
    if (!tc_name_check(tensor->name, error))
        return tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
    if (table->count >= table->max_tensors || table->count >= UINT32_MAX - 1) {
        tc_fail(error, TC_UNSAFE, "tensor-limit", "more than %llu tensors",
                (unsigned long long)table->max_tensors);
        return tc_error_hint(error, "raise the limit with --max-tensors if you trust this file");
    }
    if (table->count == table->capacity && !table_grow(table, error))
        return false;
    size_t slot = slot_of(table, tensor->name);
    if (table->slots[slot])
        return fail_duplicate(tensor->name, error);
    table->tensors[table->count] = *tensor;
    table->slots[slot] = (uint32_t)++table->count;
    return true;
}

bool tc_table_rename(struct tc_table *table, const struct tc_text *names, struct tc_error *error) {
    if (table->count)
        memset(table->slots, 0, table->slot_count * sizeof *table->slots);
    for (size_t i = 0; i < table->count; i++) {
        if (!tc_name_check(names[i], error))
            return tc_error_in_tensor(error, names[i].bytes, names[i].length);
        size_t slot = slot_of(table, names[i]);
        if (table->slots[slot])
            return fail_duplicate(names[i], error);
        table->tensors[i].name = names[i];
        table->slots[slot] = (uint32_t)(i + 1);
    }
    return true;
}

struct tc_tensor *tc_table_find(const struct tc_table *table, struct tc_text name) {
    if (table->count == 0)
        return NULL;
    uint32_t position = table->slots[slot_of(table, name)];
    return position ? &table->tensors[position - 1] : NULL;
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

/* Moves tensors so that place i holds what was at order[i], along the cycles
 * of the permutation: no second copy of a large table. Destroys order. */
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
    index_all(table);
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
