/*
 * The arguments and states that honest files give to known names, which a scan checks.
 * A name may be harmless only with some arguments: with others it calls a function that
 * it is given, unpacks another pickle, or sets an attribute that Python calls.
 */
#include <string.h>

#include "core/base/limits.h"
#include "core/base/text.h"
#include "formats/pickle/calls.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/pickle.h"

/* A letter for each argument; those after a question mark may be left out.
 *     s storage · i integer · f number · B truth value · t text · y bytes
 *     z sizes · h hooks (none) · m notes of a tensor · x attributes, or None
 *     T tensor · c class of tensors · F rebuild function · D dtype · L layout
 *     u tuple · P parts of a sparse tensor · q how it is quantised
 *     k description of a dtype · N numpy's dtype, of no objects
 *     A numpy's class of arrays · e an empty array's shape */
static const struct usage {
    enum pickle_global global;
    const char *arguments;
} usages[] = {
    {PICKLE_REBUILD, "sizz"},
    {PICKLE_REBUILD_V2, "sizzBh?m"},
    {PICKLE_REBUILD_V3, "sizzBhD?m"},
    {PICKLE_REBUILD_PARAMETER, "TBh?x"},
    {PICKLE_REBUILD_SPARSE, "LP"},
    {PICKLE_REBUILD_QUANTIZED, "sizzqBh"},
    {PICKLE_REBUILD_FROM_TYPE, "Fcux"},
    {PICKLE_COMPLEX, "?ff"},
    {PICKLE_DEVICE, "t?i"},
    {PICKLE_LAYOUT, "t"},
    {PICKLE_NUMPY_SCALAR, "Ny"},
    {PICKLE_NUMPY_RECONSTRUCT, "Aey"},
    {PICKLE_NUMPY_FROMBUFFER, "yNzt"},
    {PICKLE_NUMPY_DTYPE, "k?BB"},
    {PICKLE_LOAD_FROM_BYTES, "y"},
    {PICKLE_NAMESPACE, ""},
    {PICKLE_RECORD, ""},
    {PICKLE_JOBLIB_ARRAY, ""},
};

static const struct usage *find_usage(unsigned global) {
    for (size_t i = 0; i < sizeof usages / sizeof *usages; i++)
        if (usages[i].global == global)
            return &usages[i];
    return NULL;
}

bool pickle_is_attribute(const struct pickle_node *key) {
    static const char *const called[] = {"append", "extend", "add", "update"};
    if (!pickle_is(key, PICKLE_TEXT) || tc_text_starts(pickle_text(key), TC_TEXT("__")))
        return false;
    for (size_t i = 0; i < sizeof called / sizeof *called; i++)
        if (tc_text_equal(pickle_text(key), tc_text_of(called[i])))
            return false;
    return true;
}

bool pickle_is_sizes(const struct pickle_node *node) {
    if ((!pickle_is(node, PICKLE_TUPLE) && !pickle_is(node, PICKLE_LIST)) ||
        node->count > TC_MAX_RANK)
        return false;
    for (size_t i = 0; i < node->count; i++)
        if (node->items[i]->kind != PICKLE_INT)
            return false;
    return true;
}

static bool is_global(const struct pickle_node *node, enum pickle_global global) {
    return pickle_is(node, PICKLE_GLOBAL) && node->global == global;
}

static bool is_rebuild(const struct pickle_node *function) {
    return pickle_is(function, PICKLE_GLOBAL) && function->global >= PICKLE_REBUILD &&
           function->global < PICKLE_REBUILD_FROM_TYPE;
}

/* Whether it is a tensor that a known function made, or an object of an unknown name,
 * which is reported anyway. */
static bool is_tensor(const struct pickle_node *node) {
    return node->kind == PICKLE_OBJECT || node->kind == PICKLE_STORAGE ||
           (node->kind == PICKLE_CALL &&
            (is_rebuild(node->callable) || node->callable->global == PICKLE_REBUILD_FROM_TYPE));
}

static bool is_number(const struct pickle_node *node) {
    return node->kind >= PICKLE_BOOL && node->kind <= PICKLE_FLOAT;
}

/* Whether it is a dict of attributes. Each check counts against the budget. */
static bool is_attributes(struct pickle *pickle, const struct pickle_node *node) {
    if (node->kind != PICKLE_DICT || !pickle_charge_items(pickle, node->count))
        return false;
    for (size_t i = 0; i < node->count; i += 2)
        if (!pickle_is_attribute(node->items[i]))
            return false;
    return true;
}

static bool is_notes(struct pickle *pickle, const struct pickle_node *node) {
    if (node->kind == PICKLE_NONE)
        return true;
    if (!is_attributes(pickle, node))
        return false;
    for (size_t i = 1; i < node->count; i += 2)
        if (node->items[i]->kind > PICKLE_TEXT)
            return false;
    return true;
}

static bool are_parts(const struct pickle_node *node) {
    if (node->kind != PICKLE_TUPLE || node->count > 5)
        return false;
    for (size_t i = 0; i < node->count; i++)
        if (!is_tensor(node->items[i]) && !is_number(node->items[i]) &&
            !pickle_is_sizes(node->items[i]))
            return false;
    return true;
}

static bool is_quantisation(const struct pickle_node *node) {
    if (node->kind != PICKLE_TUPLE || node->count < 3 || node->count > 4 ||
        !is_global(node->items[0], PICKLE_QSCHEME))
        return false;
    for (size_t i = 1; i < node->count; i++)
        if (!is_tensor(node->items[i]) && !is_number(node->items[i]))
            return false;
    return true;
}

static bool is_empty_dict(struct pickle_node *node) {
    if (node->kind == PICKLE_NONE)
        return true;
    if (node->kind != PICKLE_DICT || node->count)
        return false;
    node->frozen = true; /* items that are added later would be hooks */
    return true;
}

static bool fits(struct pickle *pickle, struct pickle_node *node, char shape) {
    switch (shape) {
    case 's':
        return node->kind == PICKLE_STORAGE || pickle_calls(node, PICKLE_LOAD_FROM_BYTES);
    case 'i':
        return node->kind == PICKLE_INT;
    case 'f':
        return is_number(node);
    case 'B':
        return node->kind == PICKLE_BOOL || node->kind == PICKLE_INT;
    case 't':
        return node->kind == PICKLE_TEXT;
    case 'y':
        return node->kind == PICKLE_BYTES || (node->kind == PICKLE_TEXT && node->raw) ||
               (node->kind == PICKLE_TEXT && node->length == 1);
    case 'z':
        return pickle_is_sizes(node);
    case 'e':
        return pickle_is_sizes(node) && node->count == 1 && node->items[0]->integer == 0;
    case 'h':
        return is_empty_dict(node);
    case 'm':
        return is_notes(pickle, node);
    case 'x':
        return node->kind == PICKLE_NONE || is_attributes(pickle, node);
    case 'T':
        return is_tensor(node);
    case 'c':
        return is_global(node, PICKLE_TENSOR_CLASS);
    case 'F':
        return is_rebuild(node);
    case 'D':
        return is_global(node, PICKLE_DTYPE);
    case 'L':
        return pickle_calls(node, PICKLE_LAYOUT);
    case 'u':
        return node->kind == PICKLE_TUPLE;
    case 'P':
        return are_parts(node);
    case 'q':
        return is_quantisation(node);
    case 'A':
        return is_global(node, PICKLE_NUMPY_ARRAY);
    case 'N':
        return pickle_is_number_dtype(node);
    default: /* k: pickle_numpy_descr checks a dtype's type string */
        return node->kind == PICKLE_TEXT;
    }
}

static bool check_usage(struct pickle *pickle, const struct usage *usage,
                        const struct pickle_node *arguments) {
    size_t at = 0;
    bool optional = false;
    for (const char *shape = usage->arguments; *shape; shape++) {
        if (*shape == '?') {
            optional = true;
            continue;
        }
        if (at == arguments->count)
            return optional;
        if (!fits(pickle, arguments->items[at++], *shape))
            return false;
    }
    return at == arguments->count;
}

/* torch's function for tensors of subclasses calls the function that it is given: that
 * must be one of torch's own, with arguments as it takes them. */
static bool check_inner(struct pickle *pickle, const struct pickle_node *arguments) {
    const struct usage *usage = find_usage(arguments->items[0]->global);
    return usage && check_usage(pickle, usage, arguments->items[2]);
}

const char *pickle_check_arguments(struct pickle *pickle, const struct pickle_node *callable,
                                   struct pickle_node *arguments) {
    static const char wrong[] = "it is called with arguments that it does not take";
    const struct usage *usage = find_usage(callable->global);
    if (!usage)
        return NULL;
    if (arguments->kind != PICKLE_TUPLE || !check_usage(pickle, usage, arguments))
        return wrong;
    if (callable->global == PICKLE_REBUILD_FROM_TYPE && !check_inner(pickle, arguments))
        return wrong;
    return NULL;
}

/* Attributes; for a class that takes a tuple one of values, each of which may be a dict of
 * attributes, as the last of io.BytesIO is. */
static bool is_record(struct pickle *pickle, const struct pickle_node *class,
                      const struct pickle_node *state) {
    if (!class->value || state->kind != PICKLE_TUPLE)
        return is_attributes(pickle, state);
    if (!pickle_charge_items(pickle, state->count))
        return false;
    for (size_t i = 0; i < state->count; i++)
        if (state->items[i]->kind == PICKLE_DICT && !is_attributes(pickle, state->items[i]))
            return false;
    return true;
}

const char *pickle_check_state(struct pickle *pickle, struct pickle_node *node,
                               const struct pickle_node *state) {
    if (node->kind == PICKLE_DICT && node->value)
        return is_attributes(pickle, state) ? NULL
                                            : "a dict's attributes have names that Python calls";
    if (pickle_calls(node, PICKLE_NUMPY_DTYPE))
        return pickle_check_dtype(pickle, node, state);
    if (pickle_calls(node, PICKLE_NUMPY_RECONSTRUCT)) {
        bool again = node->frozen;
        node->frozen = true;
        return again ? "an array's state is set twice" : pickle_check_array(state);
    }
    if (node->kind != PICKLE_OBJECT)
        return "the state of a value that has none is set";
    switch ((enum pickle_global)node->callable->global) {
    case PICKLE_SCRIPT_CLASS:
        return NULL;
    case PICKLE_NAMESPACE:
        return is_attributes(pickle, state) ? NULL : "attributes have names that Python calls";
    case PICKLE_RECORD:
        return is_record(pickle, node->callable, state) ? NULL
                                                        : "attributes have names that Python calls";
    case PICKLE_JOBLIB_ARRAY:
        return pickle_check_joblib(pickle, state);
    default:
        return "the state of a value that has none is set";
    }
}

/* ('storage', class, key, location, count[, view]), or in a tar only the key. */
bool pickle_is_id(const struct pickle *pickle, const struct pickle_node *id) {
    if (pickle->keys)
        return id->kind == PICKLE_INT || id->kind == PICKLE_LONG || id->kind == PICKLE_TEXT;
    if (id->kind != PICKLE_TUPLE || (id->count != 5 && id->count != 6))
        return false;
    const struct pickle_node *view = pickle_item(id, 5);
    return pickle_is(id->items[0], PICKLE_TEXT) &&
           tc_text_equal(pickle_text(id->items[0]), TC_TEXT("storage")) &&
           is_global(id->items[1], PICKLE_STORAGE_CLASS) && id->items[2]->kind == PICKLE_TEXT &&
           id->items[3]->kind == PICKLE_TEXT && id->items[4]->kind == PICKLE_INT &&
           (!view || view->kind == PICKLE_NONE ||
            (view->kind == PICKLE_TUPLE && view->count == 3 &&
             view->items[0]->kind == PICKLE_TEXT && view->items[1]->kind == PICKLE_INT &&
             view->items[2]->kind == PICKLE_INT));
}
