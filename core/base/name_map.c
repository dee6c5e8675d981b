#include "core/base/name_map.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/base/sodium.h"

#define FIRST_CAPACITY 16u
#define FIRST_SLOTS 32u
/* Slots that take no more are near the CPU anyway. */
#define FIRST_CACHE ((size_t)1 << 18)

void tc_name_index_init(struct tc_name_index *index, struct tc_arena *arena, size_t element) {
    *index = (struct tc_name_index){.arena = arena, .element = element};
    tc_random(index->hash_key, sizeof index->hash_key);
}

void tc_name_index_release(struct tc_name_index *index) {
    free(index->slots);
    index->slots = NULL;
    index->slot_count = 0;
}

static struct tc_text name_at(const struct tc_name_index *index, const void *array,
                              size_t position) {
    return *(const struct tc_text *)((const char *)array + position * index->element);
}

static uint32_t hash_of(const struct tc_name_index *index, struct tc_text name) {
    return (uint32_t)tc_shorthash(index->hash_key, name.bytes, name.length);
}

/* The slot that has the name, or the free one that it would get. */
static struct tc_name_slot *search(const struct tc_name_index *index, const void *array,
                                   struct tc_text name, uint32_t hash) {
    size_t mask = index->slot_count - 1;
    size_t at = hash & mask;
    const struct tc_name_slot *slots = index->slots;
    while (slots[at].position &&
           !(slots[at].hash == hash &&
             tc_text_equal(name_at(index, array, slots[at].position - 1), name)))
        at = (at + 1) & mask;
    return &index->slots[at];
}

void tc_name_index_expect(const struct tc_name_index *index, struct tc_text name) {
    if (index->slot_count * sizeof *index->slots > FIRST_CACHE)
        __builtin_prefetch(&index->slots[hash_of(index, name) & (index->slot_count - 1)], 1);
}

uint32_t *tc_name_index_slot(struct tc_name_index *index, const void *array, struct tc_text name) {
    uint32_t hash = hash_of(index, name);
    struct tc_name_slot *slot = search(index, array, name, hash);
    slot->hash = hash;
    return &slot->position;
}

bool tc_name_index_find(const struct tc_name_index *index, const void *array, struct tc_text name,
                        size_t *position) {
    uint32_t found =
        index->slot_count ? search(index, array, name, hash_of(index, name))->position : 0;
    *position = found ? found - 1 : 0;
    return found != 0;
}

void tc_name_index_clear(struct tc_name_index *index) {
    if (index->slot_count)
        memset(index->slots, 0, index->slot_count * sizeof *index->slots);
}

/* Enters a name that is new: no other need be compared with it. */
static void enter(struct tc_name_index *index, uint32_t position, uint32_t hash) {
    size_t mask = index->slot_count - 1;
    size_t at = hash & mask;
    while (index->slots[at].position)
        at = (at + 1) & mask;
    index->slots[at] = (struct tc_name_slot){position, hash};
}

void tc_name_index_rebuild(struct tc_name_index *index, const void *array, size_t count) {
    tc_name_index_clear(index);
    for (size_t i = 0; i < count; i++)
        enter(index, (uint32_t)i + 1, hash_of(index, name_at(index, array, i)));
}

static bool charge(struct tc_arena *arena, size_t count, size_t size, struct tc_error *error) {
    return !arena || tc_arena_charge(arena, (uint64_t)count * size, error);
}

/* At most two of three slots are taken, so that a search ends soon. */
bool tc_name_index_reserve(struct tc_name_index *index, size_t capacity, struct tc_error *error) {
    size_t slot_count = index->slot_count ? index->slot_count : FIRST_SLOTS;
    while (slot_count < capacity * 3 / 2)
        slot_count *= 2;
    if (slot_count == index->slot_count)
        return true;
    if (!charge(index->arena, slot_count - index->slot_count, sizeof *index->slots, error))
        return false;
    struct tc_name_slot *slots = calloc(slot_count, sizeof *slots);
    if (!slots)
        return tc_fail_memory(error);
    struct tc_name_index old = *index;
    index->slots = slots;
    index->slot_count = slot_count;
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i].position)
            enter(index, old.slots[i].position, old.slots[i].hash);
    free(old.slots);
    return true;
}

void tc_name_map_init(struct tc_name_map *map, struct tc_arena *arena) {
    *map = (struct tc_name_map){0};
    tc_name_index_init(&map->index, arena, sizeof *map->entries);
}

void tc_name_map_release(struct tc_name_map *map) {
    free(map->entries);
    map->entries = NULL;
    map->count = map->capacity = 0;
    tc_name_index_release(&map->index);
}

static bool grow(struct tc_name_map *map, struct tc_error *error) {
    size_t capacity = map->capacity ? map->capacity + map->capacity / 2 : FIRST_CAPACITY;
    if (!charge(map->index.arena, capacity - map->capacity, sizeof *map->entries, error))
        return false;
    struct tc_named_number *entries = reallocarray(map->entries, capacity, sizeof *entries);
    if (!entries)
        return tc_fail_memory(error);
    map->entries = entries;
    if (!tc_name_index_reserve(&map->index, capacity, error))
        return false;
    map->capacity = capacity;
    return true;
}

bool tc_fail_duplicate(struct tc_text name, struct tc_error *error) {
    tc_fail(error, TC_INVALID, "duplicate-name", "the name occurs twice");
    return tc_error_in_tensor(error, name.bytes, name.length);
}

bool tc_name_map_add(struct tc_name_map *map, struct tc_text name, uint32_t number,
                     struct tc_error *error) {
    if (map->count >= TC_MAX_NAMES) {
        tc_fail(error, TC_UNSAFE, "name-limit", "more than %u names", TC_MAX_NAMES);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    if (map->count == map->capacity && !grow(map, error))
        return false;
    uint32_t *slot = tc_name_index_slot(&map->index, map->entries, name);
    if (*slot)
        return tc_fail_duplicate(name, error);
    map->entries[map->count] = (struct tc_named_number){.name = name, .number = number};
    *slot = (uint32_t)++map->count;
    return true;
}

uint32_t *tc_name_map_find(const struct tc_name_map *map, struct tc_text name) {
    size_t position;
    return tc_name_index_find(&map->index, map->entries, name, &position)
               ? &map->entries[position].number
               : NULL;
}
