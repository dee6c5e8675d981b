/*
 * The opcodes. Each works on a stack of nodes, below whose last mark nothing is popped.
 * A pickle ends with STOP and one node on the stack. Protocol 4 adds frames, whose end
 * no opcode may cross.
 */

#include "formats/pickle/run.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/opcodes.h"

/* A string of more bytes stays in the file. */
#define INLINE_BYTES 4096u
#define MAX_LONG_BYTES 1024u

static bool push_kind(struct pickle *pickle, enum pickle_kind kind) {
    return pickle_push(pickle, pickle_node(pickle, kind));
}

/* Opcodes. The second argument is from the table below, so that one function can serve
 * several opcodes. */

static bool op_mark(struct pickle *pickle, int unused) {
    (void)unused;
    return pickle_push_mark(pickle);
}

static bool op_stop(struct pickle *pickle, int unused) {
    (void)unused;
    if (pickle->depth == 0)
        return pickle_bad(pickle, "the pickle ends with an empty stack");
    if (pickle->mark_count && !pickle_tolerate(pickle, "a mark is left at the pickle's end"))
        return false;
    if (pickle->at < pickle->frame_end) {
        pickle->also_at = pickle->frame_end;
        if (!pickle_tolerate(pickle, "the pickle ends before its frame"))
            return false;
    }
    if (pickle->depth > 1 && !pickle_tolerate(pickle, "values are left on the stack at the end"))
        return false;
    pickle->stopped = pickle_top(pickle) != NULL;
    return pickle->stopped;
}

static bool op_pop(struct pickle *pickle, int unused) {
    (void)unused;
    /* A mark on top of the stack is popped instead, as in Python's machine. */
    if (pickle->mark_count && pickle->depth == pickle_fence(pickle)) {
        pickle->mark_count--;
        return true;
    }
    return pickle_pop(pickle) != NULL;
}

static bool op_pop_mark(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node **items = NULL;
    size_t count = 0;
    return pickle_pop_mark(pickle, &items, &count);
}

static bool op_dup(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *node = pickle_top(pickle);
    return node && pickle_push(pickle, node);
}

static bool op_empty(struct pickle *pickle, int kind) {
    if (kind == PICKLE_TUPLE)
        return pickle_push(pickle, pickle_tuple(pickle, NULL, 0));
    return push_kind(pickle, (enum pickle_kind)kind);
}

static bool op_none(struct pickle *pickle, int unused) {
    (void)unused;
    return pickle_push(pickle, pickle_constant(pickle, PICKLE_NONE, false));
}

static bool op_bool(struct pickle *pickle, int value) {
    return pickle_push(pickle, pickle_constant(pickle, PICKLE_BOOL, value != 0));
}

static bool push_integer(struct pickle *pickle, int64_t value) {
    return pickle_push(pickle, pickle_small(pickle, value));
}

/* BININT is signed, BININT1 and BININT2 are not. */
static bool op_integer(struct pickle *pickle, int bytes) {
    uint64_t value;
    if (!pickle_take_number(pickle, (unsigned)bytes, &value))
        return false;
    return push_integer(pickle, bytes == 4 ? (int32_t)(uint32_t)value : (int64_t)value);
}

/* Passes over a number that is too long to be of use here; its value is "?". */
static bool skip_long(struct pickle *pickle, uint64_t length) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_LONG);
    if (!node || !pickle_consume(pickle, length, true))
        return false;
    pickle->at += length;
    node->text = "?";
    node->length = 1;
    return pickle_push(pickle, node);
}

static bool op_long(struct pickle *pickle, int bytes) {
    uint64_t length;
    if (!pickle_take_number(pickle, (unsigned)bytes, &length))
        return false;
    if (bytes == 4 && length > INT32_MAX)
        return pickle_bad(pickle, "a number of negative length");
    if (length > pickle->end - pickle->at)
        return pickle_bad(pickle, "the pickle is cut short");
    if (length > MAX_LONG_BYTES && pickle->mode != PICKLE_SCAN)
        return pickle_over_limit(pickle, "digits in a number");
    if (length > MAX_LONG_BYTES)
        return skip_long(pickle, length);
    const unsigned char *digits = pickle_take(pickle, length);
    return digits && pickle_push(pickle, pickle_long(pickle, digits, length));
}

static bool op_text_number(struct pickle *pickle, int kind) {
    struct tc_text line;
    if (!pickle_take_word(pickle, &line))
        return false;
    return pickle_push(pickle, kind == OP_FLOAT ? pickle_real(pickle, line)
                                                : pickle_integer(pickle, line, kind == OP_INT));
}

static bool op_float(struct pickle *pickle, int unused) {
    (void)unused;
    const unsigned char *bytes = pickle_take(pickle, 8);
    struct pickle_node *node = bytes ? pickle_node(pickle, PICKLE_FLOAT) : NULL;
    uint64_t bits = 0;
    for (int i = 0; bytes && i < 8; i++)
        bits = bits << 8 | bytes[i];
    if (node)
        memcpy(&node->real, &bits, sizeof bits);
    return pickle_push(pickle, node);
}

static bool take_length(struct pickle *pickle, int bytes, uint64_t *length) {
    if (!pickle_take_number(pickle, (unsigned)bytes, length))
        return false;
    return *length <= INT64_MAX || pickle_bad(pickle, "a length beyond 63 bits");
}

static bool op_unicode(struct pickle *pickle, int bytes) {
    uint64_t length;
    if (!take_length(pickle, bytes, &length))
        return false;
    char *copy = pickle_take_copy(pickle, length, false);
    return copy && pickle_push(pickle, pickle_unicode(pickle, (struct tc_text){copy, length}));
}

/* A node for the next bytes; long ones are not copied. */
static struct pickle_node *take_bytes(struct pickle *pickle, uint64_t length, bool across) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_BYTES);
    if (!node)
        return NULL;
    node->length = length;
    node->raw = true;
    if (length <= INLINE_BYTES) {
        node->text = pickle_take_copy(pickle, length, across);
        return node->text ? node : NULL;
    }
    if (!(across ? pickle_consume_across(pickle, length) : pickle_consume(pickle, length, false)))
        return NULL;
    node->text = pickle->memory ? (const char *)pickle->memory + pickle->at : NULL;
    node->offset = pickle->at;
    pickle->at += length;
    return node;
}

static bool op_bytes(struct pickle *pickle, int bytes) {
    uint64_t length;
    return take_length(pickle, bytes, &length) &&
           pickle_push(pickle, take_bytes(pickle, length, true));
}

static bool op_bytearray(struct pickle *pickle, int bytes) {
    uint64_t length;
    struct pickle_node *node =
        take_length(pickle, bytes, &length) ? take_bytes(pickle, length, true) : NULL;
    if (node)
        node->array = true;
    return pickle_push(pickle, node);
}

/* A string of Python 2 is text if it is valid UTF-8. Its length is signed in pickle.py
 * and unsigned in Python's C machine. */
static bool op_string(struct pickle *pickle, int bytes) {
    uint64_t length;
    if (!take_length(pickle, bytes, &length))
        return false;
    if (bytes == 4 && length > INT32_MAX && pickle->mode != PICKLE_SCAN)
        return pickle_bad(pickle, "a string of negative length");
    struct pickle_node *node = take_bytes(pickle, length, false);
    if (node && node->text && node->length <= INLINE_BYTES && tc_utf8_valid(pickle_text(node)))
        node->kind = PICKLE_TEXT;
    return pickle_push(pickle, node);
}

static bool op_text_string(struct pickle *pickle, int kind) {
    struct tc_text line;
    if (!pickle_take_line(pickle, pickle->limits->pickle, &line))
        return false;
    return pickle_push(pickle, kind == OP_STRING ? pickle_quoted(pickle, line)
                                                 : pickle_escaped(pickle, line));
}

static bool op_collect(struct pickle *pickle, int kind) {
    struct pickle_node **items = NULL;
    size_t count = 0;
    if (!pickle_pop_mark(pickle, &items, &count))
        return false;
    if (kind == PICKLE_TUPLE)
        return pickle_push(pickle, pickle_tuple(pickle, items, count));
    struct pickle_node *node = pickle_node(pickle, (enum pickle_kind)kind);
    if (!node)
        return false;
    if (kind == PICKLE_DICT && count % 2)
        return pickle_bad(pickle, "a dict has a key without a value");
    node->value = kind == PICKLE_SET; /* only FROZENSET collects a set */
    return pickle_add_all(pickle, node, items, count) && pickle_push(pickle, node);
}

static bool op_tuple(struct pickle *pickle, int count) {
    struct pickle_node *items[3] = {NULL};
    for (int i = count; i > 0; i--)
        if (!(items[i - 1] = pickle_pop(pickle)))
            return false;
    return pickle_push(pickle, pickle_tuple(pickle, items, (size_t)count));
}

static bool op_put(struct pickle *pickle, int bytes) {
    uint64_t key;
    return pickle_take_number(pickle, (unsigned)bytes, &key) && pickle_memo_put(pickle, key);
}

static bool op_get(struct pickle *pickle, int bytes) {
    uint64_t key;
    return pickle_take_number(pickle, (unsigned)bytes, &key) && pickle_memo_get(pickle, key);
}

/* A key that needs more than 64 bits is valid in pickle.py. Such a key is hashed into
 * the upper half of all keys. */
static bool scan_key(const struct pickle *pickle, struct tc_text line, uint64_t *key) {
    bool negative;
    bool large;
    if (!pickle_read_integer(line, 10, false, &negative, key, &large) || (negative && *key))
        return false;
    if (large)
        *key = pickle_memo_hash(pickle, line) | UINT64_C(1) << 63;
    return true;
}

static bool take_text_key(struct pickle *pickle, uint64_t *key) {
    struct tc_text line;
    *key = 0;
    if (!pickle_take_word(pickle, &line))
        return false;
    bool ok = line.length > 0 && line.length < 11;
    for (size_t i = 0; i < line.length && ok; i++) {
        ok = line.bytes[i] >= '0' && line.bytes[i] <= '9';
        *key = *key * 10 + (uint64_t)(line.bytes[i] - '0');
    }
    if (!ok && pickle->mode == PICKLE_SCAN)
        ok = scan_key(pickle, line, key);
    return ok || pickle_bad(pickle, "a memo entry's key is no number");
}

static bool op_text_put(struct pickle *pickle, int unused) {
    (void)unused;
    uint64_t key;
    return take_text_key(pickle, &key) && pickle_memo_put(pickle, key);
}

static bool op_text_get(struct pickle *pickle, int unused) {
    (void)unused;
    uint64_t key;
    return take_text_key(pickle, &key) && pickle_memo_get(pickle, key);
}

static bool op_memoize(struct pickle *pickle, int unused) {
    (void)unused;
    return pickle_memo_put(pickle, pickle_memo_count(pickle));
}

static bool op_buffer(struct pickle *pickle, int opcode) {
    if (pickle->mode == PICKLE_SCAN)
        return opcode == OP_NEXT_BUFFER ? push_kind(pickle, PICKLE_BYTES)
                                        : pickle_top(pickle) != NULL;
    if (opcode == OP_READONLY_BUFFER && !pickle_top(pickle))
        return false;
    return pickle_unsupported(pickle, "pickle-buffer",
                              "the pickle has buffers that are kept outside of it");
}

static bool op_proto(struct pickle *pickle, int unused) {
    (void)unused;
    uint64_t version;
    if (!pickle_take_number(pickle, 1, &version))
        return false;
    if (pickle->opcode_at != pickle->start &&
        !pickle_tolerate(pickle, "a pickle's protocol is not at its start"))
        return false;
    if (version <= PICKLE_PROTOCOL)
        return true;
    if (pickle->mode == PICKLE_SCAN)
        return pickle_tolerate(pickle, "a pickle's protocol is not known");
    return pickle_unsupported(pickle, "pickle-protocol",
                              "pickle protocol %llu is not known (0 to 5 are)",
                              (unsigned long long)version);
}

static bool op_frame(struct pickle *pickle, int unused) {
    (void)unused;
    uint64_t length;
    if (!take_length(pickle, 8, &length))
        return false;
    if (pickle->frame_end && pickle->at < pickle->frame_end &&
        !pickle_tolerate(pickle, "a frame inside a frame"))
        return false;
    /* A frame inside of another is ignored: Python has it in its buffer already. */
    if (pickle->at < pickle->frame_end && length <= pickle->frame_end - pickle->at)
        return true;
    /* A frame that is longer than the rest of the one around it is read from behind
     * that one, where `skips`. */
    pickle->forked |= pickle->at < pickle->frame_end;
    if (pickle->skips && pickle->at < pickle->frame_end)
        pickle->at = pickle->frame_end;
    bool fits = length <= pickle->end - pickle->at;
    pickle->frame_end = fits ? pickle->at + length : 0;
    return fits || pickle_tolerate(pickle, "a frame passes the pickle's end");
}

static const struct opcode {
    bool (*run)(struct pickle *pickle, int argument);
    int argument;
} opcodes[256] = {
    [OP_MARK] = {op_mark, 0},
    [OP_STOP] = {op_stop, 0},
    [OP_POP] = {op_pop, 0},
    [OP_POP_MARK] = {op_pop_mark, 0},
    [OP_DUP] = {op_dup, 0},
    [OP_FLOAT] = {op_text_number, OP_FLOAT},
    [OP_BINFLOAT] = {op_float, 0},
    [OP_INT] = {op_text_number, OP_INT},
    [OP_LONG] = {op_text_number, OP_LONG},
    [OP_BININT] = {op_integer, 4},
    [OP_BININT1] = {op_integer, 1},
    [OP_BININT2] = {op_integer, 2},
    [OP_LONG1] = {op_long, 1},
    [OP_LONG4] = {op_long, 4},
    [OP_NONE] = {op_none, 0},
    [OP_NEWTRUE] = {op_bool, 1},
    [OP_NEWFALSE] = {op_bool, 0},
    [OP_STRING] = {op_text_string, OP_STRING},
    [OP_UNICODE] = {op_text_string, OP_UNICODE},
    [OP_BINSTRING] = {op_string, 4},
    [OP_SHORT_BINSTRING] = {op_string, 1},
    [OP_BINUNICODE] = {op_unicode, 4},
    [OP_SHORT_BINUNICODE] = {op_unicode, 1},
    [OP_BINUNICODE8] = {op_unicode, 8},
    [OP_BINBYTES] = {op_bytes, 4},
    [OP_SHORT_BINBYTES] = {op_bytes, 1},
    [OP_BINBYTES8] = {op_bytes, 8},
    [OP_BYTEARRAY8] = {op_bytearray, 8},
    [OP_EMPTY_LIST] = {op_empty, PICKLE_LIST},
    [OP_EMPTY_TUPLE] = {op_empty, PICKLE_TUPLE},
    [OP_EMPTY_DICT] = {op_empty, PICKLE_DICT},
    [OP_EMPTY_SET] = {op_empty, PICKLE_SET},
    [OP_LIST] = {op_collect, PICKLE_LIST},
    [OP_TUPLE] = {op_collect, PICKLE_TUPLE},
    [OP_DICT] = {op_collect, PICKLE_DICT},
    [OP_FROZENSET] = {op_collect, PICKLE_SET},
    [OP_TUPLE1] = {op_tuple, 1},
    [OP_TUPLE2] = {op_tuple, 2},
    [OP_TUPLE3] = {op_tuple, 3},
    [OP_APPEND] = {pickle_op_append, 0},
    [OP_SETITEM] = {pickle_op_setitem, 0},
    [OP_APPENDS] = {pickle_op_extend, PICKLE_LIST},
    [OP_SETITEMS] = {pickle_op_extend, PICKLE_DICT},
    [OP_ADDITEMS] = {pickle_op_extend, PICKLE_SET},
    [OP_PUT] = {op_text_put, 0},
    [OP_BINPUT] = {op_put, 1},
    [OP_LONG_BINPUT] = {op_put, 4},
    [OP_GET] = {op_text_get, 0},
    [OP_BINGET] = {op_get, 1},
    [OP_LONG_BINGET] = {op_get, 4},
    [OP_MEMOIZE] = {op_memoize, 0},
    [OP_GLOBAL] = {pickle_op_global, 0},
    [OP_STACK_GLOBAL] = {pickle_op_stack_global, 0},
    [OP_EXT1] = {pickle_op_extension, 1},
    [OP_EXT2] = {pickle_op_extension, 2},
    [OP_EXT4] = {pickle_op_extension, 4},
    [OP_REDUCE] = {pickle_op_reduce, OP_REDUCE},
    [OP_NEWOBJ] = {pickle_op_reduce, OP_NEWOBJ},
    [OP_NEWOBJ_EX] = {pickle_op_newobj_ex, 0},
    [OP_INST] = {pickle_op_instance, OP_INST},
    [OP_OBJ] = {pickle_op_instance, OP_OBJ},
    [OP_BUILD] = {pickle_op_build, 0},
    [OP_PERSID] = {pickle_op_persistent, OP_PERSID},
    [OP_BINPERSID] = {pickle_op_persistent, OP_BINPERSID},
    [OP_PROTO] = {op_proto, 0},
    [OP_FRAME] = {op_frame, 0},
    [OP_NEXT_BUFFER] = {op_buffer, OP_NEXT_BUFFER},
    [OP_READONLY_BUFFER] = {op_buffer, OP_READONLY_BUFFER},
};

/* Follows the opcodes that make a storage's id: a mark, then texts, numbers and what the memo has,
 * then TUPLE, and at once BINPERSID. Nothing but this tuple refers to what they made. */
static void follow_id(struct pickle *pickle, unsigned char opcode) {
    switch (opcode) {
    case OP_MARK:
        pickle->making = PICKLE_ID_ITEMS;
        pickle->before_id = tc_arena_here(pickle->arena);
        return;
    case OP_BINUNICODE:
    case OP_SHORT_BINUNICODE:
    case OP_BININT:
    case OP_BININT1:
    case OP_BININT2:
    case OP_BINGET:
    case OP_LONG_BINGET:
        pickle->making = pickle->making == PICKLE_ID_ITEMS ? PICKLE_ID_ITEMS : PICKLE_NO_ID;
        return;
    case OP_TUPLE:
        pickle->making = pickle->making == PICKLE_ID_ITEMS ? PICKLE_WHOLE_ID : PICKLE_NO_ID;
        return;
    case OP_BINPERSID:
        return;
    default:
        pickle->making = PICKLE_NO_ID;
    }
}

static bool step(struct pickle *pickle) {
    pickle->opcode_at = pickle->at;
    if (!pickle_charge_step(pickle))
        return false;
    const unsigned char *byte = pickle_take(pickle, 1);
    if (!byte)
        return false;
    const struct opcode *opcode = &opcodes[*byte];
    if (!opcode->run)
        return pickle_bad(pickle, "no such opcode in a pickle: 0x%02x", *byte);
    follow_id(pickle, *byte);
    return opcode->run(pickle, opcode->argument);
}

/* Runs a pickle from its first opcode to STOP. */
static bool run(struct pickle *pickle, uint64_t start, bool skips, struct pickle_node **result) {
    if (!pickle_memo_new(pickle))
        return false;
    pickle->at = pickle->start = start;
    pickle->first_step = pickle->steps;
    pickle->depth = pickle->mark_count = 0;
    pickle->frame_end = 0;
    pickle->skips = skips;
    pickle->stopped = false;
    pickle->making = PICKLE_NO_ID;
    while (!pickle->stopped)
        if (!step(pickle))
            return false;
    *result = pickle->stack[pickle->depth - 1];
    return true;
}

/* Runs the same bytes again in another way in which some loader reads them. Findings of
 * both runs are reported; the result is that of the run that succeeds, of the first if
 * both do. */
static bool run_again(struct pickle *pickle, uint64_t start, bool ok, struct pickle_node **result) {
    struct tc_error *first = pickle->error;
    struct tc_error *second = calloc(1, sizeof *second);
    struct pickle_node *other = NULL;
    uint64_t behind = pickle->at;
    if (!second)
        return tc_fail_memory(first);
    pickle->error = second;
    bool also = run(pickle, start, !pickle->plain, &other);
    pickle->error = first;
    if (!ok && (also || second->class == TC_IO)) {
        *first = *second;
        *result = other;
        ok = also;
    } else {
        pickle->also_at = also && pickle->at != behind ? pickle->at : pickle->also_at;
        pickle->at = behind;
    }
    free(second);
    return ok;
}

/* After so many valid opcodes, bytes are not just numbers. */
#define MANY_STEPS 64u

/* Loaders other than joblib take the bytes of joblib's arrays for opcodes. Numbers are
 * rarely valid opcodes, so this way of reading is first tried without reporting, and
 * counts only where it reaches STOP, a name or many opcodes. */
static bool run_plain(struct pickle *pickle, uint64_t start, bool ok, struct pickle_node **result) {
    struct pickle saved = *pickle;
    struct tc_error *ignored = calloc(1, sizeof *ignored);
    struct pickle_node *other;
    if (!ignored)
        return tc_fail_memory(pickle->error);
    pickle->on_global = NULL;
    pickle->on_call = NULL;
    pickle->on_misuse = NULL;
    pickle->on_build = NULL;
    pickle->error = ignored;
    pickle->plain = true;
    pickle->arrays = false;
    bool reached = run(pickle, start, false, &other) || pickle->names > pickle->array_names;
    reached |= pickle->steps - pickle->first_step > saved.array_steps + MANY_STEPS;
    free(ignored);
    pickle->on_global = saved.on_global;
    pickle->on_call = saved.on_call;
    pickle->on_misuse = saved.on_misuse;
    pickle->on_build = saved.on_build;
    pickle->named = saved.named;
    pickle->names = saved.names;
    pickle->tolerated = saved.tolerated;
    pickle->error = saved.error;
    pickle->at = saved.at;
    if (reached)
        ok = run_again(pickle, start, ok, result);
    pickle->plain = false;
    return ok;
}

bool pickle_load(struct pickle *pickle, struct pickle_node **result) {
    uint64_t start = pickle->at;
    pickle->forked = pickle->arrays = pickle->plain = false;
    pickle->also_at = 0;
    bool ok = run(pickle, start, false, result);
    if (pickle->mode != PICKLE_SCAN || (!ok && pickle->error->class != TC_INVALID))
        return ok;
    bool arrays = pickle->arrays;
    if (pickle->forked)
        ok = run_again(pickle, start, ok, result);
    return arrays ? run_plain(pickle, start, ok, result) : ok;
}
