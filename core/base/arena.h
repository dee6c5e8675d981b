/*
 * An arena: memory that lives as long as its owner (a reader's table, a plan)
 * and is freed all at once by tc_arena_release; a single piece can be given back
 * only where it is large (tc_arena_return).
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
/* The same, aligned only so far: 1, 2, 4, 8 or 16. Millions of small pieces take less. */
void *tc_arena_pack(struct tc_arena *arena, uint64_t size, unsigned alignment,
                    struct tc_error *error);
/* Frees a piece that nothing points to any more, if it is so large that it has memory of
 * its own; any other stays until tc_arena_release. For arrays that were moved to grow. */
void tc_arena_return(struct tc_arena *arena, const void *piece);
/* Where the next piece would be; and back to there, so that all pieces since are gone. The second
 * does nothing where another block was begun since. */
struct tc_arena_place {
    struct tc_arena_block *block;
    uint64_t used;
};
struct tc_arena_place tc_arena_here(const struct tc_arena *arena);
void tc_arena_rewind(struct tc_arena *arena, struct tc_arena_place place);
void *tc_arena_array(struct tc_arena *arena, uint64_t count, size_t size, struct tc_error *error);
/* A copy of the bytes, followed by a NUL. */
char *tc_arena_copy(struct tc_arena *arena, const void *bytes, size_t length,
                    struct tc_error *error);

#endif
