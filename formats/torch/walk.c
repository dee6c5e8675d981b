/*
 * Turns what a pickle built into tensors and metadata. Names are dict keys and list
 * indices, joined with dots (keys.c). children.c says what is inside of a value,
 * tensor.c adds the values that are tensors; every
 * other leaf is metadata: strings as they are, anything else as JSON, and a list of
 * plain values as one JSON array. Values that are neither are left out, and reported by
 * name.
 *
 * Objects of unknown classes occur with --pickle=inert, those of a few plain classes
 * always. Tensors in their state, in their items and in the arguments of the call that
 * makes them are added.
 *
 * The walk has a stack of its own, so that a deep pickle can't overflow the program's.
 */
#include "formats/torch/walk.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/notes.h"
#include "core/tensor/table.h"
#include "formats/pickle/option.h"
#include "formats/torch/leaf.h"

#define MAX_DEPTH 1000u
/* A few bytes of pickle can reach one value by 2^64 paths. An honest pickle shares
 * little: it has about as many values as opcodes, and its names and texts are a few
 * times as long as the pickle. */
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

/* Counts bytes of metadata, all of which may be written to the output. */
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

/* Leaves a value out that a tree can hold: a loss where that is not kept. */
static bool keep_in_tree(struct torch_walk *walk, const char *what, const char *why) {
    struct tc_reader *reader = walk->torch->reader;
    return !tc_reader_wants(reader, torch_walk_path(walk)) ||
           tc_notes_add(&reader->tree_notes, TC_LOSS, TC_KIND_SKIPPED, torch_walk_path(walk),
                        walk->error, "%s%s", what, why);
}

/* The current path as a key of the file's metadata. A path that can't be a tensor's
 * name can't be a key: the value is then in the tree alone, and key->bytes is NULL. */
static bool make_key(struct torch_walk *walk, struct tc_text *key) {
    struct tc_text path = torch_walk_path(walk);
    struct tc_error unfit = {0};
    *key = (struct tc_text){NULL, 0};
    if (!tc_name_check(path, &unfit))
        return keep_in_tree(walk, "a value whose place has no usable name: ", unfit.message);
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

/* Pushes a value to be walked next; its name is the current path. */
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

/* Records that values are nested, which is lost when tensors are written as one dict.
 * The modules of TorchScript don't count: nesting is their nature. */
static void note_nesting(struct torch_walk *walk, const struct pickle_node *node) {
    bool flat = walk->depth == 0 && node->kind == PICKLE_DICT;
    if (walk->torch->script || flat)
        return;
    walk->torch->reader->beyond = "lists or dicts in one another";
    walk->torch->nested = true;
}

static bool visit_container(struct torch_walk *walk, struct pickle_node *node, bool members) {
    bool dict = node->kind == PICKLE_DICT;
    if ((dict || node->kind == PICKLE_SET) &&
        !pickle_settle(node, torch_walk_arena(walk), walk->error))
        return false;
    /* The outermost value has no name, so it can't be a leaf. */
    bool leaf = (walk->depth || walk->named) && (dict ? node->count == 0 : only_scalars(node));
    if (!torch_walk_charge(walk, node->count))
        return false;
    if (node->open)
        return torch_walk_skip(walk, TC_SKIP_VALUE, "a list or dict that holds itself");
    if (!members && !leaf)
        note_nesting(walk, node);
    /* A dict's attributes, such as torch's _metadata, are walked after its items. */
    struct pickle_node *attributes = dict ? pickle_state(node) : NULL;
    if (attributes && torch_is_container(attributes) && attributes->count &&
        !push(walk, attributes, true))
        return false;
    if (leaf)
        return members || add_leaf(walk, node);
    return push(walk, node, members);
}

/* Objects */

static bool visit_object(struct torch_walk *walk, struct pickle_node *node, bool members) {
    const struct pickle_node *class = node->callable;
    if (pickle_is(class, PICKLE_GLOBAL) && class->global == PICKLE_KNOWN_UNSUPPORTED) {
        if (!torch_skip_known(walk, class) || !is_inert(walk))
            return walk->error->class == TC_OK;
    }
    if (pickle_is(class, PICKLE_GLOBAL) && class->global == PICKLE_RECORD && class->value)
        return members || torch_walk_skip(walk, TC_SKIP_VALUE, "an object of %.*s",
                                          tc_text_shown(pickle_text(class), 200), class->text);
    if (node->open)
        return torch_walk_skip(walk, TC_SKIP_VALUE, "an object that holds itself");
    if (!members)
        note_nesting(walk, node);
    return push(walk, node, members);
}

/* Values */

/* A tensor that is not supported is left out. A damaged one is an error, unless the
 * user did not select it. */
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

/* The attributes that were set on a parameter or on a tensor of a subclass. */
static struct pickle_node *find_attributes(const struct pickle_node *node) {
    bool wrapper = pickle_calls(node, PICKLE_REBUILD_PARAMETER) ||
                   pickle_calls(node, PICKLE_REBUILD_FROM_TYPE);
    struct pickle_node *state = wrapper ? pickle_item(node->arguments, 3) : NULL;
    if (state && torch_has_slots(state))
        state = state->items[0];
    return state && state->kind == PICKLE_DICT && state->count ? state : NULL;
}

/* Reports plain attributes of a tensor, which are left out. Those of torch itself are
 * not reported: its own state dicts leave them out too. */
static bool report_attributes(struct torch_walk *walk, const struct pickle_node *attributes) {
    size_t left_out = 0;
    for (size_t i = 0; i + 1 < attributes->count; i += 2) {
        const struct pickle_node *key = attributes->items[i];
        bool own =
            key->kind == PICKLE_TEXT && (tc_text_starts(pickle_text(key), TC_TEXT("_")) ||
                                         tc_text_equal(pickle_text(key), TC_TEXT("persistent")));
        left_out += !own && torch_leaf_is_scalar(attributes->items[i + 1]);
    }
    return left_out == 0 || keep_in_tree(walk, "plain attributes of the tensor", "");
}

/* The items of an array of objects, where the user asked for tensors in objects
 * (--pickle=inert); else NULL. */
static struct pickle_node *find_objects(const struct torch_walk *walk,
                                        const struct pickle_node *node) {
    struct pickle_node *items =
        pickle_calls(node, PICKLE_NUMPY_RECONSTRUCT) ? pickle_item(pickle_state(node), 4) : NULL;
    return is_inert(walk) && pickle_is(items, PICKLE_LIST) ? items : NULL;
}

/* The object that a parameter wraps instead of a tensor; NULL: it does not. */
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
    /* Where the tensor was left out, its attributes are too, unless the user asked for
     * all tensors (--pickle=inert). */
    struct pickle_node *attributes = find_attributes(node);
    if (!attributes || (walk->torch->reader->table.count == before && !is_inert(walk)))
        return true;
    return (members || report_attributes(walk, attributes)) &&
           visit_container(walk, attributes, true);
}

static bool visit_global(struct torch_walk *walk, const struct pickle_node *node, bool members) {
    if (members || node->global == PICKLE_UNKNOWN)
        return true; /* report_classes reports unknown names */
    return torch_walk_skip(walk, TC_SKIP_VALUE, "a class or function, %.*s",
                           tc_text_shown(pickle_text(node), 200), node->text);
}

/* Reports a key that is not a plain value: only its name is kept. */
static bool report_key(struct torch_walk *walk, const struct pickle_node *key) {
    bool plain = key->kind <= PICKLE_BYTES || key->kind == PICKLE_TUPLE ||
                 key->kind == PICKLE_GLOBAL || torch_leaf_is_scalar(key);
    return plain || torch_walk_skip(walk, TC_SKIP_VALUE, "a dict's key that is no plain value");
}

static bool visit(struct torch_walk *walk, const struct torch_child *child) {
    struct pickle_node *node = child->node;
    bool members = child->members;
    walk->current = node;
    if (!torch_walk_charge(walk, 1) || (child->key && !report_key(walk, child->key)))
        return false;
    if (torch_leaf_is_scalar(node))
        return members || add_leaf(walk, node);
    if (torch_is_container(node)) {
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
        return members || keep_in_tree(walk, "a long string of bytes", "");
    case PICKLE_GLOBAL:
        return visit_global(walk, node, members);
    default:
        return visit_call(walk, node, members);
    }
}

/* The walk */

/* Starts on a frame's value. Where that value is being walked further out already, it
 * holds itself. */
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
    struct torch_child child;
    if (!frame->entered)
        return enter(walk, frame);
    if (!torch_next_child(walk, frame, &child)) {
        frame->node->open = false;
        walk->depth--;
        return true;
    }
    return walk->error->class == TC_OK && tc_buffer_ok(&walk->path, walk->error) &&
           (!child.node || visit(walk, &child));
}

static void report_renamed(struct torch_walk *walk) {
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
    struct torch_child child = {.node = root, .members = members};
    bool ok = visit(walk, &child);
    while (ok && walk->depth)
        ok = step(walk);
    ok = ok && torch_settle_metadata(walk) &&
         tc_metadata_sort(&walk->torch->reader->table.metadata, walk->error);
    if (ok)
        report_renamed(walk);
    tc_buffer_release(&walk->path);
    free(walk->frames);
    return ok;
}

/* Whether it is a dict, or an OrderedDict, of names to tensors: what a state dict is. */
static bool is_state_dict(const struct pickle_node *root) {
    bool plain = root->kind == PICKLE_DICT &&
                 (!root->content ||
                  (root->content->global == PICKLE_ORDERED_DICT && root->content->value == 0));
    for (size_t i = 0; plain && i < root->count; i += 2) {
        unsigned kind = root->items[i + 1]->kind;
        plain = root->items[i]->kind == PICKLE_TEXT &&
                (kind == PICKLE_STORAGE ||
                 (kind == PICKLE_CALL && !torch_leaf_is_scalar(root->items[i + 1])));
    }
    return plain;
}

bool torch_walk(struct torch *torch, struct pickle_node *root, struct tc_error *error) {
    struct torch_walk walk = {.torch = torch, .error = error};
    if (torch->watch.context)
        return true;
    if (torch_leaf_is_scalar(root)) {
        if (torch->reader->beyond)
            return tc_fail(error, TC_UNSUPPORTED, "no-tensor",
                           "the pickle holds a single value that is no tensor");
        torch->reader->beyond = "a value that is no tensor";
        torch->object = root;
        return true;
    }
    if (!torch_is_container(root) && !torch->script) {
        torch->reader->beyond = "a tensor without a name";
        torch->nested = true;
    }
    if (!run(&walk, root, false))
        return false;
    if (!torch->script) {
        torch->object = root;
        torch->reader->plain = !torch->nested && is_state_dict(root);
    }
    return true;
}

bool torch_walk_under(struct torch *torch, struct tc_text name, struct pickle_node *root,
                      struct tc_error *error) {
    struct torch_walk walk = {.torch = torch, .error = error, .named = true};
    tc_buffer_add_text(&walk.path, name);
    return run(&walk, root, true);
}

bool torch_walk_named(struct torch *torch, struct tc_text name, struct pickle_node *root,
                      struct tc_error *error) {
    struct torch_walk walk = {.torch = torch, .error = error, .named = true};
    tc_buffer_add_text(&walk.path, name);
    return run(&walk, root, false);
}

bool torch_walk_constants(struct torch *torch, struct pickle_node *root, struct tc_error *error) {
    struct torch_walk walk = {.torch = torch, .error = error};
    if (torch->watch.context)
        return true;
    tc_buffer_add_string(&walk.path, "CONSTANTS.c");
    return run(&walk, root, false);
}
