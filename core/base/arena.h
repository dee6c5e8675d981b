/*
 * An arena: memory that lives as long as its owner (a reader's table, a plan)
 * and is freed all at once by tc_arena_release; no single piece can be freed.
 * A budget bounds the total, so that a hostile header meets --max-memory before
 * it meets the machine's own limit. One thread at a time may use an arena.
 */
#ifndef TCONV_CORE_BASE_ARENA_H
#define TCONV_CORE_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

struct tc_arena_block;

struct tc_arena {
    struct tc_arena_block *blocks;
    uint64_t used;   /* bytes taken from the system */
    uint64_t budget; /* 0: no bound */
};

void tc_arena_init(struct tc_arena *arena, uint64_t budget);
void tc_arena_release(struct tc_arena *arena);

/* Counts `size` bytes that the owner took elsewhere against the same budget. */
bool tc_arena_charge(struct tc_arena *arena, uint64_t size, struct tc_error *error);
/* Zeroed memory, aligned for any type, or NULL with the error filled. */
void *tc_arena_alloc(struct tc_arena *arena, uint64_t size, struct tc_error *error);
void *tc_arena_array(struct tc_arena *arena, uint64_t count, size_t size, struct tc_error *error);
/* A copy of the bytes, followed by a NUL. */
char *tc_arena_copy(struct tc_arena *arena, const void *bytes, size_t length,
                    struct tc_error *error);

#endif
