/* Bytes, stack and memo of the pickle machine. */
#include "formats/pickle_machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"

#define WINDOW_BYTES ((size_t)1 << 16)
#define MAX_MEMO (UINT64_C(16) << 20)
#define MAX_STACK (UINT64_C(16) << 20)

/* Offsets are those of the file: what is in memory has none. */
static bool fail(struct pickle *pickle, enum tc_class class, const char *code, const char *format,
                 va_list args) {
    char what[600];
    vsnprintf(what, sizeof what, format, args);
    tc_fail(pickle->error, class, code, "%s", what);
    return pickle->memory ? false : tc_error_at(pickle->error, pickle->opcode_at);
}

bool pickle_unsupported(struct pickle *pickle, const char *code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(pickle, TC_UNSUPPORTED, code, format, args);
    va_end(args);
    return false;
}

bool pickle_bad(struct pickle *pickle, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(pickle, TC_INVALID, "pickle", format, args);
    va_end(args);
    return false;
}

bool pickle_unsafe(struct pickle *pickle, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(pickle, TC_UNSAFE, "pickle-unsafe", format, args);
    va_end(args);
    return false;
}

bool pickle_odd(struct pickle *pickle, const char *what) {
    if (pickle->mode != PICKLE_SCAN)
        return pickle_bad(pickle, "%s", what);
    if (!pickle->odd)
        pickle->odd = what;
    return true;
}

bool pickle_misuse(struct pickle *pickle, struct tc_text name, const char *what) {
    if (pickle->mode == PICKLE_SCAN && pickle->on_misuse)
        return pickle->on_misuse(pickle->context, what, name, pickle->opcode_at, pickle->error);
    if (pickle->mode == PICKLE_SCAN)
        return pickle_odd(pickle, what);
    return name.length ? pickle_unsafe(pickle, "the pickle is not honest: %s: %.*s", what,
                                       tc_text_shown(name, 200), name.bytes)
                       : pickle_unsafe(pickle, "the pickle is not honest: %s", what);
}

bool pickle_over_limit(struct pickle *pickle, const char *what) {
    pickle_unsafe(pickle, "the pickle has too many or too long %s", what);
    pickle->error->code = "pickle-limit";
    return false;
}

void pickle_init(struct pickle *pickle, struct tc_arena *arena, const struct tc_limits *limits,
                 struct tc_error *error) {
    *pickle = (struct pickle){.arena = arena, .limits = limits, .error = error};
}

/* The stream */

/* Counts what is read, and keeps it inside the frame and the file. */
bool pickle_consume(struct pickle *pickle, uint64_t length, bool counts) {
    if (length > pickle->end - pickle->at)
        return pickle_bad(pickle, "the pickle is cut short");
    if (pickle->frame_end && pickle->at < pickle->frame_end &&
        length > pickle->frame_end - pickle->at) {
        pickle->frame_end = 0;
        if (!pickle_odd(pickle, "an opcode crosses its frame's end"))
            return false;
    }
    if (!counts)
        return true;
    pickle->text += length;
    if (pickle->text <= pickle->limits->pickle)
        return true;
    pickle_unsafe(pickle, "the pickle is longer than %llu bytes",
                  (unsigned long long)pickle->limits->pickle);
    pickle->error->code = "pickle-limit";
    return tc_error_hint(pickle->error, "raise the limit with --max-pickle if you trust this file");
}

/* The next `length` bytes, at most WINDOW_BYTES, without taking them. */
static const unsigned char *look(struct pickle *pickle, size_t length) {
    if (pickle->memory)
        return pickle->memory + pickle->at;
    if (pickle->at < pickle->window_at ||
        pickle->at - pickle->window_at + length > pickle->window_size) {
        uint64_t left = pickle->end - pickle->at;
        size_t size = left < WINDOW_BYTES ? left : WINDOW_BYTES;
        if (!pickle->window && !(pickle->window = malloc(WINDOW_BYTES))) {
            tc_fail_memory(pickle->error);
            return NULL;
        }
        pickle->window_size = 0;
        if (!tc_input_read(pickle->input, pickle->at, pickle->window, size, pickle->error))
            return NULL;
        pickle->window_at = pickle->at;
        pickle->window_size = size;
    }
    return pickle->window + (pickle->at - pickle->window_at);
}

const unsigned char *pickle_take(struct pickle *pickle, size_t length) {
    const unsigned char *bytes = pickle_consume(pickle, length, true) ? look(pickle, length) : NULL;
    if (bytes)
        pickle->at += length;
    return bytes;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
bool pickle_take_number(struct pickle *pickle, unsigned bytes, uint64_t *number) {
    const unsigned char *from = pickle_take(pickle, bytes);
    *number = from ? tc_load(from, bytes) : 0;
    return from != NULL;
}

/* Bytes for as long as the arena lives, a NUL behind them. */
char *pickle_take_copy(struct pickle *pickle, uint64_t length) {
    if (!pickle_consume(pickle, length, true))
        return NULL;
    char *copy = tc_arena_alloc(pickle->arena, length + 1, pickle->error);
    if (!copy)
        return NULL;
    if (length <= WINDOW_BYTES || pickle->memory) {
        const unsigned char *from = look(pickle, length);
        if (!from)
            return NULL;
        memcpy(copy, from, length);
    } else if (!tc_input_read(pickle->input, pickle->at, copy, length, pickle->error)) {
        return NULL;
    }
    pickle->at += length;
    return copy;
}

/* A line, without its newline, the arena's. */
bool pickle_take_line(struct pickle *pickle, uint64_t limit, struct tc_text *line) {
    uint64_t start = pickle->at;
    uint64_t length = 0;
    for (;;) {
        uint64_t left = pickle->end - pickle->at;
        size_t size = left < WINDOW_BYTES ? left : WINDOW_BYTES;
        if (size == 0)
            return pickle_bad(pickle, "the pickle is cut short");
        const unsigned char *from = look(pickle, pickle->memory ? size : 1);
        if (!from)
            return false;
        if (!pickle->memory)
            size = pickle->window_size - (pickle->at - pickle->window_at);
        const unsigned char *newline = memchr(from, '\n', size);
        length += newline ? (uint64_t)(newline - from) : size;
        if (length > limit)
            return pickle_over_limit(pickle, "lines");
        if (newline)
            break;
        pickle->at += size;
    }
    pickle->at = start;
    char *copy = pickle_take_copy(pickle, length);
    if (!copy || !pickle_take(pickle, 1))
        return false;
    *line = (struct tc_text){copy, length};
    return true;
}

/* Nodes, stack and marks */

struct pickle_node *pickle_node(struct pickle *pickle, enum pickle_kind kind) {
    struct pickle_node *node = tc_arena_alloc(pickle->arena, sizeof *node, pickle->error);
    if (node) {
        node->kind = (uint8_t)kind;
        node->at = pickle->opcode_at;
    }
    return node;
}

/* Room for more items; by half as much again where they come one by one. */
static bool reserve(struct pickle *pickle, struct pickle_node *to, size_t more) {
    if (more <= to->capacity - to->count)
        return true;
    uint64_t capacity = to->count + (uint64_t)to->count / 2 + 4;
    if (capacity < to->count + (uint64_t)more || to->count == 0)
        capacity = to->count + (uint64_t)more;
    if (capacity > UINT32_MAX)
        return pickle_over_limit(pickle, "items in a list");
    struct pickle_node **items =
        tc_arena_array(pickle->arena, capacity, sizeof(struct pickle_node *), pickle->error);
    if (!items)
        return false;
    if (to->count)
        memcpy(items, to->items, to->count * sizeof *items);
    to->items = items;
    to->capacity = capacity;
    return true;
}

bool pickle_add(struct pickle *pickle, struct pickle_node *to, struct pickle_node *item) {
    return pickle_add_all(pickle, to, &item, 1);
}

bool pickle_add_all(struct pickle *pickle, struct pickle_node *to, struct pickle_node **items,
                    size_t count) {
    if (!reserve(pickle, to, count))
        return false;
    if (count)
        memcpy(to->items + to->count, items, count * sizeof *items);
    to->count += (uint32_t)count;
    return true;
}

/* Takes what a failed constructor returns, too: then the error is filled. */
bool pickle_push(struct pickle *pickle, struct pickle_node *node) {
    if (!node)
        return false;
    if (pickle->depth == pickle->stack_capacity) {
        size_t capacity = pickle->stack_capacity ? pickle->stack_capacity * 2 : 256;
        if (capacity > MAX_STACK)
            return pickle_over_limit(pickle, "values on its stack");
        struct pickle_node **stack = reallocarray(pickle->stack, capacity, sizeof *stack);
        if (!stack)
            return tc_fail_memory(pickle->error);
        pickle->stack = stack;
        pickle->stack_capacity = capacity;
    }
    pickle->stack[pickle->depth++] = node;
    return true;
}

size_t pickle_fence(const struct pickle *pickle) {
    return pickle->mark_count ? pickle->marks[pickle->mark_count - 1] : 0;
}

struct pickle_node *pickle_pop(struct pickle *pickle) {
    if (pickle->depth > pickle_fence(pickle))
        return pickle->stack[--pickle->depth];
    pickle_bad(pickle, "an opcode finds nothing on the stack");
    return NULL;
}

struct pickle_node *pickle_top(struct pickle *pickle) {
    struct pickle_node *node = pickle_pop(pickle);
    if (node)
        pickle->depth++;
    return node;
}

/* The values above the last mark, which goes. */
bool pickle_pop_mark(struct pickle *pickle, struct pickle_node ***items, size_t *count) {
    if (pickle->mark_count == 0)
        return pickle_bad(pickle, "an opcode finds no mark on the stack");
    size_t from = pickle->marks[--pickle->mark_count];
    *items = pickle->stack + from;
    *count = pickle->depth - from;
    pickle->depth = from;
    return true;
}

/* The memo: a list for keys in sequence, a hash for the others. */

struct memo_slot {
    uint64_t key; /* plus one; 0: free */
    struct pickle_node *node;
};

struct pickle_memo {
    struct pickle_node **dense;
    size_t dense_capacity;
    struct memo_slot *slots;
    size_t slot_count;
    size_t sparse;
    uint64_t count; /* of entries in all */
};

void pickle_memo_clear(struct pickle *pickle) {
    if (pickle->memo) {
        free(pickle->memo->dense);
        free(pickle->memo->slots);
    }
    free(pickle->memo);
    pickle->memo = NULL;
}

bool pickle_memo_new(struct pickle *pickle) {
    pickle_memo_clear(pickle);
    pickle->memo = calloc(1, sizeof *pickle->memo);
    return pickle->memo ? true : tc_fail_memory(pickle->error);
}

/* The place of a key, or of the free slot where it would go. The multiplier is
 * 2^64 divided by the golden ratio, which spreads keys in sequence. */
static struct memo_slot *memo_slot(const struct pickle_memo *memo, uint64_t key) {
    size_t mask = memo->slot_count - 1;
    size_t at = (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & mask;
    while (memo->slots[at].key && memo->slots[at].key != key + 1)
        at = (at + 1) & mask;
    return &memo->slots[at];
}

static bool memo_grow_slots(struct pickle *pickle) {
    struct pickle_memo *memo = pickle->memo;
    struct pickle_memo larger = {.slot_count = memo->slot_count ? memo->slot_count * 2 : 64};
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return tc_fail_memory(pickle->error);
    for (size_t i = 0; i < memo->slot_count; i++)
        if (memo->slots[i].key)
            *memo_slot(&larger, memo->slots[i].key - 1) = memo->slots[i];
    free(memo->slots);
    memo->slots = larger.slots;
    memo->slot_count = larger.slot_count;
    return true;
}

static bool memo_grow_dense(struct pickle *pickle, uint64_t key) {
    struct pickle_memo *memo = pickle->memo;
    size_t capacity = memo->dense_capacity ? memo->dense_capacity : 256;
    while (capacity <= key)
        capacity *= 2;
    struct pickle_node **dense = reallocarray(memo->dense, capacity, sizeof *dense);
    if (!dense)
        return tc_fail_memory(pickle->error);
    memset(dense + memo->dense_capacity, 0, (capacity - memo->dense_capacity) * sizeof *dense);
    memo->dense = dense;
    memo->dense_capacity = capacity;
    return true;
}

bool pickle_memo_put(struct pickle *pickle, uint64_t key) {
    struct pickle_node *node = pickle_top(pickle);
    struct pickle_memo *memo = pickle->memo;
    if (!node)
        return false;
    if (memo->count >= MAX_MEMO)
        return pickle_over_limit(pickle, "memo entries");
    /* A list no more than half empty. */
    if (key < 256 || key < 2 * memo->count) {
        if (key >= memo->dense_capacity && !memo_grow_dense(pickle, key))
            return false;
        /* It may be in the hash, from when it was far out of sequence. */
        bool known = memo->dense[key] || (memo->slot_count && memo_slot(memo, key)->key);
        memo->count += !known;
        memo->dense[key] = node;
        return true;
    }
    if (memo->sparse * 2 >= memo->slot_count && !memo_grow_slots(pickle))
        return false;
    struct memo_slot *slot = memo_slot(memo, key);
    memo->count += slot->key == 0;
    memo->sparse += slot->key == 0;
    *slot = (struct memo_slot){key + 1, node};
    return true;
}

bool pickle_memo_get(struct pickle *pickle, uint64_t key) {
    const struct pickle_memo *memo = pickle->memo;
    struct pickle_node *node = key < memo->dense_capacity ? memo->dense[key] : NULL;
    if (!node && memo->slot_count)
        node = memo_slot(memo, key)->node;
    if (!node && pickle_odd(pickle, "a memo entry that is not there"))
        node = pickle_node(pickle, PICKLE_NONE);
    return pickle_push(pickle, node);
}

uint64_t pickle_memo_count(const struct pickle *pickle) {
    return pickle->memo->count;
}
