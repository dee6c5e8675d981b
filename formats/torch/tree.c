#include "formats/torch/tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/format/tree.h"
#include "core/tensor/dtype.h"
#include "core/tensor/sparse_group.h"
#include "formats/torch/tree_values.h"

/* What is being written. Each has an array or object of the text open. */
enum frame_kind {
    ITEMS,      /* of a list, tuple or set */
    MEMBERS,    /* {"k":NODE,…} of any kind of dict */
    PAIRS,      /* ["d",K,V,…] of any kind of dict */
    WRAPPER,    /* ["O",MAP,{attr}] and its like */
    ATTRIBUTES, /* {attr} */
    OPTIONS,    /* the options of a tensor, in its array */
};

struct frame {
    uint8_t kind;
    bool key;      /* it is, or is part of, a key or a member of a set: no tensor may be in it */
    bool done;     /* of WRAPPER and OPTIONS: the attributes were begun */
    char closing;  /* of the array or object */
    uint32_t next; /* position in `items` */
    uint32_t count;
    const struct pickle_node *node;
    struct pickle_node *const *items;
    size_t taken; /* of OPTIONS: the tensor's position in torch->taken */
};

struct encoder {
    struct torch *torch;
    struct torch_walk walk; /* for what reads tensors */
    struct torch_tree_out out;
    struct torch_place *places;
    struct frame *frames;
    size_t depth;
    size_t capacity;
    size_t taken; /* how many of torch->taken were written */
    size_t count; /* values so far */
};

/* Gives up: no tree can hold this. */
static bool none(struct encoder *encoder, const char *why) {
    return torch_tree_none(&encoder->out, why);
}

/* The writer of JSON knows one level: the innermost array or object. The frames know the
 * others. */
static void open_level(struct encoder *encoder, char closing) {
    struct tc_json_writer *json = &encoder->out.json;
    if (closing == '}')
        tc_json_open_object(json, NULL);
    else
        tc_json_open_array(json, NULL);
    if (json->depth > 1) {
        json->levels[0] = json->levels[1];
        json->depth = 1;
    }
}

static void close_level(struct encoder *encoder, char outer) {
    struct tc_json_writer *json = &encoder->out.json;
    tc_json_close(json);
    json->depth = 1;
    json->levels[0].closing = outer;
    json->levels[0].used = true;
}

static char closing_of(const struct encoder *encoder) {
    return encoder->depth ? encoder->frames[encoder->depth - 1].closing : '}';
}

static bool push(struct encoder *encoder, struct frame frame) {
    if (encoder->depth > 3 * (size_t)TC_TREE_MAX_DEPTH)
        return none(encoder, "it is nested too deep");
    if (encoder->depth == encoder->capacity) {
        size_t larger = encoder->capacity ? encoder->capacity * 2 : 64;
        struct frame *frames = reallocarray(encoder->frames, larger, sizeof *frames);
        if (!frames)
            return tc_fail_memory(encoder->out.error);
        encoder->frames = frames;
        encoder->capacity = larger;
    }
    encoder->frames[encoder->depth++] = frame;
    open_level(encoder, frame.closing);
    return true;
}

static void pop(struct encoder *encoder) {
    encoder->depth--;
    close_level(encoder, closing_of(encoder));
}

/* Tensors */

static void add_name(struct encoder *encoder, const struct torch_taken *taken) {
    if (taken->renamed)
        tc_json_add_text(&encoder->out.json, NULL, taken->name);
    else
        tc_json_add_null(&encoder->out.json, NULL);
}

static void add_strides(struct encoder *encoder, const char *key, const struct torch_shape *shape) {
    tc_json_add_numbers(&encoder->out.json, key, shape->stride, shape->rank);
}

static bool add_sparse(struct encoder *encoder, const struct torch_taken *taken,
                       const struct pickle_node *call) {
    const struct tc_sparse_layout *layout = torch_find_layout(pickle_item(call->arguments, 0));
    const struct pickle_node *coalesced = pickle_item(pickle_item(call->arguments, 1), 3);
    torch_tree_begin_tag(&encoder->out, "s");
    add_name(encoder, taken);
    tc_json_add_string(&encoder->out.json, NULL, layout->name);
    if (!layout->compressed)
        tc_json_add_boolean(&encoder->out.json, NULL,
                            pickle_is(coalesced, PICKLE_BOOL) && coalesced->value);
    tc_json_close(&encoder->out.json);
    return true;
}

static bool add_quantised(struct encoder *encoder, const struct torch_taken *taken,
                          const struct pickle_node *call) {
    const struct pickle_node *storage = pickle_item(call->arguments, 0);
    const struct pickle_node *how = pickle_item(call->arguments, 4);
    const struct pickle_node *scheme = pickle_item(how, 0);
    static const char unknown[] = "it has a quantised tensor of a scheme that is not known";
    if (!pickle_is(storage, PICKLE_STORAGE) || !pickle_is(scheme, PICKLE_GLOBAL))
        return none(encoder, unknown);
    struct tc_text word = pickle_text(scheme);
    word.bytes += strlen("torch.");
    word.length -= strlen("torch.");
    if ((!scheme->value && !tc_text_equal(word, TC_TEXT("per_tensor_affine"))) ||
        tc_text_ends(word, TC_TEXT("symmetric")))
        return none(encoder, unknown);
    unsigned dtype = encoder->torch->storages[storage->index].dtype;
    torch_tree_begin_tag(&encoder->out, "q");
    add_name(encoder, taken);
    tc_json_add_text(&encoder->out.json, NULL, word);
    const struct pickle_node *last = how->items[scheme->value ? 3 : 2];
    if (!scheme->value)
        torch_tree_add_real(&encoder->out, torch_tree_number(how->items[1]));
    tc_json_addf(&encoder->out.json, NULL, "%lld",
                 (long long)(last->kind == PICKLE_INT ? last->integer : 0));
    tc_json_add_string(&encoder->out.json, NULL,
                       dtype == TC_I8   ? "qint8"
                       : dtype == TC_U8 ? "quint8"
                                        : "qint32");
    tc_json_close(&encoder->out.json);
    return true;
}

/* Options that a tensor has before its attributes, and the view, which comes last. */
static void add_options(struct encoder *encoder, const struct torch_described *tensor,
                        bool strides) {
    if (strides)
        add_strides(encoder, "k", &tensor->shape);
    if (tensor->requires_grad != tensor->parameter)
        tc_json_add_boolean(&encoder->out.json, "g", tensor->requires_grad);
}

static void add_view(struct encoder *encoder, const struct torch_shape *shape,
                     const struct torch_place *place) {
    const struct torch_place *base = &encoder->places[place->base - 1];
    tc_json_open_array(&encoder->out.json, "v");
    tc_json_add_text(&encoder->out.json, NULL, encoder->torch->taken[place->base - 1].name);
    tc_json_add_number(&encoder->out.json, NULL, place->offset - base->offset);
    add_strides(encoder, NULL, shape);
    tc_json_close(&encoder->out.json);
}

static bool add_dense(struct encoder *encoder, const struct pickle_node *node,
                      const struct torch_described *tensor) {
    const struct torch_taken *taken = &encoder->torch->taken[encoder->taken - 1];
    const struct torch_place *place = &encoder->places[encoder->taken - 1];
    const struct torch_shape *shape = &tensor->shape;
    bool strides = !place->base && shape->dtype != TC_F4 && !torch_is_dense(shape) &&
                   tc_tree_is_dense(shape->size, shape->stride, shape->rank);
    bool options =
        strides || tensor->requires_grad != tensor->parameter || tensor->attributes || place->base;
    const char *tag = tensor->parameter ? "p" : "t";
    if (!options) {
        tc_json_open_array(&encoder->out.json, NULL);
        if (tensor->parameter || taken->renamed)
            tc_json_add_string(&encoder->out.json, NULL, tag);
        if (taken->renamed)
            add_name(encoder, taken);
        tc_json_close(&encoder->out.json);
        return true;
    }
    open_level(encoder, ']');
    tc_json_add_string(&encoder->out.json, NULL, tag);
    add_name(encoder, taken);
    if (!push(encoder,
              (struct frame){
                  .kind = OPTIONS, .node = node, .closing = '}', .taken = encoder->taken - 1}))
        return false;
    add_options(encoder, tensor, strides);
    return true;
}

static bool add_tensor(struct encoder *encoder, const struct pickle_node *node, bool key) {
    struct torch *torch = encoder->torch;
    struct torch_described tensor;
    const struct torch_taken *taken =
        encoder->taken < torch->taken_count ? &torch->taken[encoder->taken] : NULL;
    if (key)
        return none(encoder, "a tensor is a key of a dict or in a set");
    if (!taken || taken->node != node)
        return none(encoder, "it holds something that is left out");
    encoder->taken++;
    if (!torch_describe(&encoder->walk, node, &tensor))
        return false;
    if (tensor.other)
        return none(encoder, "it has a tensor of a class of its own");
    if (tensor.shape.rank > TC_MAX_RANK)
        return none(encoder, "it holds something that is left out");
    if (tensor.dense)
        return add_dense(encoder, node, &tensor);
    if (tensor.attributes)
        return none(encoder, "a sparse or quantised tensor has attributes");
    switch ((enum pickle_global)(tensor.inner->kind == PICKLE_CALL ? tensor.inner->callable->global
                                                                   : PICKLE_UNKNOWN)) {
    case PICKLE_REBUILD_SPARSE:
        return add_sparse(encoder, taken, tensor.inner);
    case PICKLE_REBUILD_QUANTIZED:
        return add_quantised(encoder, taken, tensor.inner);
    case PICKLE_NUMPY_SCALAR:
    case PICKLE_NUMPY_RECONSTRUCT:
    case PICKLE_NUMPY_FROMBUFFER:
        torch_tree_begin_tag(&encoder->out,
                             pickle_calls(tensor.inner, PICKLE_NUMPY_SCALAR) ? "N" : "n");
        if (taken->renamed)
            add_name(encoder, taken);
        tc_json_close(&encoder->out.json);
        return true;
    default:
        return none(encoder, "it has a storage that no tensor wraps");
    }
}

/* Containers */

static bool open_sequence(struct encoder *encoder, const struct pickle_node *node, const char *tag,
                          bool key) {
    struct pickle_node *const *items = node->items;
    if (node->kind == PICKLE_SET &&
        !(items = torch_tree_sorted(node, torch_walk_arena(&encoder->walk), encoder->out.error)))
        return false;
    if (!push(encoder, (struct frame){.kind = ITEMS,
                                      .node = node,
                                      .items = items,
                                      .count = node->count,
                                      .closing = ']',
                                      .key = key || node->kind == PICKLE_SET}))
        return false;
    tc_json_add_string(&encoder->out.json, NULL, tag);
    return true;
}

/* The items of a dict of any kind. */
static bool open_map(struct encoder *encoder, const struct pickle_node *node) {
    struct frame frame = {
        .kind = MEMBERS, .node = node, .items = node->items, .count = node->count, .closing = '}'};
    for (size_t i = 0; i < node->count && frame.kind == MEMBERS; i += 2) {
        const struct pickle_node *key = node->items[i];
        if (key->kind != PICKLE_TEXT || key->surrogates || key->value)
            frame.kind = PAIRS;
    }
    frame.closing = frame.kind == PAIRS ? ']' : '}';
    if (!push(encoder, frame))
        return false;
    if (frame.kind == PAIRS)
        tc_json_add_string(&encoder->out.json, NULL, "d");
    return true;
}

/* The class that a defaultdict makes. */
static bool add_factory(struct encoder *encoder, const struct pickle_node *factory) {
    if (!factory || factory->kind == PICKLE_NONE) {
        tc_json_add_null(&encoder->out.json, NULL);
        return true;
    }
    struct tc_text name = pickle_text(factory);
    const char *dot = memrchr(name.bytes, '.', name.length);
    struct tc_text word = {dot + 1, name.length - (size_t)(dot + 1 - name.bytes)};
    /* Pickles of protocol 2 have Python 2's names for these. */
    if (tc_text_equal(word, TC_TEXT("unicode")))
        word = TC_TEXT("str");
    if (tc_text_equal(word, TC_TEXT("long")))
        word = TC_TEXT("int");
    if (!(tc_text_starts(name, TC_TEXT("builtins.")) ||
          tc_text_starts(name, TC_TEXT("__builtin__."))) ||
        !tc_tree_is_factory(word))
        return none(encoder, "it has a defaultdict of a class that is not known");
    tc_json_add_text(&encoder->out.json, NULL, word);
    return true;
}

static bool open_dict(struct encoder *encoder, struct pickle_node *node, bool key) {
    const struct pickle_node *class = node->content;
    unsigned global = class ? class->global : PICKLE_UNKNOWN;
    bool named = class && tc_text_starts(pickle_text(class), TC_TEXT("collections."));
    if (key)
        return none(encoder, "a dict is a key");
    if (!pickle_settle(node, torch_walk_arena(&encoder->walk), encoder->out.error))
        return false;
    if (!class || (global == PICKLE_ORDERED_DICT && !named))
        return open_map(encoder, node);
    bool counter = global == PICKLE_ORDERED_DICT && class->value == 1;
    if (!named || (counter && pickle_state(node)))
        return none(encoder, "it has a dict of a class of its own");
    if (!push(encoder, (struct frame){.kind = WRAPPER, .node = node, .closing = ']'}))
        return false;
    tc_json_add_string(&encoder->out.json, NULL,
                       counter                         ? "C"
                       : global == PICKLE_DEFAULT_DICT ? "D"
                                                       : "O");
    if (global == PICKLE_DEFAULT_DICT && !add_factory(encoder, pickle_state(node)))
        return false;
    return open_map(encoder, node);
}

static bool open_container(struct encoder *encoder, struct pickle_node *node, bool key) {
    if (node->kind == PICKLE_DICT)
        return open_dict(encoder, node, key);
    if (node->kind == PICKLE_TUPLE)
        return node->value ? torch_tree_add_size(&encoder->out, node)
                           : open_sequence(encoder, node, "u", key);
    if (key || node->value)
        return none(encoder, key ? "a list or set is a key" : "it has a deque or a frozenset");
    if (node->kind == PICKLE_SET &&
        !pickle_settle(node, torch_walk_arena(&encoder->walk), encoder->out.error))
        return false;
    return open_sequence(encoder, node, node->kind == PICKLE_LIST ? "l" : "S", key);
}

/* Writes a value, or its beginning where it holds others. */
static bool add_value(struct encoder *encoder, struct pickle_node *node, bool key) {
    if (++encoder->count > TC_TREE_MAX_NODES)
        return none(encoder, "it has too many values");
    switch ((enum pickle_kind)node->kind) {
    case PICKLE_NONE:
        tc_json_add_null(&encoder->out.json, NULL);
        return true;
    case PICKLE_BOOL:
        tc_json_add_boolean(&encoder->out.json, NULL, node->value);
        return true;
    case PICKLE_INT:
        tc_json_addf(&encoder->out.json, NULL, "%lld", (long long)node->integer);
        return true;
    case PICKLE_LONG:
        if (node->length > TC_TREE_MAX_DIGITS)
            return none(encoder, "it has an integer that is too long");
        torch_tree_add_tagged(&encoder->out, "i", pickle_text(node));
        return true;
    case PICKLE_FLOAT:
        torch_tree_add_real(&encoder->out, node->real);
        return true;
    case PICKLE_TEXT:
        return torch_tree_add_text(&encoder->out, node);
    case PICKLE_BYTES:
        return torch_tree_add_bytes(&encoder->out, node);
    case PICKLE_LIST:
    case PICKLE_TUPLE:
    case PICKLE_DICT:
    case PICKLE_SET:
        return open_container(encoder, node, key);
    case PICKLE_GLOBAL:
        return node->global == PICKLE_DTYPE
                   ? torch_tree_add_word(&encoder->out, "dt", pickle_text(node), tc_tree_is_dtype)
                   : none(encoder, "it has a class or a function");
    case PICKLE_CALL:
        break;
    default:
        return none(encoder, "it has objects, or a storage that no tensor wraps");
    }
    if (pickle_calls(node, PICKLE_COMPLEX)) {
        torch_tree_add_complex(&encoder->out, node);
        return true;
    }
    if (pickle_calls(node, PICKLE_DEVICE))
        return torch_tree_add_device(&encoder->out, node);
    return pickle_calls(node, PICKLE_LAYOUT) ? torch_tree_add_layout(&encoder->out, node)
                                             : add_tensor(encoder, node, key);
}

/* Steps */

static bool step_map(struct encoder *encoder, struct frame *frame) {
    bool key = frame->next % 2 == 0;
    struct pickle_node *item = frame->items[frame->next++];
    if (frame->kind == PAIRS || !key)
        return add_value(encoder, item, key);
    if (frame->kind == ATTRIBUTES &&
        (item->kind != PICKLE_TEXT || !tc_tree_is_attribute(pickle_text(item))))
        return none(encoder, "it has an attribute whose name may not be one");
    tc_json_add_key(&encoder->out.json, pickle_text(item));
    return true;
}

static bool open_attributes(struct encoder *encoder, const struct pickle_node *state,
                            const char *key) {
    if (key)
        tc_json_add_key(&encoder->out.json, tc_text_of(key));
    if (!pickle_settle((struct pickle_node *)state, torch_walk_arena(&encoder->walk),
                       encoder->out.error))
        return false;
    return push(encoder, (struct frame){.kind = ATTRIBUTES,
                                        .node = state,
                                        .items = state->items,
                                        .count = state->count,
                                        .closing = '}'});
}

/* A tensor's attributes, then the storage that it shares, then its end. */
static bool step_options(struct encoder *encoder, struct frame *frame) {
    struct torch_described tensor;
    const struct torch_place *place = &encoder->places[frame->taken];
    if (!torch_describe(&encoder->walk, frame->node, &tensor))
        return false;
    if (!frame->done && tensor.attributes) {
        frame->done = true;
        return open_attributes(encoder, tensor.attributes, "a");
    }
    if (place->base)
        add_view(encoder, &tensor.shape, place);
    /* The options' object, and the array around it. */
    encoder->depth--;
    close_level(encoder, ']');
    close_level(encoder, closing_of(encoder));
    return true;
}

static bool step(struct encoder *encoder) {
    struct frame *frame = &encoder->frames[encoder->depth - 1];
    switch ((enum frame_kind)frame->kind) {
    case OPTIONS:
        return step_options(encoder, frame);
    case WRAPPER:
        if (!frame->done && pickle_is(pickle_state(frame->node), PICKLE_DICT) &&
            pickle_state(frame->node)->count) {
            frame->done = true;
            return open_attributes(encoder, pickle_state(frame->node), NULL);
        }
        break;
    case ITEMS:
        if (frame->next < frame->count)
            return add_value(encoder, frame->items[frame->next++], frame->key);
        break;
    default:
        if (frame->next < frame->count)
            return step_map(encoder, frame);
    }
    pop(encoder);
    return true;
}

static bool encode(struct encoder *encoder, struct pickle_node *root) {
    tc_json_open_object(&encoder->out.json, NULL);
    tc_json_add_number(&encoder->out.json, "v", 1);
    tc_json_add_key(&encoder->out.json, TC_TEXT("root"));
    if (!add_value(encoder, root, false))
        return false;
    while (encoder->depth) {
        if (!step(encoder))
            return false;
        if (encoder->out.json.out->length > TC_TREE_MAX_TEXT)
            return none(encoder, "its tree would be too long");
    }
    tc_json_close(&encoder->out.json);
    return encoder->taken == encoder->torch->taken_count ||
           none(encoder, "it holds something that is left out");
}

bool torch_tree(struct tc_reader *reader, struct tc_buffer *text, const char **why,
                struct tc_error *error) {
    struct torch *torch = reader->state;
    struct encoder encoder = {.torch = torch,
                              .walk = {.torch = torch, .error = error},
                              .out = {.json = {.out = text, .escape = TC_ESCAPE_SERDE},
                                      .input = reader->input,
                                      .error = error}};
    *why = NULL;
    if (!torch->object) {
        *why = torch->forgotten ? "it was not asked for when the file was opened"
                                : "it is a program of TorchScript";
        return true;
    }
    encoder.places = torch_tree_places(&encoder.walk);
    bool ok = encoder.places && encode(&encoder, torch->object) && tc_buffer_ok(text, error);
    free(encoder.frames);
    free(encoder.places);
    *why = encoder.out.why;
    return ok || (encoder.out.why && error->class == TC_OK);
}
