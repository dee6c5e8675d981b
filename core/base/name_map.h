/*
 * A map from names to numbers, in the order in which they were added:
 *
 *     tc_name_map_init → tc_name_map_add, tc_name_map_find … → tc_name_map_release
 *
 * A name is any bytes, an empty one included, and is not copied: it must outlive
 * the map. What a number means is the owner's affair; where more is to be kept of
 * a name, the number is a position in an array of the owner's.
 *
 * The hash has a secret key, so that nobody can choose names that collide.
 */
#ifndef TCONV_CORE_BASE_NAME_MAP_H
#define TCONV_CORE_BASE_NAME_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"

/*
 * The index by itself, for an owner whose own array has the names: each element
 * starts with a struct tc_text, its name. The owner says at every call where the
 * array is, since it may move when it grows.
 */
struct tc_name_index {
    struct tc_arena *arena; /* counts the memory that is taken; NULL: nobody does */
    size_t element;         /* bytes of an element of the array */
    uint32_t *slots;        /* by hash: position in the array + 1, or 0 */
    size_t slot_count;      /* a power of two, or 0 */
    uint8_t hash_key[16];
};

/* The most names there can be. */
#define TC_MAX_NAMES (UINT32_MAX - 1)

void tc_name_index_init(struct tc_name_index *index, struct tc_arena *arena, size_t element);
void tc_name_index_release(struct tc_name_index *index);
/* Room for `capacity` names, of which the array has the first `count`. */
bool tc_name_index_reserve(struct tc_name_index *index, const void *array, size_t count,
                           size_t capacity, struct tc_error *error);
/* Forgets all names, and keeps the room. */
void tc_name_index_clear(struct tc_name_index *index);
/* Forgets all names and enters those of the array, after its order changed. */
void tc_name_index_rebuild(struct tc_name_index *index, const void *array, size_t count);
/* The name's slot: 1 + its position, or 0 where it is not there, to be written by
 * the owner who adds it. There must be room for one more. */
uint32_t *tc_name_index_slot(const struct tc_name_index *index, const void *array,
                             struct tc_text name);
/* Whether the name is there, and its position. */
bool tc_name_index_find(const struct tc_name_index *index, const void *array, struct tc_text name,
                        size_t *position);

struct tc_named_number {
    struct tc_text name;
    uint32_t number;
};

struct tc_name_map {
    struct tc_named_number *entries; /* as they were added */
    size_t count;
    size_t capacity;
    struct tc_name_index index;
};

/* What the map takes is from malloc, and counted against the arena's budget where
 * that is not NULL. */
void tc_name_map_init(struct tc_name_map *map, struct tc_arena *arena);
void tc_name_map_release(struct tc_name_map *map);

/* A name that is there already is TC_INVALID, "duplicate-name". */
bool tc_name_map_add(struct tc_name_map *map, struct tc_text name, uint32_t number,
                     struct tc_error *error);
/* Its number, which may be changed, and stays where it is until a name is added;
 * NULL where the name is not there. */
uint32_t *tc_name_map_find(const struct tc_name_map *map, struct tc_text name);

/* The error that a name occurs twice. */
bool tc_fail_duplicate(struct tc_text name, struct tc_error *error);

#endif
