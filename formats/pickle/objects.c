/*
 * The opcodes for names, calls, states, persistent ids, and for items that are put into
 * a value. Python runs code for each of them where the value is not plain data. So in a
 * scan each use that no honest file has is reported as misuse, and the machine goes on
 * as Python's would.
 */
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/pickle/calls.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/opcodes.h"
#include "formats/pickle/pickle.h"

/* Whether a value can't be called and has no methods that Python would look for. Where
 * it is used so, Python's machine ends with an error, and so does this one. */
static bool is_plain(const struct pickle_node *node) {
    return node->kind <= PICKLE_SET || node->kind == PICKLE_STORAGE;
}

/* The name of a global, or of the global that made a value; empty: none. */
static struct tc_text name_of(const struct pickle_node *node) {
    if (node->kind == PICKLE_CALL || node->kind == PICKLE_OBJECT)
        node = node->callable;
    return pickle_is(node, PICKLE_GLOBAL) ? pickle_text(node) : TC_TEXT("");
}

/* Whether an object was made by a name that the scan reports anyway. */
static bool is_of_unknown(const struct pickle_node *node) {
    return node->kind == PICKLE_OBJECT &&
           (!pickle_is(node->callable, PICKLE_GLOBAL) || node->callable->global == PICKLE_UNKNOWN ||
            node->callable->global == PICKLE_KNOWN_UNSUPPORTED);
}

/* Items */

static bool no_container(struct pickle *pickle, enum pickle_kind kind) {
    return pickle_bad(pickle, "items are put into a value that is no %s",
                      kind == PICKLE_LIST   ? "list"
                      : kind == PICKLE_DICT ? "dict"
                                            : "set");
}

/* Puts items into an object, which it has besides its state. */
static bool add_content(struct pickle *pickle, struct pickle_node *node, enum pickle_kind kind,
                        struct pickle_node **items, size_t count) {
    if (pickle->mode == PICKLE_SCAN && !is_of_unknown(node) &&
        !pickle_misuse(pickle, name_of(node), "it is given items that it does not take"))
        return false;
    if (!node->content && !(node->content = pickle_node(pickle, kind)))
        return false;
    if (node->content->kind == kind)
        return pickle_add_all(pickle, node->content, items, count);
    return pickle->mode == PICKLE_SCAN || no_container(pickle, kind);
}

/* Sets items of a list by index, where -1 is the last. Python's machine ends with an
 * error where there is no such item. What a call gave may be any index, or a slice; so may
 * a number that was too long to be read. */
static bool set_list_items(struct pickle *pickle, struct pickle_node *list,
                           struct pickle_node **items, size_t count) {
    for (size_t i = 0; i < count; i += 2) {
        int64_t index = INT64_MAX;
        if (!is_plain(items[i]) || items[i]->kind == PICKLE_LONG)
            continue;
        if (items[i]->kind == PICKLE_INT || items[i]->kind == PICKLE_BOOL)
            index = items[i]->kind == PICKLE_INT ? items[i]->integer : items[i]->value;
        index += index < 0 ? (int64_t)list->count : 0;
        if (index < 0 || index >= (int64_t)list->count)
            return no_container(pickle, PICKLE_DICT);
        list->items[index] = items[i + 1];
    }
    return pickle_tolerate(pickle, "items of a list are set as a dict's");
}

/* Checks the keys of a dict whose items are attributes too. */
static bool check_keys(struct pickle *pickle, const struct pickle_node *dict,
                       struct pickle_node **items, size_t count) {
    bool attributes = dict->value == PICKLE_DICT_OF_ATTRIBUTES;
    for (size_t i = 0; i < count && attributes; i += 2)
        if (!pickle_is_attribute(items[i]) &&
            !pickle_misuse(pickle,
                           items[i]->kind == PICKLE_TEXT ? pickle_text(items[i]) : TC_TEXT(""),
                           "an attribute has a name that Python calls"))
            return false;
    return !dict->frozen || pickle_misuse(pickle, TC_TEXT(""), "hooks of a tensor are added later");
}

static bool put_items(struct pickle *pickle, struct pickle_node *node, enum pickle_kind kind,
                      struct pickle_node **items, size_t count) {
    bool scan = pickle->mode == PICKLE_SCAN;
    if (scan && count == 0)
        return true; /* Python's C machine does not look at the value then */
    if (kind == PICKLE_DICT && count % 2)
        return pickle_bad(pickle, "a dict has a key without a value");
    if (!scan && kind == PICKLE_SET && node->kind == kind && node->value)
        return pickle_bad(pickle, "items are put into a frozenset");
    if (node->kind == kind)
        return (!scan || kind != PICKLE_DICT || check_keys(pickle, node, items, count)) &&
               pickle_add_all(pickle, node, items, count);
    if (node->kind == PICKLE_OBJECT && pickle->mode != PICKLE_STRICT)
        return add_content(pickle, node, kind, items, count);
    if (scan && node->kind == PICKLE_LIST && kind == PICKLE_DICT)
        return set_list_items(pickle, node, items, count);
    if (scan && node->kind == PICKLE_BYTES && node->array && kind != PICKLE_SET)
        return pickle_tolerate(pickle, "a bytearray is changed after it was made");
    if (!scan || is_plain(node))
        return no_container(pickle, kind);
    return pickle_misuse(pickle, name_of(node), "it is given items that it does not take");
}

bool pickle_op_append(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *item = pickle_pop(pickle);
    struct pickle_node *node = item ? pickle_top(pickle) : NULL;
    return node && put_items(pickle, node, PICKLE_LIST, &item, 1);
}

bool pickle_op_setitem(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *items[2] = {NULL};
    items[1] = pickle_pop(pickle);
    items[0] = items[1] ? pickle_pop(pickle) : NULL;
    struct pickle_node *node = items[0] ? pickle_top(pickle) : NULL;
    return node && put_items(pickle, node, PICKLE_DICT, items, 2);
}

/* APPENDS, SETITEMS, ADDITEMS. */
bool pickle_op_extend(struct pickle *pickle, int kind) {
    struct pickle_node **items = NULL;
    size_t count = 0;
    if (!pickle_pop_mark(pickle, &items, &count))
        return false;
    struct pickle_node *node = pickle_top(pickle);
    return node && put_items(pickle, node, (enum pickle_kind)kind, items, count);
}

/* Names */

static struct pickle_node *take_global(struct pickle *pickle) {
    struct tc_text module;
    struct tc_text name;
    if (!pickle_take_word(pickle, &module) || !pickle_take_word(pickle, &name))
        return NULL;
    if (!tc_utf8_valid(module) || !tc_utf8_valid(name)) {
        pickle_bad(pickle, "a global's name is not valid UTF-8");
        return NULL;
    }
    return pickle_find_global(pickle, module, name);
}

bool pickle_op_global(struct pickle *pickle, int unused) {
    (void)unused;
    return pickle_push(pickle, take_global(pickle));
}

/* A part of a name: text, or bytes that a loader may decode as Latin-1. */
static bool name_part(struct pickle *pickle, const struct pickle_node *node, struct tc_text *text) {
    if (node->kind == PICKLE_TEXT) {
        *text = pickle_text(node);
        return true;
    }
    return pickle->mode == PICKLE_SCAN && node->kind == PICKLE_BYTES && node->raw && node->text &&
           pickle_latin1(pickle, pickle_text(node), text);
}

bool pickle_op_stack_global(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *name = pickle_pop(pickle);
    struct pickle_node *module = name ? pickle_pop(pickle) : NULL;
    struct tc_text parts[2];
    if (!module)
        return false;
    if (name_part(pickle, module, &parts[0]) && name_part(pickle, name, &parts[1]))
        return pickle_push(pickle, pickle_find_global(pickle, parts[0], parts[1]));
    /* The name is a result of calls, known only to who runs them. */
    bool is_result = (!is_plain(module) || module->kind == PICKLE_TEXT) &&
                     (!is_plain(name) || name->kind == PICKLE_TEXT);
    if ((pickle->mode == PICKLE_SCAN && is_result) || pickle->mode == PICKLE_INERT)
        return pickle_push(pickle, pickle_find_global(pickle, TC_TEXT("?"), TC_TEXT("?")));
    return pickle_bad(pickle, "a global's name is no string");
}

/* EXT1, EXT2, EXT4: a name by its number in copyreg's registry, which is the loading
 * program's. */
bool pickle_op_extension(struct pickle *pickle, int bytes) {
    uint64_t code;
    if (!pickle_take_number(pickle, (unsigned)bytes, &code))
        return false;
    if (pickle->mode == PICKLE_STRICT)
        return pickle_unsafe(pickle, "the pickle names extension %llu, which may be anything",
                             (unsigned long long)code);
    return pickle_push(pickle,
                       pickle_find_global(pickle, TC_TEXT("copyreg"), TC_TEXT("extension")));
}

/* Calls */

/* pickle.py accepts any sequence as arguments, Python's C machine only a tuple. */
static bool check_call(struct pickle *pickle, const struct pickle_node *callable,
                       const struct pickle_node *arguments) {
    if (arguments->kind == PICKLE_TUPLE)
        return true;
    if (pickle->mode != PICKLE_SCAN || arguments->kind < PICKLE_TEXT)
        return pickle_bad(pickle, "a call's arguments are no tuple");
    return pickle_misuse(pickle, name_of(callable),
                         "it is called with arguments that are no tuple");
}

static bool call(struct pickle *pickle, struct pickle_node *callable,
                 struct pickle_node *arguments) {
    if (pickle->mode == PICKLE_SCAN && is_plain(callable))
        return pickle_bad(pickle, "the pickle calls a value that is no function");
    if (pickle->on_call &&
        !pickle->on_call(pickle->context, callable, arguments, pickle->opcode_at, pickle->error))
        return false;
    if (callable->kind != PICKLE_GLOBAL && pickle->mode == PICKLE_STRICT)
        return pickle_unsafe(pickle, "the pickle calls something that is no known function");
    return check_call(pickle, callable, arguments) &&
           pickle_push(pickle, pickle_call(pickle, callable, arguments));
}

/* Whether a class makes its objects of the arguments of NEWOBJ. All others ignore them:
 * list.__new__(list, [1]) is empty. */
static bool takes_arguments(const struct pickle_node *class) {
    switch ((enum pickle_global) class->global) {
    case PICKLE_SIZE:
    case PICKLE_TEXT_CLASS:
        return true;
    case PICKLE_SET_CLASS:
        return class->value == 1;
    case PICKLE_BYTEARRAY:
        return class->value == 0;
    default:
        return !pickle_is_class(class);
    }
}

/* NEWOBJ makes objects of classes only, while REDUCE calls functions, and classes that
 * are pickled so. */
static bool check_newobj(struct pickle *pickle, const struct pickle_node *callable,
                         const struct pickle_node *arguments) {
    if (callable->kind == PICKLE_GLOBAL && pickle->mode != PICKLE_SCAN && arguments->count &&
        !takes_arguments(callable))
        return pickle_bad(pickle, "an object of %.*s is made with arguments",
                          tc_text_shown(pickle_text(callable), 200), callable->text);
    if (callable->kind != PICKLE_GLOBAL || pickle_is_class(callable) ||
        callable->global == PICKLE_UNKNOWN || callable->global == PICKLE_KNOWN_UNSUPPORTED)
        return true;
    if (pickle->mode == PICKLE_SCAN)
        return pickle_misuse(pickle, pickle_text(callable),
                             "an object is made of what is no class");
    return pickle->mode != PICKLE_STRICT ||
           pickle_unsafe(pickle, "the pickle makes an object of %.*s, which is no known class",
                         tc_text_shown(pickle_text(callable), 200), callable->text);
}

bool pickle_op_reduce(struct pickle *pickle, int opcode) {
    struct pickle_node *arguments = pickle_pop(pickle);
    struct pickle_node *callable = arguments ? pickle_pop(pickle) : NULL;
    if (!callable)
        return false;
    bool strict = pickle->mode == PICKLE_STRICT && callable->kind == PICKLE_GLOBAL;
    if (strict && opcode == OP_REDUCE && callable->global == PICKLE_SCRIPT_CLASS)
        return pickle_unsafe(pickle, "the pickle calls a class of TorchScript");
    if (opcode != OP_REDUCE && !check_newobj(pickle, callable, arguments))
        return false;
    return call(pickle, callable, arguments);
}

/* Appends the dict of keyword arguments to the arguments. */
static bool add_keywords(struct pickle *pickle, struct pickle_node *keywords) {
    struct pickle_node *given = pickle_pop(pickle);
    struct pickle_node *arguments = given ? pickle_node(pickle, PICKLE_TUPLE) : NULL;
    if (!arguments)
        return false;
    if (given->kind != PICKLE_TUPLE || keywords->kind != PICKLE_DICT)
        return pickle_bad(pickle, "a call's arguments are no tuple and dict");
    return pickle_add_all(pickle, arguments, given->items, given->count) &&
           pickle_add(pickle, arguments, keywords) && pickle_push(pickle, arguments);
}

/* NEWOBJ_EX has keyword arguments, which no honest tensor file uses. */
bool pickle_op_newobj_ex(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *keywords = pickle_pop(pickle);
    if (!keywords)
        return false;
    bool more = pickle->depth >= pickle_fence(pickle) + 2;
    if (pickle->mode == PICKLE_STRICT && more)
        return pickle_unsafe(pickle, "the pickle makes an object with keyword arguments");
    const struct pickle_node *class = more ? pickle->stack[pickle->depth - 2] : NULL;
    if (pickle->mode == PICKLE_SCAN && pickle_is(class, PICKLE_GLOBAL) &&
        class->global != PICKLE_UNKNOWN && (keywords->kind != PICKLE_DICT || keywords->count) &&
        !pickle_misuse(pickle, pickle_text(class), "it is called with keyword arguments"))
        return false;
    if (pickle->mode == PICKLE_INERT && !add_keywords(pickle, keywords))
        return false;
    return pickle_op_reduce(pickle, OP_NEWOBJ);
}

/* INST and OBJ, the calls of protocols 0 and 1. */
bool pickle_op_instance(struct pickle *pickle, int opcode) {
    struct pickle_node **items = NULL;
    size_t count = 0;
    bool first = opcode == OP_OBJ; /* whether the class is the first value behind the mark */
    struct pickle_node *class = first ? NULL : take_global(pickle);
    struct pickle_node *arguments = pickle_node(pickle, PICKLE_TUPLE);
    if ((!first && !class) || !arguments || !pickle_pop_mark(pickle, &items, &count))
        return false;
    if (first && count == 0)
        return pickle_bad(pickle, "an object has no class");
    class = first ? items[0] : class;
    if (count > first && !pickle_add_all(pickle, arguments, items + first, count - first))
        return false;
    if (pickle->mode == PICKLE_STRICT)
        return pickle_unsafe(pickle, "the pickle makes an object of a class");
    return call(pickle, class, arguments);
}

/* States */

/* Whether BUILD may give it a state: objects, numpy's arrays and dtypes. */
static bool has_state(const struct pickle_node *node) {
    return node->kind == PICKLE_OBJECT || pickle_calls(node, PICKLE_NUMPY_RECONSTRUCT) ||
           pickle_calls(node, PICKLE_NUMPY_DTYPE);
}

static bool scan_build(struct pickle *pickle, struct pickle_node *node, struct pickle_node *state) {
    const char *wrong = is_of_unknown(node) ? NULL : pickle_check_state(pickle, node, state);
    if (pickle->error->class != TC_OK)
        return false;
    if (wrong && !pickle_misuse(pickle, name_of(node), wrong))
        return false;
    if (has_state(node))
        node->state = state;
    return true;
}

bool pickle_op_build(struct pickle *pickle, int unused) {
    (void)unused;
    struct pickle_node *state = pickle_pop(pickle);
    struct pickle_node *node = state ? pickle_top(pickle) : NULL;
    if (!node)
        return false;
    if (pickle->mode == PICKLE_SCAN) {
        if (!scan_build(pickle, node, state))
            return false;
    } else if (has_state(node)) {
        node->state = state;
    } else if (node->kind == PICKLE_DICT && node->value && state->kind == PICKLE_DICT) {
        node->state = state; /* attributes, as torch's state dicts have them */
    } else if (pickle->mode == PICKLE_STRICT) {
        return pickle_unsafe(pickle, "the pickle sets the state of a value that has none");
    }
    bool joblib = node->kind == PICKLE_OBJECT && pickle_is(node->callable, PICKLE_GLOBAL) &&
                  node->callable->global == PICKLE_JOBLIB_ARRAY;
    if (joblib && pickle->mode != PICKLE_SCAN && pickle->on_build)
        return pickle->on_build(pickle, node);
    return !joblib || (pickle_take_array(pickle, node) &&
                       (!pickle->on_build || pickle->on_build(pickle, node)));
}

/* Persistent ids */

static bool misused_id(struct pickle *pickle) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_STORAGE);
    return pickle_misuse(pickle, TC_TEXT(""), "a persistent id is not that of a storage") &&
           pickle_push(pickle, node);
}

static bool text_id(struct pickle *pickle) {
    struct tc_text line;
    if (!pickle_take_word(pickle, &line))
        return false;
    if (pickle->mode == PICKLE_INERT)
        return pickle_push(pickle, pickle_node(pickle, PICKLE_NONE));
    if (pickle->mode != PICKLE_SCAN)
        return pickle_unsafe(pickle, "the pickle has a persistent id of protocol 0");
    /* A zip archive starts with "PK\3\4", where P is PERSID. No loader gets past it:
     * Python's have no function for ids, and torch's accepts tuples and numbers. */
    if (tc_text_starts(line, TC_TEXT("K\3\4")))
        return pickle_bad(pickle, "a persistent id that is the start of a zip");
    return misused_id(pickle);
}

static bool ask(struct pickle *pickle, const struct pickle_node *id, struct pickle_node **node) {
    return pickle->persistent(pickle->context, id, node, pickle->error) ||
           (pickle->memory ? false : tc_error_at(pickle->error, pickle->opcode_at));
}

/* What an id names that nothing refers to any more; the memory of the id is used again, since a
 * checkpoint has one for each tensor. */
static bool take_id(struct pickle *pickle, const struct pickle_node *id) {
    struct pickle_node made = {.kind = PICKLE_STORAGE};
    struct pickle_node *node = &made;
    if (!ask(pickle, id, &node))
        return false;
    bool kept = node != &made;
    if (!kept)
        pickle_drop(pickle, id, pickle->before_id);
    if (!kept && (node = pickle_node(pickle, PICKLE_STORAGE)))
        pickle_become(node, &made);
    return pickle_push(pickle, node);
}

bool pickle_op_persistent(struct pickle *pickle, int opcode) {
    bool alone = pickle->making == PICKLE_WHOLE_ID;
    pickle->making = PICKLE_NO_ID; /* what it pushes may be an older tuple */
    if (opcode == OP_PERSID)
        return text_id(pickle);
    struct pickle_node *id = pickle_pop(pickle);
    if (!id)
        return false;
    if (++pickle->persistents > pickle->limits->tensors)
        return pickle_over_limit(pickle, "references to storages");
    if (pickle->mode == PICKLE_SCAN && !pickle->persistent && !pickle_is_id(pickle, id))
        return misused_id(pickle);
    /* A tuple in the memo may be used as an id millions of times: its node is kept. */
    if (id->kind == PICKLE_TUPLE && id->named)
        return pickle_push(pickle, id->named);
    if (alone && pickle->forgets && id->kind == PICKLE_TUPLE && pickle->persistent)
        return take_id(pickle, id);
    bool scanned = pickle->mode == PICKLE_SCAN && !pickle->persistent;
    struct pickle_node *node = pickle_node(pickle, PICKLE_STORAGE);
    if (!node)
        return false;
    if (!scanned && !pickle->persistent)
        node->kind = PICKLE_NONE;
    if (pickle->persistent && !ask(pickle, id, &node))
        return false;
    if (id->kind == PICKLE_TUPLE)
        id->named = node;
    if (!pickle->persistent && !scanned && pickle->mode != PICKLE_INERT)
        return pickle_bad(pickle, "a persistent id in a pickle that is not torch's");
    return pickle_push(pickle, node);
}
