/*
 * The bytes and the stack of the pickle machine, and its limits.
 *
 * A scan reads frames in two ways. Python's machine ignores frames if it is given all
 * bytes at once. If it is given a file, it reads a frame into a buffer, and bytes that
 * don't fit into the rest of the buffer are read from behind the frame: the rest is
 * lost. pickle_load runs both ways where they differ.
 */

#include "formats/pickle/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/memory.h"
#include "core/io/input.h"

#define WINDOW_BYTES ((size_t)1 << 16)
#define MAX_STEPS (UINT64_C(64) << 20)
#define MAX_STACK (UINT64_C(16) << 20)
#define MAX_ITEMS (UINT64_C(64) << 20)
/* How deep marks may be nested; in a scan only the stack's size limits that. */
#define MAX_MARKS 1000u
/* Tuples of more numbers are no shapes. */
#define MAX_RECENT_ITEMS 8u
/* How many bytes of a name a finding or message has. */
#define MAX_SHOWN 1024u

/* An error's offset is one in the file, so a pickle in memory has none. */
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

bool pickle_tolerate(struct pickle *pickle, const char *what) {
    if (pickle->mode != PICKLE_SCAN)
        return pickle_bad(pickle, "%s", what);
    if (!pickle->tolerated)
        pickle->tolerated = what;
    return true;
}

bool pickle_misuse(struct pickle *pickle, struct tc_text name, const char *what) {
    if (name.length > MAX_SHOWN)
        name.length = MAX_SHOWN;
    while (name.length && !tc_utf8_valid(name))
        name.length--; /* at most three: it was cut inside a character */
    if (pickle->on_misuse)
        return pickle->on_misuse(pickle->context, what, name, pickle->opcode_at, pickle->error);
    return pickle_tolerate(pickle, what);
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

/* Budgets */

static struct pickle_budget *budget(struct pickle *pickle) {
    return pickle->budget ? pickle->budget : &pickle->own_budget;
}

bool pickle_charge_items(struct pickle *pickle, uint64_t count) {
    budget(pickle)->items += count;
    return budget(pickle)->items <= MAX_ITEMS || pickle_over_limit(pickle, "items");
}

bool pickle_charge_step(struct pickle *pickle) {
    pickle->steps++;
    return ++budget(pickle)->steps <= MAX_STEPS || pickle_over_limit(pickle, "opcodes");
}

bool pickle_charge_text(struct pickle *pickle, uint64_t length) {
    budget(pickle)->text += length;
    if (budget(pickle)->text <= pickle->limits->pickle)
        return true;
    pickle_unsafe(pickle, "the pickle is longer than %llu bytes",
                  (unsigned long long)pickle->limits->pickle);
    pickle->error->code = "pickle-limit";
    return tc_error_hint(pickle->error, "raise the limit with --max-pickle if you trust this file");
}

bool pickle_charge_memory(struct pickle *pickle, uint64_t size) {
    if (!tc_arena_charge(pickle->arena, size, pickle->error))
        return false;
    pickle->charged += size;
    return true;
}

void pickle_release(struct pickle *pickle) {
    pickle_memo_release(pickle);
    free(pickle->window);
    free(pickle->stack);
    free(pickle->marks);
    /* The arena may have been released before, and then counts nothing. */
    if (pickle->arena)
        pickle->arena->used -=
            pickle->charged < pickle->arena->used ? pickle->charged : pickle->arena->used;
    *pickle = (struct pickle){0};
}

/* The stream */

/* Leaves the frame where `length` bytes don't fit into its rest. */
static bool cross_frame(struct pickle *pickle, uint64_t length) {
    if (pickle->at >= pickle->frame_end || length <= pickle->frame_end - pickle->at)
        return true;
    if (!pickle_tolerate(pickle, "an opcode crosses its frame's end"))
        return false;
    pickle->forked = true;
    if (pickle->skips)
        pickle->at = pickle->frame_end;
    pickle->frame_end = 0;
    return true;
}

static bool is_there(struct pickle *pickle, uint64_t length) {
    return length <= pickle->end - pickle->at || pickle_bad(pickle, "the pickle is cut short");
}

bool pickle_consume(struct pickle *pickle, uint64_t length, bool counts) {
    return is_there(pickle, length) && cross_frame(pickle, length) && is_there(pickle, length) &&
           (!counts || pickle_charge_text(pickle, length));
}

bool pickle_consume_across(struct pickle *pickle, uint64_t length) {
    if (pickle->mode != PICKLE_SCAN)
        return pickle_consume(pickle, length, false);
    return is_there(pickle, length);
}

static bool make_window(struct pickle *pickle) {
    if (!pickle_charge_memory(pickle, WINDOW_BYTES))
        return false;
    pickle->window = malloc(WINDOW_BYTES);
    return pickle->window || tc_fail_memory(pickle->error);
}

/* The next `length` bytes, at most WINDOW_BYTES, without taking them. */
static const unsigned char *look(struct pickle *pickle, size_t length) {
    if (pickle->memory)
        return pickle->memory + pickle->at;
    if (pickle->at < pickle->window_at ||
        pickle->at - pickle->window_at + length > pickle->window_size) {
        uint64_t left = pickle->end - pickle->at;
        size_t size = left < WINDOW_BYTES ? left : WINDOW_BYTES;
        if (!pickle->window && !make_window(pickle))
            return NULL;
        pickle->window_size = 0;
        if (!tc_input_read(pickle->input, pickle->at, pickle->window, size, pickle->error))
            return NULL;
        tc_memory_earn(size);
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

bool pickle_take_number(struct pickle *pickle, unsigned bytes, uint64_t *number) {
    const unsigned char *from = pickle_take(pickle, bytes);
    *number = from ? tc_load(from, bytes) : 0;
    return from != NULL;
}

static char *copy_bytes(struct pickle *pickle, uint64_t length) {
    char *copy = tc_arena_pack(pickle->arena, length + 1, 1, pickle->error);
    if (!copy || length == 0)
        return copy;
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

char *pickle_take_copy(struct pickle *pickle, uint64_t length, bool across) {
    bool ok = across ? pickle_consume_across(pickle, length) && pickle_charge_text(pickle, length)
                     : pickle_consume(pickle, length, true);
    return ok ? copy_bytes(pickle, length) : NULL;
}

/* Measures the bytes up to the next newline, or up to `end` where there is none. */
static bool measure_line(struct pickle *pickle, uint64_t end, uint64_t limit, uint64_t *length,
                         bool *found) {
    uint64_t start = pickle->at;
    *found = false;
    while (pickle->at < end && !*found) {
        const unsigned char *from = look(pickle, 1);
        if (!from)
            return false;
        uint64_t there = end - pickle->at;
        uint64_t seen =
            pickle->memory ? WINDOW_BYTES : pickle->window_size - (pickle->at - pickle->window_at);
        size_t size = there < seen ? there : seen;
        const unsigned char *newline = memchr(from, '\n', size);
        *found = newline != NULL;
        pickle->at += newline ? (uint64_t)(newline - from) : size;
        if (pickle->at - start > limit)
            return pickle_over_limit(pickle, "lines");
    }
    *length = pickle->at - start;
    pickle->at = start;
    return true;
}

/* In pickle.py the end of the file ends a line too, whose last character is then
 * dropped as if it were the newline. A line may also be missing, and is empty then: that
 * is followed only where the bytes are likely to be a pickle, since any text that starts
 * with a "c" would name something. */
static bool take_last_line(struct pickle *pickle, uint64_t length, struct tc_text *line) {
    bool missing = pickle->whole && pickle->opcode_at != pickle->start;
    if (pickle->mode != PICKLE_SCAN || (length == 0 && !missing))
        return pickle_bad(pickle, "the pickle is cut short");
    char *copy = pickle_tolerate(pickle, "a line ends with the file")
                     ? pickle_take_copy(pickle, length, true)
                     : NULL;
    *line = (struct tc_text){copy, length ? length - 1 : 0};
    if (copy)
        copy[line->length] = 0;
    return copy != NULL;
}

bool pickle_take_line(struct pickle *pickle, uint64_t limit, struct tc_text *line) {
    uint64_t length = 0;
    bool found = false;
    bool framed = pickle->at < pickle->frame_end;
    if (framed && !measure_line(pickle, pickle->frame_end, limit, &length, &found))
        return false;
    bool crosses = framed && !found;
    if (crosses && pickle->mode == PICKLE_SCAN && !cross_frame(pickle, UINT64_MAX))
        return false;
    if (!found && !measure_line(pickle, pickle->end, limit, &length, &found))
        return false;
    if (!found)
        return take_last_line(pickle, length, line);
    if (crosses && pickle->mode != PICKLE_SCAN)
        return pickle_bad(pickle, "a line crosses its frame's end");
    char *copy = pickle_take_copy(pickle, length, false);
    if (!copy || !pickle_take(pickle, 1))
        return false;
    *line = (struct tc_text){copy, length};
    return true;
}

bool pickle_take_word(struct pickle *pickle, struct tc_text *line) {
    bool scan = pickle->mode == PICKLE_SCAN;
    return pickle_take_line(pickle, scan ? pickle->limits->pickle : PICKLE_MAX_LINE, line);
}

/* Nodes, stack and marks */

struct pickle_node *pickle_node(struct pickle *pickle, enum pickle_kind kind) {
    struct pickle_node *node = tc_arena_pack(pickle->arena, pickle_node_bytes(kind),
                                             _Alignof(struct pickle_node), pickle->error);
    if (node) {
        node->kind = (uint8_t)kind;
        if (kind == PICKLE_GLOBAL)
            node->at = pickle->opcode_at;
    }
    return node;
}

void pickle_become(struct pickle_node *node, const struct pickle_node *other) {
    memcpy(node, other, pickle_node_bytes((enum pickle_kind)other->kind));
}

struct pickle_node *pickle_small(struct pickle *pickle, int64_t value) {
    struct pickle_node **recent = &pickle->integers[(uint64_t)value % PICKLE_RECENT];
    if (*recent && (*recent)->integer == value)
        /* cppcheck-suppress identicalInnerCondition ; it takes the pointer for the condition */
        return *recent;
    struct pickle_node *node = pickle_node(pickle, PICKLE_INT);
    if (node) {
        node->integer = value;
        *recent = node;
    }
    return node;
}

/* Where such a tuple would be among the recent ones; NULL: it has more than a few items, or
 * some that are no numbers. */
static struct pickle_node **recent_tuple(struct pickle *pickle, struct pickle_node *const *items,
                                         size_t count) {
    uint64_t sum = count;
    for (size_t i = 0; i < count; i++) {
        if (items[i]->kind != PICKLE_INT || count > MAX_RECENT_ITEMS)
            return NULL;
        sum = sum * 31 + (uint64_t)items[i]->integer;
    }
    return &pickle->sizes[sum % PICKLE_RECENT];
}

static bool same_numbers(const struct pickle_node *tuple, struct pickle_node *const *items,
                         size_t count) {
    bool same = tuple && tuple->count == count;
    for (size_t i = 0; same && i < count; i++)
        same = tuple->items[i]->integer == items[i]->integer;
    return same;
}

struct pickle_node *pickle_tuple(struct pickle *pickle, struct pickle_node **items, size_t count) {
    struct pickle_node **recent = recent_tuple(pickle, items, count);
    if (recent && same_numbers(*recent, items, count))
        return pickle_charge_items(pickle, count) ? *recent : NULL;
    struct pickle_node *node = pickle_node(pickle, PICKLE_TUPLE);
    if (!node || !pickle_add_all(pickle, node, items, count))
        return NULL;
    if (recent)
        *recent = node;
    return node;
}

void pickle_drop(struct pickle *pickle, const struct pickle_node *tuple,
                 struct tc_arena_place place) {
    struct tc_arena *arena = pickle->arena;
    struct pickle_node **recent = recent_tuple(pickle, tuple->items, tuple->count);
    if (recent && *recent == tuple)
        *recent = NULL;
    for (size_t i = 0; i < tuple->count; i++) {
        const struct pickle_node *item = tuple->items[i];
        uint64_t number = item->kind == PICKLE_INT ? (uint64_t)item->integer : 0;
        if (pickle->integers[number % PICKLE_RECENT] == item)
            pickle->integers[number % PICKLE_RECENT] = NULL;
    }
    tc_arena_rewind(arena, place);
}

/* Makes room for more items; where they come one by one, the room grows by half. */
static bool reserve(struct pickle *pickle, struct pickle_node *to, size_t more) {
    bool tuple = to->kind == PICKLE_TUPLE;
    if (more <= (tuple ? 0 : to->capacity - to->count))
        return true;
    uint64_t capacity = to->count + (uint64_t)to->count / 2 + 4;
    if (capacity < to->count + (uint64_t)more || to->count == 0 || tuple)
        capacity = to->count + (uint64_t)more;
    if (capacity > UINT32_MAX)
        return pickle_over_limit(pickle, "items in a list");
    struct pickle_node **items = tc_arena_pack(pickle->arena, capacity * sizeof *items,
                                               _Alignof(struct pickle_node *), pickle->error);
    if (!items)
        return false;
    if (to->count) {
        memcpy(items, to->items, to->count * sizeof *items);
        tc_arena_return(pickle->arena, to->items);
    }
    to->items = items;
    if (!tuple)
        to->capacity = capacity;
    return true;
}

bool pickle_add(struct pickle *pickle, struct pickle_node *to, struct pickle_node *item) {
    return pickle_add_all(pickle, to, &item, 1);
}

/* Whether a value may be a dict's key or a set's member: it has a hash in Python, and
 * pickle_settle can tell what it equals. */
static bool is_hashable(const struct pickle_node *node) {
    switch ((enum pickle_kind)node->kind) {
    case PICKLE_LIST:
    case PICKLE_DICT:
    case PICKLE_SET:
        return false;
    case PICKLE_BYTES:
        return !node->array;
    case PICKLE_TUPLE:
        return !node->unhashable;
    case PICKLE_OBJECT:
        return !pickle_is(node->callable, PICKLE_GLOBAL) ||
               node->callable->global != PICKLE_NAMESPACE;
    case PICKLE_CALL:
        return !pickle_calls(node, PICKLE_NUMPY_RECONSTRUCT) &&
               !pickle_calls(node, PICKLE_NUMPY_FROMBUFFER);
    default:
        return true;
    }
}

/* Checks items that are added, where they come to be keys or members: Python's machines
 * end where one is not hashable. */
static bool check_items(struct pickle *pickle, struct pickle_node *to, struct pickle_node **items,
                        size_t count) {
    size_t step = to->kind == PICKLE_DICT ? 2 : 1;
    if (to->kind == PICKLE_LIST)
        return !to->most || to->count + count < to->most || pickle->mode == PICKLE_SCAN ||
               pickle_bad(pickle, "a deque has more items than it may hold");
    bool hashable = true;
    for (size_t i = 0; i < count && hashable; i += step)
        hashable = is_hashable(items[i]);
    if (to->kind == PICKLE_TUPLE)
        to->unhashable |= !hashable;
    return hashable || to->kind == PICKLE_TUPLE || pickle->mode == PICKLE_SCAN ||
           pickle_bad(pickle, "a %s that can be none",
                      to->kind == PICKLE_DICT ? "dict's key" : "set's member");
}

bool pickle_add_all(struct pickle *pickle, struct pickle_node *to, struct pickle_node **items,
                    size_t count) {
    if (!pickle_charge_items(pickle, count) || !check_items(pickle, to, items, count) ||
        !reserve(pickle, to, count))
        return false;
    if (count)
        memcpy(to->items + to->count, items, count * sizeof *items);
    to->count += (uint32_t)count;
    return true;
}

/* None, True and False have one node each: nothing changes them, and some pickles
 * consist of little else. */
struct pickle_node *pickle_constant(struct pickle *pickle, enum pickle_kind kind, bool value) {
    struct pickle_node **constant = &pickle->constants[kind == PICKLE_BOOL ? 1 + value : 0];
    if (!*constant && (*constant = pickle_node(pickle, kind)))
        (*constant)->value = value;
    return *constant;
}

/* Makes room for one more element of an array, of at most `most`. */
static void *room(struct pickle *pickle, void *row, size_t count, size_t *capacity, size_t size,
                  size_t most, const char *what) {
    size_t larger = *capacity ? *capacity * 2 : 64;
    if (count >= most) {
        pickle_over_limit(pickle, what);
        return NULL;
    }
    if (count < *capacity)
        return row;
    if (!pickle_charge_memory(pickle, (larger - *capacity) * size))
        return NULL;
    void *moved = reallocarray(row, larger, size);
    if (!moved) {
        tc_fail_memory(pickle->error);
        return NULL;
    }
    *capacity = larger;
    return moved;
}

bool pickle_push(struct pickle *pickle, struct pickle_node *node) {
    struct pickle_node **stack =
        node ? room(pickle, pickle->stack, pickle->depth, &pickle->stack_capacity, sizeof *stack,
                    MAX_STACK, "values on its stack")
             : NULL;
    if (!stack)
        return false;
    pickle->stack = stack;
    pickle->stack[pickle->depth++] = node;
    return true;
}

bool pickle_push_mark(struct pickle *pickle) {
    size_t most = pickle->mode == PICKLE_SCAN ? MAX_STACK : MAX_MARKS;
    size_t *marks = room(pickle, pickle->marks, pickle->mark_count, &pickle->mark_capacity,
                         sizeof *marks, most, "nested marks");
    if (!marks)
        return false;
    pickle->marks = marks;
    pickle->marks[pickle->mark_count++] = pickle->depth;
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

bool pickle_pop_mark(struct pickle *pickle, struct pickle_node ***items, size_t *count) {
    if (pickle->mark_count == 0)
        return pickle_bad(pickle, "an opcode finds no mark on the stack");
    size_t from = pickle->marks[--pickle->mark_count];
    *count = pickle->depth - from;
    *items = *count ? pickle->stack + from : NULL;
    pickle->depth = from;
    return true;
}
