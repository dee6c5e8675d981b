/*
 * What a pickle holds, as tensors and metadata. Dict keys and list indices,
 * joined with dots, are the names (keys.c). A tensor is what
 * tensor.c understands; every other leaf is metadata: strings as they
 * are, the rest as JSON, and a list of plain values as one JSON array. What is
 * neither is left out by its name.
 *
 * Objects of classes that are not understood are there with --pickle=inert,
 * and those of a few plain classes always: whatever tensors their state, their
 * items and the arguments of the call that makes them hold are taken.
 *
 * The walk has its own stack: no pickle is deep enough to overflow ours.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/pickle/option.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/leaf.h"
#include "formats/torch/torch.h"
#include "formats/torch/walk.h"

#define MAX_DEPTH 1000u
/* A pickle of a few bytes can hold one value along 2^64 paths. An honest one
 * shares little: it has about as many values as opcodes, and its names and
 * texts are a few times its own length. */
#define FREE_VISITS (UINT64_C(1) << 18)
#define VISITS_PER_STEP 16u
#define FREE_TEXT (UINT64_C(16) << 20)
#define TEXT_PER_STEP 64u

/* Errors, limits, and what is left out */

bool torch_walk_here(struct torch_walk *walk) {
    return walk->named && tc_error_in_tensor(walk->error, walk->path.bytes, walk->path.length);
}

bool torch_walk_bad(struct torch_walk *walk, const char *what) {
    tc_fail(walk->error, TC_INVALID, "tensor", "%s", what);
    return torch_walk_here(walk);
}

struct tc_text torch_walk_path(const struct torch_walk *walk) {
    return walk->named
               ? (struct tc_text){walk->path.length ? walk->path.bytes : "", walk->path.length}
               : TC_TEXT("tensor");
}

bool torch_walk_skip(struct torch_walk *walk, enum tc_skip what, const char *reason, ...) {
    char text[400];
    va_list args;
    va_start(args, reason);
    vsnprintf(text, sizeof text, reason, args);
    va_end(args);
    return tc_reader_skip(walk->torch->reader, torch_walk_path(walk), what, walk->error, "%s",
                          text);
}

uint64_t torch_walk_scale(const struct torch_walk *walk) {
    uint64_t standard = TC_LIMITS_DEFAULT.pickle;
    uint64_t given = walk->torch->reader->options->limits.pickle;
    return given > standard ? given / standard : 1;
}

bool torch_walk_over(struct torch_walk *walk, const char *what, uint64_t limit) {
    tc_fail(walk->error, TC_UNSAFE, "pickle-limit", "the pickle's values %s (limit %llu)", what,
            (unsigned long long)limit);
    return tc_error_hint(walk->error, "raise the limit with --max-pickle if you trust this file");
}

bool torch_walk_charge(struct torch_walk *walk, uint64_t values) {
    uint64_t limit = (FREE_VISITS + VISITS_PER_STEP * walk->torch->steps) * torch_walk_scale(walk);
    walk->visits += values;
    return walk->visits <= limit ||
           torch_walk_over(walk, "repeat along more paths than its length warrants", limit);
}

/* Metadata is copied to wherever the file goes. */
static bool charge_text(struct torch_walk *walk, uint64_t bytes) {
    uint64_t limit = (FREE_TEXT + TEXT_PER_STEP * walk->torch->steps + walk->torch->text) *
                     torch_walk_scale(walk);
    walk->text += bytes;
    return walk->text <= limit ||
           torch_walk_over(walk, "make more bytes of metadata than its length warrants", limit);
}

static bool is_inert(const struct torch_walk *walk) {
    return pickle_is_inert(walk->torch->reader->options);
}

/* Leaves as metadata */

static void add_items(struct torch_walk *walk, struct tc_json_writer *json,
                      const struct pickle_node *node) {
    tc_json_open_array(json, NULL);
    for (size_t i = 0; i < node->count; i++) {
        torch_leaf_json(json, node->items[i]);
        walk->surrogates += node->items[i]->surrogates;
    }
    tc_json_close(json);
}

/* A key as the file's metadata has it: what could be no tensor's name could be
 * no key either. */
static bool make_key(struct torch_walk *walk, struct tc_text *key) {
    struct tc_text path = torch_walk_path(walk);
    struct tc_error unfit = {0};
    *key = (struct tc_text){NULL, 0};
    if (!tc_name_check(path, &unfit))
        return torch_walk_skip(walk, TC_SKIP_VALUE, "a value whose place has no usable name: %s",
                               unfit.message);
    key->bytes = tc_arena_copy(torch_walk_arena(walk), path.bytes, path.length, walk->error);
    key->length = path.length;
    return key->bytes != NULL;
}

static bool add_leaf(struct torch_walk *walk, const struct pickle_node *node) {
    struct tc_metadata *metadata = &walk->torch->reader->table.metadata;
    struct tc_buffer value = {0};
    struct tc_json_writer json = {.out = &value, .escape = TC_ESCAPE_SERDE};
    struct tc_text key;
    walk->torch->reader->beyond = "values that are no tensors";
    if (!charge_text(walk, walk->path.length + (node->kind == PICKLE_TEXT ? node->length : 0)) ||
        !make_key(walk, &key))
        return false;
    if (!key.bytes)
        return true;
    walk->surrogates += node->surrogates;
    if (node->kind == PICKLE_TEXT)
        return tc_metadata_add(metadata, torch_walk_arena(walk), key, pickle_text(node),
                               walk->error);
    if (node->kind == PICKLE_DICT)
        tc_buffer_add_string(&value, "{}");
    else if (node->kind >= PICKLE_LIST && node->kind <= PICKLE_SET)
        add_items(walk, &json, node);
    else if (torch_leaf_is_word(node))
        torch_leaf_word(&value, node);
    else
        torch_leaf_json(&json, node);
    if (charge_text(walk, value.length))
        return torch_add_metadata(walk, metadata, key, &value);
    tc_buffer_release(&value);
    return false;
}

/* Frames */

static bool is_container(const struct pickle_node *node) {
    return node && node->kind >= PICKLE_LIST && node->kind <= PICKLE_SET;
}

static bool grow_frames(struct torch_walk *walk) {
    size_t larger = walk->capacity ? walk->capacity * 2 : 64;
    struct torch_frame *frames = NULL;
    if (!tc_arena_charge(torch_walk_arena(walk), (larger - walk->capacity) * sizeof *frames,
                         walk->error))
        return false;
    if (!(frames = reallocarray(walk->frames, larger, sizeof *frames)))
        return tc_fail_memory(walk->error);
    walk->frames = frames;
    walk->capacity = larger;
    return true;
}

/* What is to be walked next; its name is the path as it is now. */
static bool push(struct torch_walk *walk, struct pickle_node *node, bool members) {
    uint32_t level = walk->depth ? walk->frames[walk->depth - 1].level + 1 : 0;
    uint64_t limit = MAX_DEPTH * torch_walk_scale(walk);
    if (level >= limit)
        return torch_walk_over(walk, "are nested too deep", limit);
    if (walk->depth == walk->capacity && !grow_frames(walk))
        return false;
    walk->frames[walk->depth++] = (struct torch_frame){.node = node,
                                                       .path = walk->path.length,
                                                       .level = level,
                                                       .named = walk->named,
                                                       .members = members};
    return true;
}

static bool only_scalars(const struct pickle_node *node) {
    for (size_t i = 0; i < node->count; i++)
        if (!torch_leaf_is_scalar(node->items[i]))
            return false;
    return true;
}

/* Tensors are written in one dict; a module's nest by themselves. */
static void note_nesting(struct torch_walk *walk, const struct pickle_node *node) {
    bool flat = walk->depth == 0 && node->kind == PICKLE_DICT;
    if (walk->torch->script || flat)
        return;
    walk->torch->reader->beyond = "lists or dicts in one another";
    walk->torch->nested = true;
}

static bool visit_container(struct torch_walk *walk, struct pickle_node *node, bool members) {
    bool dict = node->kind == PICKLE_DICT;
    /* The outermost has no name, and so is no leaf, whatever it holds. */
    bool leaf = walk->depth && (dict ? node->count == 0 : only_scalars(node));
    if (!torch_walk_charge(walk, node->count))
        return false;
    if (node->open)
        return torch_walk_skip(walk, TC_SKIP_VALUE, "a list or dict that holds itself");
    /* A dict's own attributes, such as torch's _metadata, come behind it. */
    if (dict && node->state && is_container(node->state) && node->state->count &&
        !push(walk, node->state, true))
        return false;
    if (leaf)
        return members || add_leaf(walk, node);
    if (!members)
        note_nesting(walk, node);
    return (!dict || torch_settle_dict(walk, node)) && push(walk, node, members);
}

/* Objects */

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

static bool visit_object(struct torch_walk *walk, struct pickle_node *node, bool members) {
    const struct pickle_node *class = node->callable;
    if (pickle_is(class, PICKLE_GLOBAL) && class->global == PICKLE_KNOWN_UNSUPPORTED) {
        if (!torch_skip_known(walk, class) || !is_inert(walk))
            return walk->error->class == TC_OK;
    }
    if (node->open)
        return torch_walk_skip(walk, TC_SKIP_VALUE, "an object that holds itself");
    if (!members)
        note_nesting(walk, node);
    return push(walk, node, members);
}

/* (dict, slots) is how objects with slots have their state. */
static bool has_slots(const struct pickle_node *state) {
    return pickle_is(state, PICKLE_TUPLE) && state->count == 2 &&
           (state->items[0]->kind == PICKLE_DICT || state->items[0]->kind == PICKLE_NONE) &&
           state->items[1]->kind == PICKLE_DICT;
}

/* A call that is an argument: a function that is known, then its arguments, and
 * where it is numpy's the array's state. */
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
    call->at = function->at;
    call->callable = (struct pickle_node *)function;
    call->arguments = given;
    call->state = numpy ? state : NULL;
    return call;
}

/* What is walked next, and how. */
struct child {
    struct pickle_node *node;      /* NULL: nothing here */
    const struct pickle_node *key; /* of a dict; NULL: none */
    bool members;
    bool attributes;
};

/* A module's state that is an argument, as torch.fx has it. */
static struct pickle_node *as_object(struct torch_walk *walk, struct pickle_node *state) {
    struct pickle_node *object =
        tc_arena_alloc(torch_walk_arena(walk), sizeof *object, walk->error);
    if (object) {
        object->kind = PICKLE_OBJECT;
        object->state = state;
    }
    return object;
}

/* Arguments have the number of their place behind the object's name; a dict
 * among them is as good as the object's attributes. */
static void argument_child(struct torch_walk *walk, struct torch_frame *frame,
                           const struct pickle_node *arguments, size_t i, struct child *child) {
    struct pickle_node *argument = pickle_item(arguments, i);
    struct pickle_node *deferred = find_deferred(walk, arguments, i);
    child->members = true;
    child->node = deferred ? deferred : argument;
    if (deferred)
        frame->next += deferred->state ? 2 : 1;
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

/* An object's parts: items put into it, its state (a module's parts first), the
 * arguments of the call that made it. False behind the last. */
static bool object_child(struct torch_walk *walk, struct torch_frame *frame, struct child *child) {
    enum { CONTENT, PART, STATE = PART + 3, SLOTS, CALLABLE, ARGUMENTS };
    struct pickle_node *object = frame->node;
    struct pickle_node *state = object->state;
    struct pickle_node *slots = NULL;
    uint32_t stage = frame->next++;
    bool script = object->callable && object->callable->global == PICKLE_SCRIPT_CLASS;
    if (!script && has_slots(state)) {
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

static bool is_settled(const struct child *child) {
    return !child->node || (is_container(child->node) && child->node->count == 0);
}

/* The next child of the innermost frame; the path is its name. False behind the
 * last. */
static bool next_child(struct torch_walk *walk, struct torch_frame *frame, struct child *child) {
    struct pickle_node *node = frame->node;
    walk->path.length = frame->path;
    walk->named = frame->named;
    *child = (struct child){.members = frame->members};
    if (node->kind == PICKLE_OBJECT) {
        bool more = object_child(walk, frame, child);
        if (is_settled(child))
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

/* Values */

/* A tensor that is well formed but nothing we hold is left out; one that is
 * broken costs the file, unless nobody wants it. */
bool torch_walk_forgive(struct torch_walk *walk) {
    struct tc_error failure = *walk->error;
    if (failure.class == TC_UNSUPPORTED) {
        *walk->error = (struct tc_error){0};
        return torch_walk_skip(walk, TC_SKIP_VALUE, "%s", failure.message);
    }
    if (failure.class == TC_INVALID &&
        !tc_reader_wants(walk->torch->reader, torch_walk_path(walk))) {
        *walk->error = (struct tc_error){0};
        return true;
    }
    return false;
}

/* Attributes that were set on a tensor: of a parameter, of a subclass. */
static struct pickle_node *find_attributes(const struct pickle_node *node) {
    bool wrapper = pickle_calls(node, PICKLE_REBUILD_PARAMETER) ||
                   pickle_calls(node, PICKLE_REBUILD_FROM_TYPE);
    struct pickle_node *state = wrapper ? pickle_item(node->arguments, 3) : NULL;
    if (has_slots(state))
        state = state->items[0];
    return pickle_is(state, PICKLE_DICT) && state->count ? state : NULL;
}

/* Plain attributes have no place beside a tensor; torch's own say nothing that
 * its state dict keeps. */
static bool tell_attributes(struct torch_walk *walk, const struct pickle_node *attributes) {
    size_t told = 0;
    for (size_t i = 0; i + 1 < attributes->count; i += 2) {
        const struct pickle_node *key = attributes->items[i];
        bool own =
            key->kind == PICKLE_TEXT && (tc_text_starts(pickle_text(key), TC_TEXT("_")) ||
                                         tc_text_equal(pickle_text(key), TC_TEXT("persistent")));
        told += !own && torch_leaf_is_scalar(attributes->items[i + 1]);
    }
    return told == 0 || torch_walk_skip(walk, TC_SKIP_VALUE, "%zu plain attribute%s of the tensor",
                                        told, told == 1 ? "" : "s");
}

/* An array of objects is looked into only where the user asked for whatever
 * tensors there are. */
static struct pickle_node *find_objects(const struct torch_walk *walk,
                                        const struct pickle_node *node) {
    struct pickle_node *items =
        pickle_calls(node, PICKLE_NUMPY_RECONSTRUCT) ? pickle_item(node->state, 4) : NULL;
    return is_inert(walk) && pickle_is(items, PICKLE_LIST) ? items : NULL;
}

/* A parameter of what is no tensor that we know. */
static struct pickle_node *find_object(struct pickle_node *node) {
    for (int i = 0; i < 16 && pickle_calls(node, PICKLE_REBUILD_PARAMETER); i++)
        node = pickle_item(node->arguments, 0);
    return pickle_is(node, PICKLE_OBJECT) ? node : NULL;
}

static bool visit_call(struct torch_walk *walk, struct pickle_node *node, bool members) {
    struct pickle_node *object = find_object(node);
    if (object)
        return visit_object(walk, object, members);
    if (members && pickle_calls(node, PICKLE_NUMPY_DTYPE))
        return true;
    struct pickle_node *objects = find_objects(walk, node);
    if (objects)
        return visit_container(walk, objects, members);
    size_t before = walk->torch->reader->table.count;
    if (!torch_add_call(walk, node))
        return torch_walk_forgive(walk);
    /* Parts of what was left out are no more than that, unless all is wanted. */
    struct pickle_node *attributes = find_attributes(node);
    if (!attributes || (walk->torch->reader->table.count == before && !is_inert(walk)))
        return true;
    return (members || tell_attributes(walk, attributes)) &&
           visit_container(walk, attributes, true);
}

static bool visit_global(struct torch_walk *walk, const struct pickle_node *node, bool members) {
    if (members || node->global == PICKLE_UNKNOWN)
        return true; /* one on no list is told of with the others of its name */
    return torch_walk_skip(walk, TC_SKIP_VALUE, "a class or function, %.*s",
                           tc_text_shown(pickle_text(node), 200), node->text);
}

/* A key is a name: what else it held is gone. */
static bool tell_key(struct torch_walk *walk, const struct pickle_node *key) {
    bool plain = key->kind <= PICKLE_BYTES || key->kind == PICKLE_TUPLE ||
                 key->kind == PICKLE_GLOBAL || torch_leaf_is_scalar(key);
    return plain || torch_walk_skip(walk, TC_SKIP_VALUE, "a dict's key that is no plain value");
}

static bool visit(struct torch_walk *walk, const struct child *child) {
    struct pickle_node *node = child->node;
    bool members = child->members;
    if (!torch_walk_charge(walk, 1) || (child->key && !tell_key(walk, child->key)))
        return false;
    if (torch_leaf_is_scalar(node))
        return members || add_leaf(walk, node);
    if (is_container(node)) {
        size_t depth = walk->depth;
        if (!visit_container(walk, node, members))
            return false;
        if (walk->depth > depth)
            walk->frames[walk->depth - 1].attributes = child->attributes;
        return true;
    }
    switch ((enum pickle_kind)node->kind) {
    case PICKLE_OBJECT:
        return visit_object(walk, node, members);
    case PICKLE_STORAGE:
        return torch_add_storage_node(walk, node) || torch_walk_forgive(walk);
    case PICKLE_BYTES:
        return members || torch_walk_skip(walk, TC_SKIP_VALUE, "a long string of bytes");
    case PICKLE_GLOBAL:
        return visit_global(walk, node, members);
    default:
        return visit_call(walk, node, members);
    }
}

/* The walk */

/* A frame that comes to its turn while the same value is being walked further
 * out holds itself. */
static bool enter(struct torch_walk *walk, struct torch_frame *frame) {
    if (frame->entered)
        return true;
    if (frame->node->open) {
        walk->path.length = frame->path;
        walk->named = frame->named;
        walk->depth--;
        return torch_walk_skip(walk, TC_SKIP_VALUE, "a list or dict that holds itself");
    }
    frame->entered = frame->node->open = true;
    return true;
}

static bool step(struct torch_walk *walk) {
    struct torch_frame *frame = &walk->frames[walk->depth - 1];
    struct child child;
    if (!frame->entered)
        return enter(walk, frame);
    if (!next_child(walk, frame, &child)) {
        frame->node->open = false;
        walk->depth--;
        return true;
    }
    return walk->error->class == TC_OK && tc_buffer_ok(&walk->path, walk->error) &&
           (!child.node || visit(walk, &child));
}

static void tell(struct torch_walk *walk) {
    struct tc_reader *reader = walk->torch->reader;
    walk->torch->nested |= walk->renamed > 0;
    if (walk->renamed)
        tc_reader_warn(reader,
                       "%llu tensor%s the name of another, and %s called NAME~1 and so on; the "
                       "first is %.*s",
                       (unsigned long long)walk->renamed, walk->renamed == 1 ? " has" : "s have",
                       walk->renamed == 1 ? "is" : "are", tc_text_shown(walk->renamed_first, 200),
                       walk->renamed_first.bytes ? walk->renamed_first.bytes : "");
    if (walk->surrogates)
        tc_reader_warn(reader, "%llu text%s half a character (a lone surrogate), which is escaped",
                       (unsigned long long)walk->surrogates,
                       walk->surrogates == 1 ? " has" : "s have");
}

static bool run(struct torch_walk *walk, struct pickle_node *root, bool members) {
    struct child child = {.node = root, .members = members};
    bool ok = visit(walk, &child);
    while (ok && walk->depth)
        ok = step(walk);
    ok = ok && torch_settle_metadata(walk) &&
         tc_metadata_sort(&walk->torch->reader->table.metadata, walk->error);
    if (ok)
        tell(walk);
    tc_buffer_release(&walk->path);
    free(walk->frames);
    return ok;
}

bool torch_walk(struct torch *torch, struct pickle_node *root, struct tc_error *error) {
    struct torch_walk walk = {.torch = torch, .error = error};
    if (torch->watch.context)
        return true;
    if (torch_leaf_is_scalar(root))
        return tc_fail(error, TC_UNSUPPORTED, "no-tensor",
                       "the pickle holds a single value that is no tensor");
    if (!is_container(root) && !torch->script) {
        torch->reader->beyond = "a tensor without a name";
        torch->nested = true;
    }
    return run(&walk, root, false);
}

bool torch_walk_under(struct torch *torch, struct tc_text name, struct pickle_node *root,
                      struct tc_error *error) {
    struct torch_walk walk = {.torch = torch, .error = error, .named = true};
    tc_buffer_add_text(&walk.path, name);
    return run(&walk, root, true);
}

bool torch_walk_constants(struct torch *torch, struct pickle_node *root, struct tc_error *error) {
    struct torch_walk walk = {.torch = torch, .error = error};
    if (torch->watch.context)
        return true;
    tc_buffer_add_string(&walk.path, "CONSTANTS.c");
    return run(&walk, root, false);
}
