/*
 * A map from names to numbers, in the order in which they were added:
 *
 *     tc_name_map_init → tc_name_map_add, tc_name_map_find … → tc_name_map_release
 *
 * A name is any bytes, may be empty, and is not copied: it must outlive the map.
 * The owner decides what a number means; where more is to be kept of a name, the
 * number is a position in an array of the owner's. One thread at a time may
 * change a map; several may search it.
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
 * The hash index alone, for an owner who keeps the names in an array of its own:
 * each element starts with its name, a struct tc_text. The owner passes the
 * array at every call, since it may move when it grows.
 */
struct tc_name_slot {
    uint32_t position; /* in the array + 1; 0: the slot is free */
    uint32_t hash;     /* so that few names but the right one are looked at */
};

struct tc_name_index {
    struct tc_arena *arena;     /* its budget counts the memory; NULL: no such budget */
    size_t element;             /* bytes of an element of the array */
    struct tc_name_slot *slots; /* by hash */
    size_t slot_count;          /* a power of two, or 0 */
    uint8_t hash_key[16];
};

/* The most names there can be. */
#define TC_MAX_NAMES (UINT32_MAX - 1)

void tc_name_index_init(struct tc_name_index *index, struct tc_arena *arena, size_t element);
void tc_name_index_release(struct tc_name_index *index);
/* Makes room for `capacity` names. */
bool tc_name_index_reserve(struct tc_name_index *index, size_t capacity, struct tc_error *error);
/* Forgets all names, but keeps the memory. */
void tc_name_index_clear(struct tc_name_index *index);
/* Enters the names of the array anew, after its order changed. */
void tc_name_index_rebuild(struct tc_name_index *index, const void *array, size_t count);
/* Has the CPU fetch the name's slot, as it is soon looked for: in a large index the wait is most of
 * the work. */
void tc_name_index_expect(const struct tc_name_index *index, struct tc_text name);
/* What the name's slot holds: 1 + the name's position, or 0 where the name is not
 * there; an owner who adds the name writes it. There must be room for one more. Only who may
 * change the index may call this. */
uint32_t *tc_name_index_slot(struct tc_name_index *index, const void *array, struct tc_text name);
/* Whether the name is there, and its position. */
bool tc_name_index_find(const struct tc_name_index *index, const void *array, struct tc_text name,
                        size_t *position);

struct tc_named_number {
    struct tc_text name;
    uint32_t number;
};

struct tc_name_map {
    struct tc_named_number *entries; /* in the order in which they were added */
    size_t count;
    size_t capacity;
    struct tc_name_index index;
};

/* The map's memory is from malloc, and also counts against the arena's budget
 * where `arena` is not NULL. */
void tc_name_map_init(struct tc_name_map *map, struct tc_arena *arena);
void tc_name_map_release(struct tc_name_map *map);

/* Fails with TC_INVALID, "duplicate-name", where the name is there already. */
bool tc_name_map_add(struct tc_name_map *map, struct tc_text name, uint32_t number,
                     struct tc_error *error);
/* The name's number, which the caller may change; the pointer holds until a name
 * is added. NULL where the name is not there. */
uint32_t *tc_name_map_find(const struct tc_name_map *map, struct tc_text name);

/* Fills the error for a name that occurs twice. */
bool tc_fail_duplicate(struct tc_text name, struct tc_error *error);

#endif
