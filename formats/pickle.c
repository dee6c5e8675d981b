/*
 * The opcodes. Each works on a stack of nodes, fenced by marks; a pickle ends
 * with STOP and one node on the stack. Protocol 4 adds frames, which no opcode
 * may cross.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/pickle_machine.h"

/* Bytes longer than this stay in the file. */
#define INLINE_BYTES 4096u
#define MAX_STEPS (UINT64_C(64) << 20)
#define MAX_MARKS 1000u
#define MAX_NAME_LINE 4096u
#define MAX_LONG_BYTES 1024u

static bool push_kind(struct pickle *pickle, enum pickle_kind kind) {
    return pickle_push(pickle, pickle_node(pickle, kind));
}

/* Opcodes. The argument is the opcode's own, by which one function serves
 * several. */

static bool op_mark(struct pickle *pickle, int unused) {
    (void)unused;
    if (pickle->mark_count == MAX_MARKS)
        return pickle_over_limit(pickle, "nested marks");
    pickle->marks[pickle->mark_count++] = pickle->depth;
    return true;
}

static bool op_stop(struct pickle *pickle, int unused) {
    (void)unused;
    if (pickle->mark_count && !pickle_odd(pickle, "a mark is left at the pickle's end"))
        return false;
    if (pickle->frame_end && pickle->at < pickle->frame_end &&
        !pickle_odd(pickle, "the pickle ends before its frame"))
        return false;
    pickle->stopped = true;
    if (pickle->depth == 0)
        return pickle_bad(pickle, "the pickle ends with an empty stack");
    return pickle->depth == 1 || pickle_odd(pickle, "values are left on the stack at the end");
}

static bool op_pop(struct pickle *pickle, int unused) {
    (void)unused;
    /* Where a mark is on top it goes, as in Python's own machine. */
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
    return push_kind(pickle, (enum pickle_kind)kind);
}

static bool op_bool(struct pickle *pickle, int value) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_BOOL);
    if (node)
        node->value = (uint8_t)value;
    return pickle_push(pickle, node);
}

static bool push_integer(struct pickle *pickle, int64_t value) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_INT);
    if (node)
        node->integer = value;
    return pickle_push(pickle, node);
}

/* BININT is signed, BININT1 and BININT2 are not. */
static bool op_integer(struct pickle *pickle, int bytes) {
    uint64_t value;
    if (!pickle_take_number(pickle, (unsigned)bytes, &value))
        return false;
    return push_integer(pickle, bytes == 4 ? (int32_t)(uint32_t)value : (int64_t)value);
}

static bool op_long(struct pickle *pickle, int bytes) {
    uint64_t length;
    if (!pickle_take_number(pickle, (unsigned)bytes, &length))
        return false;
    if (bytes == 4 && length > INT32_MAX)
        return pickle_bad(pickle, "a number of negative length");
    if (length > pickle->end - pickle->at)
        return pickle_bad(pickle, "the pickle is cut short");
    if (length > MAX_LONG_BYTES)
        return pickle_over_limit(pickle, "digits in a number");
    const unsigned char *digits = pickle_take(pickle, length);
    return digits && pickle_push(pickle, pickle_long(pickle, digits, length));
}

static bool op_text_number(struct pickle *pickle, int kind) {
    struct tc_text line;
    if (!pickle_take_line(pickle, MAX_NAME_LINE, &line))
        return false;
    return pickle_push(pickle, kind == 'F' ? pickle_real(pickle, line)
                                           : pickle_integer(pickle, line, kind == 'I'));
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
    char *copy = pickle_take_copy(pickle, length);
    struct pickle_node *node = copy ? pickle_node(pickle, PICKLE_TEXT) : NULL;
    if (!node)
        return false;
    node->text = copy;
    node->length = length;
    if (!tc_utf8_valid(pickle_text(node)))
        return pickle_bad(pickle, "a string is not valid UTF-8");
    return pickle_push(pickle, node);
}

/* Bytes; long ones stay where they are. A Python 2 string is text where it can
 * be. */
static bool push_bytes(struct pickle *pickle, uint64_t length, bool string) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_BYTES);
    if (!node)
        return false;
    node->length = length;
    node->raw = true;
    if (length > INLINE_BYTES) {
        if (!pickle_consume(pickle, length, false))
            return false;
        node->text = pickle->memory ? (const char *)pickle->memory + pickle->at : NULL;
        node->offset = pickle->at;
        pickle->at += length;
        return pickle_push(pickle, node);
    }
    node->text = pickle_take_copy(pickle, length);
    if (!node->text)
        return false;
    if (string && tc_utf8_valid(pickle_text(node)))
        node->kind = PICKLE_TEXT;
    return pickle_push(pickle, node);
}

static bool op_bytes(struct pickle *pickle, int bytes) {
    uint64_t length;
    return take_length(pickle, bytes, &length) && push_bytes(pickle, length, false);
}

static bool op_string(struct pickle *pickle, int bytes) {
    uint64_t length;
    if (!take_length(pickle, bytes, &length))
        return false;
    if (bytes == 4 && length > INT32_MAX)
        return pickle_bad(pickle, "a string of negative length");
    return push_bytes(pickle, length, true);
}

static bool op_text_string(struct pickle *pickle, int kind) {
    struct tc_text line;
    if (!pickle_take_line(pickle, pickle->limits->pickle, &line))
        return false;
    return pickle_push(pickle,
                       kind == 'S' ? pickle_quoted(pickle, line) : pickle_escaped(pickle, line));
}

static bool op_collect(struct pickle *pickle, int kind) {
    struct pickle_node **items = NULL;
    size_t count = 0;
    struct pickle_node *node = pickle_node(pickle, (enum pickle_kind)kind);
    if (!node || !pickle_pop_mark(pickle, &items, &count))
        return false;
    if (kind == PICKLE_DICT && count % 2)
        return pickle_bad(pickle, "a dict has a key without a value");
    return pickle_add_all(pickle, node, items, count) && pickle_push(pickle, node);
}

static bool op_tuple(struct pickle *pickle, int count) {
    struct pickle_node *items[3] = {NULL};
    struct pickle_node *node = pickle_node(pickle, PICKLE_TUPLE);
    for (int i = count; i > 0; i--)
        if (!(items[i - 1] = pickle_pop(pickle)))
            return false;
    for (int i = 0; node && i < count; i++)
        if (!pickle_add(pickle, node, items[i]))
            return false;
    return pickle_push(pickle, node);
}

/* What takes items of this kind: the container itself, or what an object
 * holds beside its state. NULL where the types don't fit. */
static struct pickle_node *container(struct pickle *pickle, struct pickle_node *node,
                                     enum pickle_kind kind) {
    if (node->kind == kind)
        return node;
    bool object = node->kind == PICKLE_OBJECT && pickle->mode != PICKLE_STRICT;
    if (object && !node->content)
        node->content = pickle_node(pickle, kind);
    if (object && pickle_is(node->content, kind))
        return node->content;
    pickle_bad(pickle, "items are put into a value that is no %s",
               kind == PICKLE_LIST   ? "list"
               : kind == PICKLE_DICT ? "dict"
                                     : "set");
    return NULL;
}

static bool op_append(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *item = pickle_pop(pickle);
    struct pickle_node *node = item ? pickle_top(pickle) : NULL;
    struct pickle_node *list = node ? container(pickle, node, PICKLE_LIST) : NULL;
    return list && pickle_add(pickle, list, item);
}

static bool op_setitem(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *value = pickle_pop(pickle);
    struct pickle_node *key = value ? pickle_pop(pickle) : NULL;
    struct pickle_node *node = key ? pickle_top(pickle) : NULL;
    struct pickle_node *dict = node ? container(pickle, node, PICKLE_DICT) : NULL;
    return dict && pickle_add(pickle, dict, key) && pickle_add(pickle, dict, value);
}

/* APPENDS, SETITEMS, ADDITEMS. */
static bool op_extend(struct pickle *pickle, int kind) {
    struct pickle_node **items = NULL;
    size_t count = 0;
    if (!pickle_pop_mark(pickle, &items, &count))
        return false;
    struct pickle_node *node = pickle_top(pickle);
    struct pickle_node *to = node ? container(pickle, node, (enum pickle_kind)kind) : NULL;
    if (!to)
        return false;
    if (kind == PICKLE_DICT && count % 2)
        return pickle_bad(pickle, "a dict has a key without a value");
    return pickle_add_all(pickle, to, items, count);
}

static bool op_put(struct pickle *pickle, int bytes) {
    uint64_t key;
    return pickle_take_number(pickle, (unsigned)bytes, &key) && pickle_memo_put(pickle, key);
}

static bool op_get(struct pickle *pickle, int bytes) {
    uint64_t key;
    return pickle_take_number(pickle, (unsigned)bytes, &key) && pickle_memo_get(pickle, key);
}

static bool take_text_key(struct pickle *pickle, uint64_t *key) {
    struct tc_text line;
    *key = 0;
    if (!pickle_take_line(pickle, MAX_NAME_LINE, &line))
        return false;
    bool ok = line.length > 0 && line.length < 11;
    for (size_t i = 0; i < line.length && ok; i++) {
        ok = line.bytes[i] >= '0' && line.bytes[i] <= '9';
        *key = *key * 10 + (uint64_t)(line.bytes[i] - '0');
    }
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

/* Globals, objects and what would be calls */

static struct pickle_node *take_global(struct pickle *pickle) {
    struct tc_text module;
    struct tc_text name;
    if (!pickle_take_line(pickle, MAX_NAME_LINE, &module) ||
        !pickle_take_line(pickle, MAX_NAME_LINE, &name))
        return NULL;
    if (!tc_utf8_valid(module) || !tc_utf8_valid(name)) {
        pickle_bad(pickle, "a global's name is not valid UTF-8");
        return NULL;
    }
    return pickle_find_global(pickle, module, name);
}

static bool op_global(struct pickle *pickle, int unused) {
    (void)unused;
    return pickle_push(pickle, take_global(pickle));
}

static bool op_stack_global(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *name = pickle_pop(pickle);
    struct pickle_node *module = name ? pickle_pop(pickle) : NULL;
    if (!module)
        return false;
    if (module->kind == PICKLE_TEXT && name->kind == PICKLE_TEXT)
        return pickle_push(pickle,
                           pickle_find_global(pickle, pickle_text(module), pickle_text(name)));
    /* A name that only running the pickle would tell. */
    if (pickle->mode == PICKLE_SCAN)
        return pickle_push(pickle, pickle_find_global(pickle, TC_TEXT("?"), TC_TEXT("?")));
    return pickle_bad(pickle, "a global's name is no string");
}

/* EXT1, 2, 4: a name from a registry that only the program that wrote it has. */
static bool op_extension(struct pickle *pickle, int bytes) {
    uint64_t code;
    if (!pickle_take_number(pickle, (unsigned)bytes, &code))
        return false;
    if (pickle->mode != PICKLE_SCAN)
        return pickle_unsafe(pickle, "the pickle names extension %llu, which may be anything",
                             (unsigned long long)code);
    return pickle_push(pickle,
                       pickle_find_global(pickle, TC_TEXT("copyreg"), TC_TEXT("extension")));
}

static bool call(struct pickle *pickle, struct pickle_node *callable,
                 struct pickle_node *arguments) {
    if (pickle->on_call &&
        !pickle->on_call(pickle->context, callable, arguments, pickle->opcode_at, pickle->error))
        return false;
    if (callable->kind != PICKLE_GLOBAL && pickle->mode != PICKLE_SCAN)
        return pickle_unsafe(pickle, "the pickle calls something that is no known function");
    if (arguments->kind != PICKLE_TUPLE && pickle->mode != PICKLE_SCAN)
        return pickle_bad(pickle, "a call's arguments are no tuple");
    return pickle_push(pickle, pickle_call(pickle, callable, arguments));
}

/* What NEWOBJ may make: containers, and TorchScript's objects, which REDUCE
 * may not. */
static bool is_class(const struct pickle_node *node) {
    switch ((enum pickle_global)node->global) {
    case PICKLE_ORDERED_DICT:
    case PICKLE_DEFAULT_DICT:
    case PICKLE_SET_CLASS:
    case PICKLE_LIST_CLASS:
    case PICKLE_BYTEARRAY:
    case PICKLE_SIZE:
    case PICKLE_SCRIPT_CLASS:
        return true;
    default:
        return false;
    }
}

static bool op_reduce(struct pickle *pickle, int opcode) {
    struct pickle_node *arguments = pickle_pop(pickle);
    struct pickle_node *callable = arguments ? pickle_pop(pickle) : NULL;
    if (!callable)
        return false;
    bool strict = pickle->mode == PICKLE_STRICT && callable->kind == PICKLE_GLOBAL;
    if (strict && opcode == 'R' && callable->global == PICKLE_SCRIPT_CLASS)
        return pickle_unsafe(pickle, "the pickle calls a class of TorchScript");
    if (strict && opcode == 0x81 && !is_class(callable) &&
        callable->global != PICKLE_KNOWN_UNSUPPORTED)
        return pickle_unsafe(pickle, "the pickle makes an object of %.*s, which is no known class",
                             tc_text_shown(pickle_text(callable), 200), callable->text);
    return call(pickle, callable, arguments);
}

/* NEWOBJ_EX has keyword arguments, which no honest tensor file uses. */
static bool op_newobj_ex(struct pickle *pickle, int unused) {
    (void)unused;
    if (!pickle_pop(pickle))
        return false;
    if (pickle->mode == PICKLE_STRICT && pickle->depth >= pickle_fence(pickle) + 2)
        return pickle_unsafe(pickle, "the pickle makes an object with keyword arguments");
    return op_reduce(pickle, 0x81);
}

/* INST and OBJ: calls as protocols 0 and 1 have them. */
static bool op_instance(struct pickle *pickle, int opcode) {
    struct pickle_node **items = NULL;
    size_t count = 0;
    struct pickle_node *class = opcode == 'i' ? take_global(pickle) : NULL;
    struct pickle_node *arguments = pickle_node(pickle, PICKLE_TUPLE);
    if ((opcode == 'i' && !class) || !arguments || !pickle_pop_mark(pickle, &items, &count))
        return false;
    if (opcode == 'o' && count == 0)
        return pickle_bad(pickle, "an object has no class");
    size_t first = opcode == 'o';
    class = first ? items[0] : class;
    for (size_t i = first; i < count; i++)
        if (!pickle_add(pickle, arguments, items[i]))
            return false;
    if (pickle->mode == PICKLE_STRICT)
        return pickle_unsafe(pickle, "the pickle makes an object of a class");
    return call(pickle, class, arguments);
}

/* What may have state: an ordered dict (ignored), numpy's arrays and dtypes,
 * objects. */
static bool op_build(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *state = pickle_pop(pickle);
    struct pickle_node *node = state ? pickle_top(pickle) : NULL;
    if (!node)
        return false;
    bool numpy =
        pickle_calls(node, PICKLE_NUMPY_RECONSTRUCT) || pickle_calls(node, PICKLE_NUMPY_DTYPE);
    if (numpy || node->kind == PICKLE_OBJECT) {
        node->state = state;
        return true;
    }
    /* torch's state dicts have attributes, which say nothing of tensors. */
    if (node->kind == PICKLE_DICT && node->value && state->kind == PICKLE_DICT)
        return true;
    if (pickle->mode != PICKLE_SCAN)
        return pickle_unsafe(pickle, "the pickle sets the state of a value that has none");
    return pickle_misuse(pickle, node->kind == PICKLE_GLOBAL ? pickle_text(node) : TC_TEXT(""),
                         "it sets the state of a value that has none");
}

static bool op_persistent(struct pickle *pickle, int opcode) {
    struct tc_text line;
    struct pickle_node *id = NULL;
    if (opcode == 'P') {
        if (!pickle_take_line(pickle, MAX_NAME_LINE, &line))
            return false;
        if (pickle->mode != PICKLE_SCAN)
            return pickle_unsafe(pickle, "the pickle has a persistent id of protocol 0");
        return push_kind(pickle, PICKLE_NONE);
    }
    id = pickle_pop(pickle);
    if (!id)
        return false;
    if (++pickle->persistents > pickle->limits->tensors)
        return pickle_over_limit(pickle, "references to storages");
    /* One tuple from the memo may serve as millions of ids. */
    if (id->content && id->kind == PICKLE_TUPLE)
        return pickle_push(pickle, id->content);
    struct pickle_node *node = pickle_node(pickle, PICKLE_NONE);
    if (!node)
        return false;
    if (id->kind == PICKLE_TUPLE)
        id->content = node;
    if (pickle->persistent && !pickle->persistent(pickle->context, id, node, pickle->error))
        return pickle->memory ? false : tc_error_at(pickle->error, pickle->opcode_at);
    if (!pickle->persistent && pickle->mode != PICKLE_SCAN)
        return pickle_bad(pickle, "a persistent id in a pickle that is not torch's");
    return pickle_push(pickle, node);
}

static bool op_buffer(struct pickle *pickle, int opcode) {
    if (pickle->mode == PICKLE_SCAN)
        return opcode == 0x97 ? push_kind(pickle, PICKLE_BYTES) : pickle_top(pickle) != NULL;
    if (opcode == 0x98 && !pickle_top(pickle))
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
        !pickle_odd(pickle, "a pickle's protocol is not at its start"))
        return false;
    if (version <= 5)
        return true;
    if (pickle->mode == PICKLE_SCAN)
        return pickle_odd(pickle, "a pickle's protocol is not known");
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
        !pickle_odd(pickle, "a frame inside a frame"))
        return false;
    bool fits = length <= pickle->end - pickle->at;
    pickle->frame_end = fits ? pickle->at + length : 0;
    return fits || pickle_odd(pickle, "a frame passes the pickle's end");
}

static const struct opcode {
    bool (*run)(struct pickle *pickle, int argument);
    int argument;
} opcodes[256] = {
    ['('] = {op_mark, 0},
    ['.'] = {op_stop, 0},
    ['0'] = {op_pop, 0},
    ['1'] = {op_pop_mark, 0},
    ['2'] = {op_dup, 0},
    ['F'] = {op_text_number, 'F'},
    ['G'] = {op_float, 0},
    ['I'] = {op_text_number, 'I'},
    ['L'] = {op_text_number, 'L'},
    ['J'] = {op_integer, 4},
    ['K'] = {op_integer, 1},
    ['M'] = {op_integer, 2},
    [0x8A] = {op_long, 1},
    [0x8B] = {op_long, 4},
    ['N'] = {op_empty, PICKLE_NONE},
    [0x88] = {op_bool, 1},
    [0x89] = {op_bool, 0},
    ['S'] = {op_text_string, 'S'},
    ['V'] = {op_text_string, 'V'},
    ['T'] = {op_string, 4},
    ['U'] = {op_string, 1},
    ['X'] = {op_unicode, 4},
    [0x8C] = {op_unicode, 1},
    [0x8D] = {op_unicode, 8},
    ['B'] = {op_bytes, 4},
    ['C'] = {op_bytes, 1},
    [0x8E] = {op_bytes, 8},
    [0x96] = {op_bytes, 8},
    [']'] = {op_empty, PICKLE_LIST},
    [')'] = {op_empty, PICKLE_TUPLE},
    ['}'] = {op_empty, PICKLE_DICT},
    [0x8F] = {op_empty, PICKLE_SET},
    ['l'] = {op_collect, PICKLE_LIST},
    ['t'] = {op_collect, PICKLE_TUPLE},
    ['d'] = {op_collect, PICKLE_DICT},
    [0x91] = {op_collect, PICKLE_SET},
    [0x85] = {op_tuple, 1},
    [0x86] = {op_tuple, 2},
    [0x87] = {op_tuple, 3},
    ['a'] = {op_append, 0},
    ['s'] = {op_setitem, 0},
    ['e'] = {op_extend, PICKLE_LIST},
    ['u'] = {op_extend, PICKLE_DICT},
    [0x90] = {op_extend, PICKLE_SET},
    ['p'] = {op_text_put, 0},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    ['g'] = {op_text_get, 0},
    ['h'] = {op_get, 1},
    ['j'] = {op_get, 4},
    [0x94] = {op_memoize, 0},
    ['c'] = {op_global, 0},
    [0x93] = {op_stack_global, 0},
    [0x82] = {op_extension, 1},
    [0x83] = {op_extension, 2},
    [0x84] = {op_extension, 4},
    ['R'] = {op_reduce, 'R'},
    [0x81] = {op_reduce, 0x81},
    [0x92] = {op_newobj_ex, 0},
    ['i'] = {op_instance, 'i'},
    ['o'] = {op_instance, 'o'},
    ['b'] = {op_build, 0},
    ['P'] = {op_persistent, 'P'},
    ['Q'] = {op_persistent, 'Q'},
    [0x80] = {op_proto, 0},
    [0x95] = {op_frame, 0},
    [0x97] = {op_buffer, 0x97},
    [0x98] = {op_buffer, 0x98},
};

static bool step(struct pickle *pickle) {
    pickle->opcode_at = pickle->at;
    if (++pickle->steps > MAX_STEPS)
        return pickle_over_limit(pickle, "opcodes");
    const unsigned char *byte = pickle_take(pickle, 1);
    if (!byte)
        return false;
    const struct opcode *opcode = &opcodes[*byte];
    if (!opcode->run)
        return pickle_bad(pickle, "no such opcode in a pickle: 0x%02x", *byte);
    return opcode->run(pickle, opcode->argument);
}

bool pickle_load(struct pickle *pickle, struct pickle_node **result) {
    if (!pickle->marks)
        pickle->marks = calloc(MAX_MARKS, sizeof *pickle->marks);
    if (!pickle->marks)
        return tc_fail_memory(pickle->error);
    if (!pickle_memo_new(pickle))
        return false;
    pickle->start = pickle->at;
    pickle->depth = pickle->mark_count = 0;
    pickle->frame_end = 0;
    pickle->stopped = false;
    while (!pickle->stopped)
        if (!step(pickle))
            return false;
    *result = pickle->stack[0];
    return true;
}

void pickle_release(struct pickle *pickle) {
    pickle_memo_clear(pickle);
    free(pickle->window);
    free(pickle->stack);
    free(pickle->marks);
    *pickle = (struct pickle){0};
}
