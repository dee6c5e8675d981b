#include "core/base/arena.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"

/* With AddressSanitizer a few bytes behind each piece must not be touched, so that it sees who
 * reads past a piece's end, as with pieces from malloc. */
#ifdef __SANITIZE_ADDRESS__
#define GUARDED
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define GUARDED
#endif
#endif
#ifdef GUARDED
#include <sanitizer/asan_interface.h>
#define GUARD 8u
#else
#define GUARD 0u
#define ASAN_POISON_MEMORY_REGION(bytes, size) ((void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(bytes, size) ((void)(bytes))
#endif

#define ALIGNMENT 16u
/* Small, since a model may have an arena for each of its 100,000 files. */
#define FIRST_BLOCK 1024u
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
    return tc_arena_pack(arena, rounded, ALIGNMENT, error);
}

void *tc_arena_pack(struct tc_arena *arena, uint64_t size, unsigned alignment,
                    struct tc_error *error) {
    uint64_t rounded = size ? size : 1;
    if (!tc_add(rounded, GUARD, &rounded)) {
        tc_fail_memory(error);
        return NULL;
    }
    struct tc_arena_block *block = arena->blocks;
    uint64_t start = block ? (block->used + alignment - 1) & ~(uint64_t)(alignment - 1) : 0;
    if (!block || block->size < start || block->size - start < rounded) {
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
        start = 0;
    }
    block->used = start + rounded;
    /* It may have been gone back over. */
    ASAN_UNPOISON_MEMORY_REGION(block->bytes + start, rounded);
    ASAN_POISON_MEMORY_REGION(block->bytes + block->used - GUARD, GUARD);
    return block->bytes + start;
}

void tc_arena_return(struct tc_arena *arena, const void *piece) {
    struct tc_arena_block **link = &arena->blocks;
    /* The first block may get more pieces; the others are never added to. */
    while (*link && (*link == arena->blocks || (*link)->bytes != piece))
        link = &(*link)->next;
    struct tc_arena_block *block = *link;
    if (!block || block->size <= LARGEST_BLOCK)
        return;
    uint64_t total = block->size + sizeof *block;
    *link = block->next;
    arena->used -= total < arena->used ? total : arena->used;
    free(block);
}

struct tc_arena_place tc_arena_here(const struct tc_arena *arena) {
    return (struct tc_arena_place){arena->blocks, arena->blocks ? arena->blocks->used : 0};
}

void tc_arena_rewind(struct tc_arena *arena, struct tc_arena_place place) {
    struct tc_arena_block *block = arena->blocks;
    if (!block || block != place.block)
        return;
    ASAN_UNPOISON_MEMORY_REGION(block->bytes + place.used, block->used - place.used);
    memset(block->bytes + place.used, 0, block->used - place.used);
    ASAN_POISON_MEMORY_REGION(block->bytes + place.used, block->used - place.used);
    block->used = place.used;
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
