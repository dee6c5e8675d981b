/*
 * The values of a pickle that are tensors: calls of torch's rebuild functions, numpy's
 * arrays and scalars, and storages by themselves. A sparse or quantised tensor becomes
 * several, called NAME.indices, NAME.scales and so on.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/leaf.h"
#include "formats/torch/torch.h"
#include "formats/torch/walk.h"

/* How many wrappers a tensor may have; a parameter of a subclass has two. */
#define MAX_WRAPPERS 16

bool torch_add_metadata(struct torch_walk *walk, struct tc_metadata *metadata, struct tc_text key,
                        struct tc_buffer *value) {
    struct tc_arena *arena = torch_walk_arena(walk);
    char *copy =
        tc_buffer_ok(value, walk->error)
            ? tc_arena_copy(arena, value->length ? value->bytes : "", value->length, walk->error)
            : NULL;
    bool ok =
        copy && key.bytes &&
        tc_metadata_add(metadata, arena, key, (struct tc_text){copy, value->length}, walk->error);
    tc_buffer_release(value);
    return ok;
}

/* Tensors */

/* Checks the number of arguments of a call. */
static bool check_count(struct torch_walk *walk, const struct pickle_node *call) {
    static const struct {
        enum pickle_global function;
        uint32_t least;
        uint32_t most;
    } counts[] = {
        {PICKLE_REBUILD, 4, 4},           {PICKLE_REBUILD_V2, 6, 7},
        {PICKLE_REBUILD_V3, 7, 8},        {PICKLE_REBUILD_PARAMETER, 3, 4},
        {PICKLE_REBUILD_SPARSE, 2, 2},    {PICKLE_REBUILD_QUANTIZED, 7, 7},
        {PICKLE_REBUILD_FROM_TYPE, 4, 4},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (call->callable->global == counts[i].function &&
            (call->arguments->count < counts[i].least || call->arguments->count > counts[i].most))
            return torch_walk_bad(walk, "a tensor is made with too few or too many arguments");
    return true;
}

/* (storage, offset, size, stride, …), as every rebuild function starts. */
static bool read_rebuild(struct torch_walk *walk, const struct pickle_node *arguments,
                         struct torch_shape *shape) {
    const struct torch *torch = walk->torch;
    const struct pickle_node *storage = pickle_item(arguments, 0);
    const struct pickle_node *offset = pickle_item(arguments, 1);
    unsigned strides;
    if (pickle_calls(storage, PICKLE_LOAD_FROM_BYTES) &&
        !(storage = torch_nested_storage(walk, storage)))
        return false;
    if (!pickle_is(storage, PICKLE_STORAGE) || !pickle_is(offset, PICKLE_INT) ||
        offset->integer < 0)
        return torch_walk_bad(walk, "a tensor is made of no storage, or with a bad offset");
    if (!torch_sizes(pickle_item(arguments, 2), shape->size, &shape->rank) ||
        !torch_sizes(pickle_item(arguments, 3), shape->stride, &strides) || shape->rank != strides)
        return torch_walk_bad(walk, "a tensor's sizes and strides are not what they must be");
    shape->storage = (uint32_t)storage->index;
    shape->base = storage->offset;
    shape->extent = storage->length;
    shape->offset = (uint64_t)offset->integer;
    shape->dtype = torch->storages[shape->storage].dtype;
    return true;
}

/* Reads the tensor's own metadata, the last argument: {'conj': True, 'neg': True}. */
static bool read_notes(struct torch_walk *walk, const struct pickle_node *notes,
                       struct torch_shape *shape) {
    if (!notes || notes->kind == PICKLE_NONE)
        return true;
    if (notes->kind != PICKLE_DICT)
        return torch_walk_bad(walk, "a tensor's metadata is no dict");
    for (size_t i = 0; i + 1 < notes->count; i += 2) {
        const struct pickle_node *key = notes->items[i];
        const struct pickle_node *value = notes->items[i + 1];
        bool on = value->kind == PICKLE_BOOL && value->value;
        if (!pickle_is(key, PICKLE_TEXT))
            return torch_walk_bad(walk, "a tensor's metadata has a key that is no string");
        if (tc_text_equal(pickle_text(key), TC_TEXT("conj")))
            shape->conjugate = on;
        else if (tc_text_equal(pickle_text(key), TC_TEXT("neg")))
            shape->negative = on;
    }
    return true;
}

bool torch_refuse_dtype(const struct pickle_node *dtype, struct tc_error *error) {
    struct tc_text name = pickle_text(dtype);
    return tc_fail(error, TC_UNSUPPORTED, "dtype", "a tensor of dtype %.*s",
                   tc_text_shown(name, 40), name.bytes);
}

static bool read_dense(struct torch_walk *walk, const struct pickle_node *node,
                       struct torch_shape *shape) {
    const struct pickle_node *arguments = node->arguments;
    enum pickle_global function = node->callable->global;
    if (!read_rebuild(walk, arguments, shape))
        return false;
    if (function == PICKLE_REBUILD_V3) {
        const struct pickle_node *dtype = pickle_item(arguments, 6);
        if (!pickle_is(dtype, PICKLE_GLOBAL) || dtype->global != PICKLE_DTYPE ||
            shape->dtype != TC_NONE)
            return torch_walk_bad(walk, "a tensor has no dtype, or a storage that has one already");
        if (dtype->value == TC_NONE)
            return torch_refuse_dtype(dtype, walk->error);
        shape->dtype = dtype->value;
        return read_notes(walk, pickle_item(arguments, 7), shape);
    }
    if (shape->dtype == TC_NONE)
        return torch_walk_bad(walk, "a tensor is made of a storage without a dtype");
    return function == PICKLE_REBUILD || read_notes(walk, pickle_item(arguments, 6), shape);
}

/* Adds a tensor under a name from torch_take_name, with this ending. */
static bool add_tensor(struct torch_walk *walk, struct tc_text base, const char *ending,
                       const struct torch_shape *shape, struct tc_metadata *metadata) {
    struct tc_text name = base;
    size_t extra = strlen(ending);
    if (extra) {
        char *joined = tc_arena_alloc(torch_walk_arena(walk), base.length + extra + 1, walk->error);
        if (!joined)
            return false;
        memcpy(joined, base.bytes, base.length);
        memcpy(joined + base.length, ending, extra);
        name = (struct tc_text){joined, base.length + extra};
    }
    return torch_add_tensor(walk->torch, name, shape, metadata, walk->error) ||
           tc_error_in_tensor(walk->error, name.bytes, name.length);
}

static bool add_alone(struct torch_walk *walk, const struct torch_shape *shape) {
    struct tc_text name;
    return torch_take_name(walk, NULL, 0, &name) && add_tensor(walk, name, "", shape, NULL);
}

/* The tensor inside of parameters and subclasses, which only wrap it. */
static const struct pickle_node *unwrap(struct torch_walk *walk, const struct pickle_node *node) {
    for (int i = 0; i < MAX_WRAPPERS && node; i++) {
        if (node->kind == PICKLE_CALL && !check_count(walk, node))
            return NULL;
        if (pickle_calls(node, PICKLE_REBUILD_PARAMETER)) {
            node = pickle_item(node->arguments, 0);
        } else if (pickle_calls(node, PICKLE_REBUILD_FROM_TYPE)) {
            struct pickle_node *inner =
                tc_arena_alloc(torch_walk_arena(walk), sizeof *inner, walk->error);
            if (!inner)
                return NULL;
            const struct pickle_node *function = pickle_item(node->arguments, 0);
            const struct pickle_node *type = pickle_item(node->arguments, 1);
            pickle_become(inner, node);
            inner->callable = (struct pickle_node *)function;
            inner->arguments = pickle_item(node->arguments, 2);
            if (!pickle_is(function, PICKLE_GLOBAL) || !pickle_is(inner->arguments, PICKLE_TUPLE) ||
                !pickle_is(type, PICKLE_GLOBAL))
                break;
            node = inner;
        } else {
            return node;
        }
    }
    torch_walk_bad(walk, "a parameter holds no tensor");
    return NULL;
}

static bool is_dense_call(const struct pickle_node *node) {
    return pickle_calls(node, PICKLE_REBUILD) || pickle_calls(node, PICKLE_REBUILD_V2) ||
           pickle_calls(node, PICKLE_REBUILD_V3);
}

/* Adds a dense tensor that belongs to a sparse or quantised one. */
static bool add_part(struct torch_walk *walk, struct tc_text base, const struct pickle_node *node,
                     const char *ending, struct tc_metadata *metadata) {
    struct torch_shape shape = {0};
    node = unwrap(walk, node);
    if (!node)
        return false;
    if (!is_dense_call(node))
        return torch_walk_bad(walk, "a part of a tensor is no tensor");
    return read_dense(walk, node, &shape) && add_tensor(walk, base, ending, &shape, metadata);
}

static bool add_dense(struct torch_walk *walk, const struct pickle_node *node) {
    struct torch_shape shape = {0};
    return read_dense(walk, node, &shape) && add_alone(walk, &shape);
}

static bool set_metadata(struct torch_walk *walk, struct tc_metadata *metadata, const char *key,
                         struct tc_text value) {
    return value.bytes &&
           tc_metadata_set(metadata, torch_walk_arena(walk), tc_text_of(key), value, walk->error);
}

/* Adds the shape of a sparse tensor as a tensor of its own. */
static bool add_shape(struct torch_walk *walk, struct tc_text base, const struct pickle_node *size,
                      const char *ending, struct tc_metadata *metadata) {
    uint64_t sizes[TC_MAX_RANK];
    struct torch_shape shape = {.dtype = TC_I64, .rank = 1};
    unsigned rank;
    if (!torch_sizes(size, sizes, &rank) || rank > TC_MAX_RANK)
        return torch_walk_bad(walk, "a sparse tensor has a bad shape");
    unsigned char *bytes = tc_arena_alloc(torch_walk_arena(walk), rank * 8 + 1, walk->error);
    if (!bytes)
        return false;
    for (unsigned i = 0; i < rank; i++)
        tc_store(bytes + i * 8, sizes[i], 8);
    shape.size[0] = rank;
    shape.extent = rank * 8;
    torch_dense(&shape);
    return torch_add_bytes(walk->torch, bytes, 0, shape.extent, &shape.storage, walk->error) &&
           add_tensor(walk, base, ending, &shape, metadata);
}

const struct tc_sparse_layout *torch_find_layout(const struct pickle_node *named) {
    const struct tc_text prefix = TC_TEXT("torch.sparse_");
    const struct pickle_node *word =
        pickle_calls(named, PICKLE_LAYOUT) ? pickle_item(named->arguments, 0) : NULL;
    if (!pickle_is(word, PICKLE_TEXT) || !tc_text_starts(pickle_text(word), prefix))
        return NULL;
    return tc_sparse_layout(
        (struct tc_text){word->text + prefix.length, word->length - prefix.length});
}

/* Takes the names NAME.indices and so on, and reserves NAME itself. */
static bool take_group(struct torch_walk *walk, const struct tc_sparse_layout *layout,
                       char endings[4][32], struct tc_text *base) {
    const char *texts[4];
    for (unsigned i = 0; i < layout->parts; i++) {
        snprintf(endings[i], 32, ".%s", layout->roles[i]);
        texts[i] = endings[i];
    }
    return torch_take_name(walk, texts, layout->parts, base) && torch_keep_name(walk, *base);
}

static bool add_sparse(struct torch_walk *walk, const struct pickle_node *node) {
    const struct tc_sparse_layout *layout = torch_find_layout(pickle_item(node->arguments, 0));
    const struct pickle_node *data = pickle_item(node->arguments, 1);
    char endings[4][32];
    struct tc_text base;
    if (!layout || !pickle_is(data, PICKLE_TUPLE))
        return torch_walk_bad(walk, "a sparse tensor of no known layout");
    unsigned last = layout->parts - 1; /* the shape */
    if (data->count <= last)
        return torch_walk_bad(walk, "a sparse tensor lacks some of its parts");
    if (!take_group(walk, layout, endings, &base))
        return false;
    for (unsigned i = 0; i <= last; i++) {
        struct tc_metadata *metadata =
            tc_sparse_metadata(torch_walk_arena(walk), layout, base, i, walk->error);
        if (!metadata || !(i == last ? add_shape(walk, base, data->items[i], endings[i], metadata)
                                     : add_part(walk, base, data->items[i], endings[i], metadata)))
            return false;
    }
    return true;
}

static bool add_quantity(struct torch_walk *walk, struct tc_metadata *metadata, const char *key,
                         const struct pickle_node *number) {
    struct tc_buffer text = {0};
    struct tc_json_writer json = {.out = &text, .escape = TC_ESCAPE_SERDE};
    torch_leaf_number(&json, number);
    return torch_add_metadata(walk, metadata, tc_text_of(key), &text);
}

/* Adds a quantised tensor as its integers. How to compute the values from them is in
 * the metadata, and where each channel has its own scale, in two more tensors. */
static bool add_quantized(struct torch_walk *walk, const struct pickle_node *node) {
    static const char *const endings[] = {".scales", ".zero_points"};
    const struct pickle_node *how = pickle_item(node->arguments, 4);
    const struct pickle_node *scheme = pickle_item(how, 0);
    struct torch_shape shape = {0};
    struct tc_text base;
    struct tc_metadata *metadata =
        tc_arena_alloc(torch_walk_arena(walk), sizeof *metadata, walk->error);
    if (!metadata || !read_rebuild(walk, node->arguments, &shape))
        return false;
    if (!pickle_is(scheme, PICKLE_GLOBAL) || scheme->global != PICKLE_QSCHEME ||
        shape.dtype == TC_NONE || how->count != (scheme->value ? 4 : 3))
        return torch_walk_bad(walk, "a quantised tensor of no known scheme");
    struct tc_text word = pickle_text(scheme);
    word.bytes += strlen("torch.");
    word.length -= strlen("torch.");
    bool ok = torch_take_name(walk, endings, scheme->value ? 2 : 0, &base) &&
              set_metadata(walk, metadata, "quant.scheme", word);
    walk->torch->reader->beyond = "quantised tensors";
    if (!scheme->value)
        ok = ok && add_quantity(walk, metadata, "quant.scale", how->items[1]) &&
             add_quantity(walk, metadata, "quant.zero_point", how->items[2]);
    else
        ok = ok && add_quantity(walk, metadata, "quant.axis", how->items[3]);
    ok = ok && tc_metadata_sort(metadata, walk->error) &&
         add_tensor(walk, base, "", &shape, metadata);
    return ok && (!scheme->value || (add_part(walk, base, how->items[1], endings[0], NULL) &&
                                     add_part(walk, base, how->items[2], endings[1], NULL)));
}

bool torch_add_storage_node(struct torch_walk *walk, const struct pickle_node *node) {
    struct torch_shape shape = {
        .storage = (uint32_t)node->index, .base = node->offset, .extent = node->length, .rank = 1};
    shape.dtype = walk->torch->storages[node->index].dtype;
    if (shape.dtype == TC_NONE)
        shape.dtype = TC_U8;
    shape.size[0] = node->length / (tc_dtype_bits(shape.dtype) / 8);
    torch_dense(&shape);
    return add_alone(walk, &shape);
}

static bool add_numpy(struct torch_walk *walk, const struct pickle_node *node) {
    struct torch_shape shape = {0};
    const char *other = NULL;
    if (!torch_numpy(walk->torch, node, &shape, &other, walk->error))
        return torch_walk_here(walk);
    return other ? torch_walk_skip(walk, TC_SKIP_VALUE, "%s", other) : add_alone(walk, &shape);
}

/* Why tensors that this function makes are not supported. */
static const char *why_unsupported(struct tc_text function) {
    static const struct {
        const char *ending;
        const char *why;
    } kinds[] = {
        {"_rebuild_meta_tensor_no_storage", "a meta tensor, which has no data"},
        {"_rebuild_wrapper_subclass", "a tensor of a wrapper class, which has no data of its own"},
        {"_rebuild_nested_tensor", "a nested tensor"},
        {"_rebuild_njt", "a nested tensor"},
        {"NestedTensor", "a nested tensor"},
        {"NDArrayWrapper", "an array of an old joblib, which has it in a file of its own"},
        {"DTensor", "a DTensor, which is spread over several machines"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (tc_text_ends(function, tc_text_of(kinds[i].ending)))
            return kinds[i].why;
    return "a kind of tensor that is not supported";
}

bool torch_skip_known(struct torch_walk *walk, const struct pickle_node *function) {
    struct tc_text name = pickle_text(function);
    return torch_walk_skip(walk, TC_SKIP_VALUE, "%s: it is made by %.*s", why_unsupported(name),
                           tc_text_shown(name, 200), name.bytes);
}

static bool add_known(struct torch_walk *walk, const struct pickle_node *node) {
    struct tc_text function = pickle_text(node->callable);
    switch ((enum pickle_global)node->callable->global) {
    case PICKLE_REBUILD:
    case PICKLE_REBUILD_V2:
    case PICKLE_REBUILD_V3:
        return add_dense(walk, node);
    case PICKLE_REBUILD_SPARSE:
        return add_sparse(walk, node);
    case PICKLE_REBUILD_QUANTIZED:
        return add_quantized(walk, node);
    case PICKLE_NUMPY_SCALAR:
    case PICKLE_NUMPY_RECONSTRUCT:
    case PICKLE_NUMPY_FROMBUFFER:
        return add_numpy(walk, node);
    case PICKLE_NUMPY_DTYPE:
        return torch_walk_skip(walk, TC_SKIP_VALUE, "a numpy dtype");
    case PICKLE_LOAD_FROM_BYTES: {
        const struct pickle_node *storage = torch_nested_storage(walk, node);
        return storage && torch_add_storage_node(walk, storage);
    }
    case PICKLE_KNOWN_UNSUPPORTED:
        return torch_skip_known(walk, node->callable);
    default:
        return torch_walk_skip(walk, TC_SKIP_VALUE, "made by %.*s, which makes no tensor",
                               tc_text_shown(function, 200), function.bytes);
    }
}

bool torch_add_call(struct torch_walk *walk, const struct pickle_node *node) {
    const struct pickle_node *inner = unwrap(walk, node);
    if (!inner)
        return false;
    if (inner->kind == PICKLE_STORAGE)
        return torch_add_storage_node(walk, inner);
    return inner->kind == PICKLE_CALL ? add_known(walk, inner)
                                      : torch_walk_bad(walk, "a parameter holds no tensor");
}

/* The attributes of a parameter or of a tensor of a class: a dict, or the dict and slots. */
static void describe_state(const struct pickle_node *state, struct torch_described *tensor) {
    if (torch_has_slots(state)) {
        tensor->other |= state->items[1]->count > 0;
        state = state->items[0];
    }
    if (pickle_is(state, PICKLE_DICT) && state->count)
        tensor->attributes = state;
    else if (state && state->kind != PICKLE_NONE && state->kind != PICKLE_DICT)
        tensor->other = true;
}

bool torch_describe(struct torch_walk *walk, const struct pickle_node *node,
                    struct torch_described *tensor) {
    *tensor = (struct torch_described){.inner = unwrap(walk, node)};
    const struct pickle_node *inner = tensor->inner;
    if (!inner)
        return false;
    for (int i = 0; i < MAX_WRAPPERS && pickle_is(node, PICKLE_CALL); i++) {
        if (pickle_calls(node, PICKLE_REBUILD_PARAMETER)) {
            const struct pickle_node *grad = pickle_item(node->arguments, 1);
            tensor->other |= tensor->parameter;
            tensor->parameter = true;
            tensor->requires_grad = pickle_is(grad, PICKLE_BOOL) && grad->value;
            describe_state(pickle_item(node->arguments, 3), tensor);
            node = pickle_item(node->arguments, 0);
        } else if (pickle_calls(node, PICKLE_REBUILD_FROM_TYPE)) {
            const struct pickle_node *class = pickle_item(node->arguments, 1);
            tensor->other |= !tc_text_equal(pickle_text(class), TC_TEXT("torch.Tensor"));
            describe_state(pickle_item(node->arguments, 3), tensor);
            break;
        } else
            break;
    }
    tensor->dense = is_dense_call(inner);
    if (!tensor->dense)
        return true;
    const struct pickle_node *grad =
        inner->callable->global == PICKLE_REBUILD ? NULL : pickle_item(inner->arguments, 4);
    if (!tensor->parameter)
        tensor->requires_grad = pickle_is(grad, PICKLE_BOOL) && grad->value;
    return read_dense(walk, inner, &tensor->shape);
}
