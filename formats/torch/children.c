/*
 * What is inside of a value of a pickle: the items of lists and dicts, and of an object
 * its items, its state and the arguments of the call that made it.
 */
#include "core/base/arena.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/leaf.h"
#include "formats/torch/torch.h"
#include "formats/torch/walk.h"

bool torch_is_container(const struct pickle_node *node) {
    return node && node->kind >= PICKLE_LIST && node->kind <= PICKLE_SET;
}

static const char *const module_parts[] = {"_parameters", "_buffers", "_modules"};

static bool is_module(const struct pickle_node *state) {
    return torch_find_key(state, "_parameters") || torch_find_key(state, "_modules");
}

static bool is_module_part(const struct pickle_node *key) {
    for (size_t i = 0; i < 3; i++)
        if (key->kind == PICKLE_TEXT &&
            tc_text_equal(pickle_text(key), tc_text_of(module_parts[i])))
            return true;
    return false;
}

bool torch_has_slots(const struct pickle_node *state) {
    return pickle_is(state, PICKLE_TUPLE) && state->count == 2 &&
           (state->items[0]->kind == PICKLE_DICT || state->items[0]->kind == PICKLE_NONE) &&
           state->items[1]->kind == PICKLE_DICT;
}

/* A call that is passed on as arguments, to be made by the callee: a known function,
 * then its arguments, and for numpy's function the array's state. */
static struct pickle_node *find_deferred(struct torch_walk *walk,
                                         const struct pickle_node *arguments, size_t i) {
    const struct pickle_node *function = pickle_item(arguments, i);
    struct pickle_node *given = pickle_item(arguments, i + 1);
    struct pickle_node *state = pickle_item(arguments, i + 2);
    if (!pickle_is(function, PICKLE_GLOBAL) || !pickle_is(given, PICKLE_TUPLE))
        return NULL;
    bool numpy = function->global == PICKLE_NUMPY_RECONSTRUCT && pickle_is(state, PICKLE_TUPLE);
    bool torch = function->global >= PICKLE_REBUILD && function->global <= PICKLE_REBUILD_FROM_TYPE;
    struct pickle_node *call =
        numpy || torch ? tc_arena_alloc(torch_walk_arena(walk), sizeof *call, walk->error) : NULL;
    if (!call)
        return NULL;
    call->kind = PICKLE_CALL;
    call->callable = (struct pickle_node *)function;
    call->arguments = given;
    call->state = numpy ? state : NULL;
    return call;
}

/* An object with this state: torch.fx passes a module's state as an argument. */
static struct pickle_node *as_object(struct torch_walk *walk, struct pickle_node *state) {
    struct pickle_node *object =
        tc_arena_alloc(torch_walk_arena(walk), sizeof *object, walk->error);
    if (object) {
        object->kind = PICKLE_OBJECT;
        object->state = state;
    }
    return object;
}

/* The i-th argument of the call that made an object. Its number is appended to the
 * object's name, except for a dict, whose items are like the object's attributes. */
static void argument_child(struct torch_walk *walk, struct torch_frame *frame,
                           const struct pickle_node *arguments, size_t i,
                           struct torch_child *child) {
    struct pickle_node *argument = pickle_item(arguments, i);
    struct pickle_node *deferred = find_deferred(walk, arguments, i);
    child->members = true;
    child->node = deferred ? deferred : argument;
    if (deferred)
        frame->next += pickle_state(deferred) ? 2 : 1;
    if (deferred || pickle_is(argument, PICKLE_DICT)) {
        if (!deferred && is_module(argument))
            child->node = as_object(walk, argument);
        return;
    }
    if (walk->named)
        tc_buffer_add_string(&walk->path, ".");
    tc_buffer_add_number(&walk->path, i);
    walk->named = true;
}

/* The next child of an object: its items, then its state (of a module first parameters,
 * buffers and submodules), then the arguments of the call that made it. False behind
 * the last. */
static bool object_child(struct torch_walk *walk, struct torch_frame *frame,
                         struct torch_child *child) {
    enum { CONTENT, PART, STATE = PART + 3, SLOTS, CALLABLE, ARGUMENTS };
    struct pickle_node *object = frame->node;
    struct pickle_node *state = object->state;
    struct pickle_node *slots = NULL;
    uint32_t stage = frame->next++;
    bool script = object->callable && object->callable->global == PICKLE_SCRIPT_CLASS;
    if (!script && torch_has_slots(state)) {
        slots = state->items[1];
        state = state->items[0];
    }
    bool module = !script && is_module(state);
    child->members = frame->members || script || module;
    if (stage == CONTENT)
        child->node = object->content;
    else if (stage < STATE)
        child->node = module ? torch_find_key(state, module_parts[stage - PART]) : NULL;
    else if (stage == STATE) {
        child->node = state && !torch_leaf_is_scalar(state) ? state : NULL;
        child->attributes = module;
    } else if (stage == SLOTS)
        child->node = slots;
    else if (stage == CALLABLE) {
        child->node = pickle_is(object->callable, PICKLE_GLOBAL) ? NULL : object->callable;
        child->members = true;
    } else if (!pickle_item(object->arguments, stage - ARGUMENTS))
        return false;
    else
        argument_child(walk, frame, object->arguments, stage - ARGUMENTS, child);
    return true;
}

static bool is_empty(const struct torch_child *child) {
    return !child->node || (torch_is_container(child->node) && child->node->count == 0);
}

bool torch_next_child(struct torch_walk *walk, struct torch_frame *frame,
                      struct torch_child *child) {
    struct pickle_node *node = frame->node;
    walk->path.length = frame->path;
    walk->named = frame->named;
    *child = (struct torch_child){.members = frame->members};
    if (node->kind == PICKLE_OBJECT) {
        bool more = object_child(walk, frame, child);
        if (is_empty(child))
            child->node = NULL;
        return more;
    }
    if (frame->next >= node->count)
        return false;
    bool dict = node->kind == PICKLE_DICT;
    const struct pickle_node *key = dict ? node->items[frame->next] : NULL;
    child->node = node->items[frame->next + dict];
    if (key && frame->attributes && is_module_part(key))
        child->node = NULL;
    if (walk->named)
        tc_buffer_add_string(&walk->path, ".");
    walk->named = true;
    if (key) {
        torch_add_key(walk, key, frame->next / 2);
        child->key = key;
    }
    if (!key)
        tc_buffer_add_number(&walk->path, frame->next);
    if (key && key->kind != PICKLE_TEXT && !frame->members)
        walk->torch->nested = true;
    frame->next += dict ? 2 : 1;
    return true;
}
