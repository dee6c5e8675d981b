#include "core/base/arena.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"

#define ALIGNMENT 16u
#define FIRST_BLOCK 4096u
/* Blocks double up to this size: large enough that a million names need only
 * a few hundred calls, small enough that the slack in the last one is noise. */
#define LARGEST_BLOCK (UINT64_C(1) << 20)

struct tc_arena_block {
    struct tc_arena_block *next;
    uint64_t size;
    uint64_t used;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

void tc_arena_init(struct tc_arena *arena, uint64_t budget) {
    *arena = (struct tc_arena){.budget = budget};
}

void tc_arena_release(struct tc_arena *arena) {
    struct tc_arena_block *block = arena->blocks;
    while (block) {
        struct tc_arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (struct tc_arena){.budget = arena->budget};
}

bool tc_arena_charge(struct tc_arena *arena, uint64_t size, struct tc_error *error) {
    uint64_t sum;
    if (!tc_add(arena->used, size, &sum) || (arena->budget && sum > arena->budget)) {
        tc_fail(error, TC_UNSAFE, "memory-limit",
                "the tables would take more memory than allowed (limit %llu bytes)",
                (unsigned long long)arena->budget);
        return tc_error_hint(error, "raise the limit with --max-memory if you trust this file");
    }
    arena->used = sum;
    return true;
}

static struct tc_arena_block *block_new(struct tc_arena *arena, uint64_t size,
                                        struct tc_error *error) {
    uint64_t total;
    if (!tc_add(size, sizeof(struct tc_arena_block), &total)) {
        tc_fail_memory(error);
        return NULL;
    }
    if (!tc_arena_charge(arena, total, error))
        return NULL;
    struct tc_arena_block *block = calloc(1, total);
    if (!block) {
        tc_fail_memory(error);
        return NULL;
    }
    block->size = size;
    return block;
}

void *tc_arena_alloc(struct tc_arena *arena, uint64_t size, struct tc_error *error) {
    uint64_t rounded;
    if (!tc_align_up(size ? size : 1, ALIGNMENT, &rounded)) {
        tc_fail_memory(error);
        return NULL;
    }
    struct tc_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < rounded) {
        uint64_t wanted = block ? block->size * 2 : FIRST_BLOCK;
        if (wanted > LARGEST_BLOCK)
            wanted = LARGEST_BLOCK;
        /* A piece larger than a block gets its own, behind the current one,
         * whose free space stays in use. */
        bool own = rounded > wanted;
        struct tc_arena_block *fresh = block_new(arena, own ? rounded : wanted, error);
        if (!fresh)
            return NULL;
        if (own && block) {
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            arena->blocks = fresh;
        }
        block = fresh;
    }
    void *piece = block->bytes + block->used;
    block->used += rounded;
    return piece;
}

void *tc_arena_array(struct tc_arena *arena, uint64_t count, size_t size, struct tc_error *error) {
    uint64_t total;
    if (!tc_mul(count, size, &total)) {
        tc_fail_memory(error);
        return NULL;
    }
    return tc_arena_alloc(arena, total, error);
}

char *tc_arena_copy(struct tc_arena *arena, const void *bytes, size_t length,
                    struct tc_error *error) {
    char *copy = tc_arena_alloc(arena, (uint64_t)length + 1, error);
    if (copy && length)
        memcpy(copy, bytes, length);
    return copy;
}
