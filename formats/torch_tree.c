/*
 * What a pickle holds, as tensors and metadata. Dict keys and list indices,
 * joined with dots, are the names. A tensor is what torch's rebuild functions
 * would make, a numpy array or scalar, or a storage by itself; every other
 * leaf is metadata: strings as they are, the rest as JSON, and a list of plain
 * values as one JSON array.
 *
 * The walk has its own stack: no pickle is deep enough to overflow ours.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "formats/torch.h"
#include "formats/torch_leaf.h"

#define MAX_DEPTH 1000u
/* A pickle of a few bytes can hold one value along 2^64 paths. An honest one
 * shares little: it has about as many values as opcodes. */
#define FREE_VISITS (UINT64_C(1) << 18)
#define VISITS_PER_STEP 16
/* Wrappers of one tensor: a parameter of a subclass has two. */
#define MAX_WRAPPERS 16

struct frame {
    struct pickle_node *node;
    uint32_t next;
    size_t path;  /* its name's length */
    bool members; /* of a module: what is no tensor or module is left out */
};

struct walk {
    struct torch *torch;
    struct tc_error *error;
    struct frame *frames;
    size_t depth;
    struct tc_buffer path;
    uint64_t visits;
};

/* Names the place where the error is; the outermost value has none. */
static bool in_place(struct walk *walk) {
    return walk->path.length > 0 &&
           tc_error_in_tensor(walk->error, walk->path.bytes, walk->path.length);
}

static bool bad(struct walk *walk, const char *what) {
    tc_fail(walk->error, TC_INVALID, "tensor", "%s", what);
    return in_place(walk);
}

static struct tc_arena *arena(const struct walk *walk) {
    return &walk->torch->reader->arena;
}

/* The path, and an ending for a part of a tensor; the arena's. */
static struct tc_text make_name(struct walk *walk, const char *ending) {
    struct tc_text path = {walk->path.bytes, walk->path.length};
    size_t extra = strlen(ending);
    char *name = tc_arena_alloc(arena(walk), path.length + extra + 1, walk->error);
    if (!name)
        return (struct tc_text){NULL, 0};
    if (path.length)
        memcpy(name, path.bytes, path.length);
    memcpy(name + path.length, ending, extra);
    return (struct tc_text){name, path.length + extra};
}

/* Leaves as metadata */

static bool add_metadata(struct walk *walk, struct tc_metadata *metadata, struct tc_text key,
                         struct tc_buffer *value) {
    char *copy = tc_buffer_ok(value, walk->error)
                     ? tc_arena_copy(arena(walk), value->length ? value->bytes : "", value->length,
                                     walk->error)
                     : NULL;
    bool ok = copy && key.bytes &&
              tc_metadata_add(metadata, arena(walk), key, (struct tc_text){copy, value->length},
                              walk->error);
    tc_buffer_release(value);
    return ok;
}

static bool add_leaf(struct walk *walk, const struct pickle_node *node) {
    struct tc_buffer value = {0};
    bool sequence = node->kind >= PICKLE_LIST && node->kind <= PICKLE_SET;
    if (node->kind == PICKLE_DICT)
        tc_buffer_add_string(&value, "{}");
    else if (sequence) {
        tc_buffer_add_string(&value, "[");
        for (size_t i = 0; i < node->count; i++) {
            tc_buffer_add_string(&value, i ? "," : "");
            torch_leaf_json(&value, node->items[i]);
        }
        tc_buffer_add_string(&value, "]");
    } else if (torch_leaf_is_word(node)) {
        torch_leaf_word(&value, node);
    } else {
        torch_leaf_json(&value, node);
    }
    walk->torch->reader->beyond = "values that are no tensors";
    return add_metadata(walk, &walk->torch->reader->table.metadata, make_name(walk, ""), &value);
}

/* What neither a tensor nor metadata can hold is told. */
static bool lose_leaf(struct walk *walk, const char *what) {
    tc_reader_lose(walk->torch->reader, "\"%.*s\" is %s, and left out",
                   walk->path.length < 200 ? (int)walk->path.length : 200,
                   walk->path.length ? walk->path.bytes : "", what);
    return true;
}

/* Tensors */

/* How many arguments the functions take. */
static bool check_count(struct walk *walk, const struct pickle_node *call) {
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
            return bad(walk, "a tensor is made with too few or too many arguments");
    return true;
}

/* (storage, offset, size, stride, …), as every rebuild function starts. */
static bool read_rebuild(struct walk *walk, const struct pickle_node *arguments,
                         struct torch_shape *shape) {
    const struct torch *torch = walk->torch;
    const struct pickle_node *storage = pickle_item(arguments, 0);
    const struct pickle_node *offset = pickle_item(arguments, 1);
    unsigned strides;
    if (!pickle_is(storage, PICKLE_STORAGE) || !pickle_is(offset, PICKLE_INT) ||
        offset->integer < 0)
        return bad(walk, "a tensor is made of no storage, or with a bad offset");
    if (!torch_sizes(pickle_item(arguments, 2), shape->size, &shape->rank) ||
        !torch_sizes(pickle_item(arguments, 3), shape->stride, &strides) || shape->rank != strides)
        return bad(walk, "a tensor's sizes and strides are not what they must be");
    shape->storage = (uint32_t)storage->index;
    shape->base = storage->offset;
    shape->extent = storage->length;
    shape->offset = (uint64_t)offset->integer;
    shape->dtype = torch->storages[shape->storage].dtype;
    return true;
}

/* {'conj': True, 'neg': True}, behind the other arguments. */
static bool read_notes(struct walk *walk, const struct pickle_node *notes,
                       struct torch_shape *shape) {
    if (!notes || notes->kind == PICKLE_NONE)
        return true;
    if (notes->kind != PICKLE_DICT)
        return bad(walk, "a tensor's metadata is no dict");
    for (size_t i = 0; i + 1 < notes->count; i += 2) {
        const struct pickle_node *key = notes->items[i];
        const struct pickle_node *value = notes->items[i + 1];
        bool on = value->kind == PICKLE_BOOL && value->value;
        if (!pickle_is(key, PICKLE_TEXT))
            return bad(walk, "a tensor's metadata has a key that is no string");
        if (tc_text_equal(pickle_text(key), TC_TEXT("conj")))
            shape->conjugate = on;
        else if (tc_text_equal(pickle_text(key), TC_TEXT("neg")))
            shape->negative = on;
    }
    return true;
}

static bool read_dense(struct walk *walk, const struct pickle_node *node,
                       struct torch_shape *shape) {
    const struct pickle_node *arguments = node->arguments;
    enum pickle_global function = node->callable->global;
    if (!read_rebuild(walk, arguments, shape))
        return false;
    if (function == PICKLE_REBUILD_V3) {
        const struct pickle_node *dtype = pickle_item(arguments, 6);
        if (!pickle_is(dtype, PICKLE_GLOBAL) || dtype->global != PICKLE_DTYPE ||
            shape->dtype != TC_NONE)
            return bad(walk, "a tensor has no dtype, or a storage that has one already");
        shape->dtype = dtype->value;
        return read_notes(walk, pickle_item(arguments, 7), shape);
    }
    if (shape->dtype == TC_NONE)
        return bad(walk, "a tensor is made of a storage without a dtype");
    return function == PICKLE_REBUILD || read_notes(walk, pickle_item(arguments, 6), shape);
}

/* What is not in any dict or list has a name of its own. */
static bool add_tensor(struct walk *walk, const char *ending, const struct torch_shape *shape,
                       struct tc_metadata *metadata) {
    struct tc_text name = make_name(walk, ending);
    return name.bytes && (torch_add_tensor(walk->torch, name, shape, metadata, walk->error) ||
                          tc_error_in_tensor(walk->error, name.bytes, name.length));
}

/* Takes parameters and subclasses off: what is inside is the same tensor. */
static const struct pickle_node *unwrap(struct walk *walk, const struct pickle_node *node) {
    for (int i = 0; i < MAX_WRAPPERS && node; i++) {
        if (node->kind == PICKLE_CALL && !check_count(walk, node))
            return NULL;
        if (pickle_calls(node, PICKLE_REBUILD_PARAMETER)) {
            node = pickle_item(node->arguments, 0);
        } else if (pickle_calls(node, PICKLE_REBUILD_FROM_TYPE)) {
            struct pickle_node *inner = tc_arena_alloc(arena(walk), sizeof *inner, walk->error);
            if (!inner)
                return NULL;
            const struct pickle_node *function = pickle_item(node->arguments, 0);
            const struct pickle_node *type = pickle_item(node->arguments, 1);
            *inner = *node;
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
    bad(walk, "a parameter holds no tensor");
    return NULL;
}

static bool is_dense_call(const struct pickle_node *node) {
    return pickle_calls(node, PICKLE_REBUILD) || pickle_calls(node, PICKLE_REBUILD_V2) ||
           pickle_calls(node, PICKLE_REBUILD_V3);
}

/* A dense tensor that is part of another. */
static bool add_part(struct walk *walk, const struct pickle_node *node, const char *ending,
                     struct tc_metadata *metadata) {
    struct torch_shape shape = {0};
    node = unwrap(walk, node);
    if (!node)
        return false;
    if (!is_dense_call(node))
        return bad(walk, "a part of a tensor is no tensor");
    return read_dense(walk, node, &shape) && add_tensor(walk, ending, &shape, metadata);
}

static bool set_metadata(struct walk *walk, struct tc_metadata *metadata, const char *key,
                         struct tc_text value) {
    return value.bytes &&
           tc_metadata_set(metadata, arena(walk), tc_text_of(key), value, walk->error);
}

static struct tc_metadata *part_metadata(struct walk *walk, const char *layout, const char *role) {
    struct tc_text parent = make_name(walk, "");
    return parent.bytes ? tc_sparse_metadata(arena(walk), layout, parent, role, walk->error) : NULL;
}

/* The dense shape of a sparse tensor, as a tensor of its own. */
static bool add_shape(struct walk *walk, const struct pickle_node *size,
                      struct tc_metadata *metadata) {
    uint64_t sizes[TC_MAX_RANK];
    struct torch_shape shape = {.dtype = TC_I64, .rank = 1};
    unsigned rank;
    if (!torch_sizes(size, sizes, &rank) || rank > TC_MAX_RANK)
        return bad(walk, "a sparse tensor has a bad shape");
    unsigned char *bytes = tc_arena_alloc(arena(walk), rank * 8 + 1, walk->error);
    if (!bytes)
        return false;
    for (unsigned i = 0; i < rank; i++)
        tc_store(bytes + i * 8, sizes[i], 8);
    shape.size[0] = rank;
    shape.extent = rank * 8;
    torch_dense(&shape);
    return torch_add_bytes(walk->torch, bytes, 0, shape.extent, &shape.storage, walk->error) &&
           add_tensor(walk, ".shape", &shape, metadata);
}

/* torch calls them torch.sparse_coo and so on. */
static const struct tc_sparse_layout *find_layout(const struct pickle_node *named) {
    const struct tc_text prefix = TC_TEXT("torch.sparse_");
    const struct pickle_node *word =
        pickle_calls(named, PICKLE_LAYOUT) ? pickle_item(named->arguments, 0) : NULL;
    if (!pickle_is(word, PICKLE_TEXT) || !tc_text_starts(pickle_text(word), prefix))
        return NULL;
    return tc_sparse_layout(
        (struct tc_text){word->text + prefix.length, word->length - prefix.length});
}

static bool add_sparse(struct walk *walk, const struct pickle_node *node) {
    const struct tc_sparse_layout *layout = find_layout(pickle_item(node->arguments, 0));
    const struct pickle_node *data = pickle_item(node->arguments, 1);
    if (!layout || !pickle_is(data, PICKLE_TUPLE))
        return bad(walk, "a sparse tensor of no known layout");
    unsigned parts = layout->parts - 1; /* before the shape */
    if (data->count <= parts)
        return bad(walk, "a sparse tensor lacks some of its parts");
    for (unsigned i = 0; i < parts; i++) {
        char ending[32];
        snprintf(ending, sizeof ending, ".%s", layout->roles[i]);
        struct tc_metadata *metadata = part_metadata(walk, layout->name, layout->roles[i]);
        if (!metadata || !add_part(walk, data->items[i], ending, metadata))
            return false;
    }
    struct tc_metadata *metadata = part_metadata(walk, layout->name, "shape");
    return metadata && add_shape(walk, data->items[parts], metadata);
}

static bool add_quantity(struct walk *walk, struct tc_metadata *metadata, const char *key,
                         const struct pickle_node *number) {
    struct tc_buffer text = {0};
    torch_leaf_number(&text, number);
    return add_metadata(walk, metadata, tc_text_of(key), &text);
}

/* The integers, and how to read them: in metadata, and where each channel has
 * a scale of its own in two tensors beside it. */
static bool add_quantized(struct walk *walk, const struct pickle_node *node) {
    const struct pickle_node *how = pickle_item(node->arguments, 4);
    const struct pickle_node *scheme = pickle_item(how, 0);
    struct torch_shape shape = {0};
    struct tc_metadata *metadata = tc_arena_alloc(arena(walk), sizeof *metadata, walk->error);
    if (!metadata || !read_rebuild(walk, node->arguments, &shape))
        return false;
    if (!pickle_is(scheme, PICKLE_GLOBAL) || scheme->global != PICKLE_QSCHEME ||
        shape.dtype == TC_NONE || how->count != (scheme->value ? 4 : 3))
        return bad(walk, "a quantised tensor of no known scheme");
    struct tc_text word = pickle_text(scheme);
    word.bytes += strlen("torch.");
    word.length -= strlen("torch.");
    bool ok = set_metadata(walk, metadata, "quant.scheme", word);
    walk->torch->reader->beyond = "quantised tensors";
    if (!scheme->value)
        ok = ok && add_quantity(walk, metadata, "quant.scale", how->items[1]) &&
             add_quantity(walk, metadata, "quant.zero_point", how->items[2]);
    else
        ok = ok && add_quantity(walk, metadata, "quant.axis", how->items[3]);
    ok = ok && tc_metadata_sort(metadata, walk->error) && add_tensor(walk, "", &shape, metadata);
    return ok && (!scheme->value || (add_part(walk, how->items[1], ".scales", NULL) &&
                                     add_part(walk, how->items[2], ".zero_points", NULL)));
}

/* A storage by itself: its elements in a row. */
static bool add_storage(struct walk *walk, const struct pickle_node *node) {
    struct torch_shape shape = {
        .storage = (uint32_t)node->index, .base = node->offset, .extent = node->length, .rank = 1};
    shape.dtype = walk->torch->storages[node->index].dtype;
    if (shape.dtype == TC_NONE)
        shape.dtype = TC_U8;
    shape.size[0] = node->length / (tc_dtype_bits(shape.dtype) / 8);
    torch_dense(&shape);
    return add_tensor(walk, "", &shape, NULL);
}

static bool add_numpy(struct walk *walk, const struct pickle_node *node) {
    struct torch_shape shape = {0};
    bool known = true;
    if (!torch_numpy(walk->torch, node, &shape, &known, walk->error))
        return in_place(walk);
    return known ? add_tensor(walk, "", &shape, NULL)
                 : lose_leaf(walk, "a numpy array of a type that no tensor has");
}

static bool add_call(struct walk *walk, const struct pickle_node *node) {
    switch ((enum pickle_global)node->callable->global) {
    case PICKLE_REBUILD:
    case PICKLE_REBUILD_V2:
    case PICKLE_REBUILD_V3:
        return add_part(walk, node, "", NULL);
    case PICKLE_REBUILD_SPARSE:
        return add_sparse(walk, node);
    case PICKLE_REBUILD_QUANTIZED:
        return add_quantized(walk, node);
    case PICKLE_NUMPY_SCALAR:
    case PICKLE_NUMPY_RECONSTRUCT:
    case PICKLE_NUMPY_FROMBUFFER:
        return add_numpy(walk, node);
    case PICKLE_NUMPY_DTYPE:
        return lose_leaf(walk, "a numpy dtype");
    case PICKLE_KNOWN_UNSUPPORTED:
        tc_fail(walk->error, TC_UNSUPPORTED, "tensor-kind",
                "a kind of tensor that is not supported: it is made by %.*s",
                tc_text_shown(pickle_text(node->callable), 200), node->callable->text);
        return in_place(walk);
    default:
        return bad(walk, "a value that is neither a tensor nor plain data");
    }
}

/* The walk */

static bool is_container(const struct pickle_node *node) {
    return node->kind >= PICKLE_LIST && node->kind <= PICKLE_SET;
}

static bool enter(struct walk *walk, struct pickle_node *node, bool members) {
    if (node->open)
        return bad(walk, "a list or dict holds itself");
    if (walk->depth == MAX_DEPTH) {
        tc_fail(walk->error, TC_UNSAFE, "pickle-limit",
                "the pickle's values are nested more than %u deep", MAX_DEPTH);
        return tc_error_hint(walk->error, TC_FIXED_LIMIT);
    }
    /* Tensors are written in one dict; a module's nest by themselves. */
    if (!walk->torch->script && (walk->depth || node->kind != PICKLE_DICT))
        walk->torch->reader->beyond = "lists or dicts in one another";
    node->open = true;
    walk->frames[walk->depth++] =
        (struct frame){.node = node, .path = walk->path.length, .members = members};
    return true;
}

static int compare_keys(const void *a, const void *b) {
    const struct pickle_node *x = (*(struct pickle_node *const *const *)a)[0];
    const struct pickle_node *y = (*(struct pickle_node *const *const *)b)[0];
    int order = (x->kind == PICKLE_INT) - (y->kind == PICKLE_INT);
    if (order == 0 && x->kind == PICKLE_INT)
        order = (x->integer > y->integer) - (x->integer < y->integer);
    else if (order == 0)
        order = tc_text_compare(pickle_text(x), pickle_text(y));
    if (order)
        return order;
    /* As they came: items lie in one list. */
    uintptr_t p = (uintptr_t) * (struct pickle_node *const *const *)a;
    uintptr_t q = (uintptr_t) * (struct pickle_node *const *const *)b;
    return (p > q) - (p < q);
}

/* A key that came again has the last value in the first place, as in Python. */
static bool settle_dict(struct walk *walk, struct pickle_node *dict) {
    size_t pairs = dict->count / 2;
    for (size_t i = 0; i < pairs; i++) {
        uint8_t kind = dict->items[2 * i]->kind;
        if (kind != PICKLE_TEXT && kind != PICKLE_INT && kind != PICKLE_LONG) {
            tc_fail(walk->error, TC_UNSUPPORTED, "key",
                    "a dict has a key that is neither a string nor an integer");
            return in_place(walk);
        }
    }
    struct pickle_node ***order = malloc((pairs ? pairs : 1) * sizeof *order);
    if (!order)
        return tc_fail_memory(walk->error);
    for (size_t i = 0; i < pairs; i++)
        order[i] = dict->items + 2 * i;
    qsort(order, pairs, sizeof *order, compare_keys);
    bool again = false;
    for (size_t i = pairs; i > 1; i--) {
        struct pickle_node **pair = order[i - 1];
        struct pickle_node **earlier = order[i - 2];
        const struct pickle_node *x = pair[0];
        const struct pickle_node *y = earlier[0];
        bool same = x->kind == PICKLE_INT || y->kind == PICKLE_INT
                        ? x->kind == y->kind && x->integer == y->integer
                        : tc_text_equal(pickle_text(x), pickle_text(y));
        if (!same)
            continue;
        earlier[1] = pair[1];
        pair[0] = NULL;
        again = true;
    }
    free(order);
    if (!again)
        return true;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < dict->count; i += 2)
        if (dict->items[i]) {
            dict->items[kept++] = dict->items[i];
            dict->items[kept++] = dict->items[i + 1];
        }
    dict->count = kept;
    return true;
}

static bool only_scalars(const struct pickle_node *node) {
    for (size_t i = 0; i < node->count; i++)
        if (!torch_leaf_is_scalar(node->items[i]))
            return false;
    return true;
}

static struct pickle_node *find_key(const struct pickle_node *dict, const char *key) {
    struct pickle_node *found = NULL;
    for (size_t i = 0; pickle_is(dict, PICKLE_DICT) && i + 1 < dict->count; i += 2)
        if (dict->items[i]->kind == PICKLE_TEXT &&
            tc_text_equal(pickle_text(dict->items[i]), tc_text_of(key)))
            found = dict->items[i + 1];
    return found;
}

/* Parameters, buffers and modules of a pickled module, in the order in which
 * its state dict would have them. */
static bool enter_module(struct walk *walk, const struct pickle_node *state) {
    static const char *const kinds[] = {"_modules", "_buffers", "_parameters"};
    for (size_t i = 0; i < 3; i++) {
        struct pickle_node *dict = find_key(state, kinds[i]);
        if (!pickle_is(dict, PICKLE_DICT) || dict->count == 0)
            continue;
        if (!settle_dict(walk, dict) || !enter(walk, dict, true))
            return false;
    }
    return true;
}

static bool visit_container(struct walk *walk, struct pickle_node *node, bool members) {
    if (node->kind == PICKLE_DICT ? node->count == 0 : only_scalars(node))
        return members || add_leaf(walk, node);
    if (node->kind == PICKLE_DICT && !settle_dict(walk, node))
        return false;
    return enter(walk, node, members);
}

/* Objects: a module's tensors, else whatever the state and the content hold. */
static bool visit_object(struct walk *walk, struct pickle_node *node, bool members) {
    struct pickle_node *state = node->state;
    bool script = node->callable && node->callable->global == PICKLE_SCRIPT_CLASS;
    /* (dict, slots) is how objects with slots have it. */
    if (!script && pickle_is(state, PICKLE_TUPLE) && state->count == 2)
        state = state->items[0];
    if (find_key(state, "_parameters") || find_key(state, "_modules"))
        return enter_module(walk, state);
    if (node->content && !visit_container(walk, node->content, members))
        return false;
    if (!state || !is_container(state))
        return true;
    return visit_container(walk, state, members || script);
}

static bool visit(struct walk *walk, struct pickle_node *node, bool members) {
    uint64_t limit = FREE_VISITS + VISITS_PER_STEP * walk->torch->steps;
    if (++walk->visits > limit) {
        tc_fail(walk->error, TC_UNSAFE, "pickle-limit",
                "the pickle's values repeat along more than %llu paths",
                (unsigned long long)limit);
        return tc_error_hint(walk->error, TC_FIXED_LIMIT);
    }
    if (torch_leaf_is_scalar(node))
        return members || add_leaf(walk, node);
    if (is_container(node))
        return visit_container(walk, node, members);
    if (node->kind == PICKLE_OBJECT)
        return visit_object(walk, node, members);
    if (node->kind == PICKLE_STORAGE)
        return add_storage(walk, node);
    if (node->kind == PICKLE_BYTES)
        return lose_leaf(walk, "a long string of bytes");
    const struct pickle_node *inner = unwrap(walk, node);
    if (!inner)
        return false;
    return inner->kind == PICKLE_CALL ? add_call(walk, inner)
                                      : bad(walk, "a parameter holds no tensor");
}

/* The next child of the innermost container; its name is appended. */
static struct pickle_node *next_child(struct walk *walk, struct frame *frame) {
    struct pickle_node *node = frame->node;
    if (frame->next >= node->count)
        return NULL;
    walk->path.length = frame->path;
    if (walk->path.length)
        tc_buffer_add_string(&walk->path, ".");
    if (node->kind != PICKLE_DICT) {
        tc_buffer_add_number(&walk->path, frame->next);
        return node->items[frame->next++];
    }
    const struct pickle_node *key = node->items[frame->next];
    size_t start = walk->path.length;
    if (key->kind == PICKLE_INT)
        tc_buffer_addf(&walk->path, "%lld", (long long)key->integer);
    else
        tc_buffer_add_text(&walk->path, pickle_text(key));
    for (size_t i = start; walk->torch->bars && i < walk->path.length; i++)
        if (walk->path.bytes[i] == '|')
            walk->path.bytes[i] = '.';
    frame->next += 2;
    return node->items[frame->next - 1];
}

bool torch_walk(struct torch *torch, struct pickle_node *root, struct tc_error *error) {
    struct walk walk = {.torch = torch, .error = error};
    if (torch->watch.context)
        return true;
    walk.frames = calloc(MAX_DEPTH, sizeof *walk.frames);
    bool ok = walk.frames ? true : tc_fail_memory(error);
    if (ok && torch_leaf_is_scalar(root))
        ok = tc_fail(error, TC_UNSUPPORTED, "no-tensor",
                     "the pickle holds a single value that is no tensor");
    /* The outermost list has no name, and so is no leaf, whatever it holds. */
    if (ok && !is_container(root) && root->kind != PICKLE_OBJECT)
        tc_buffer_add_string(&walk.path, "tensor");
    if (ok && is_container(root))
        ok = (root->kind != PICKLE_DICT || settle_dict(&walk, root)) && enter(&walk, root, false);
    else if (ok) {
        if (!torch->script)
            torch->reader->beyond = "a tensor without a name";
        ok = visit(&walk, root, false);
    }
    while (ok && walk.depth) {
        struct frame *frame = &walk.frames[walk.depth - 1];
        struct pickle_node *child = next_child(&walk, frame);
        ok = tc_buffer_ok(&walk.path, error);
        if (ok && child)
            ok = visit(&walk, child, frame->members);
        else if (ok) {
            frame->node->open = false;
            walk.depth--;
        }
    }
    tc_buffer_release(&walk.path);
    free(walk.frames);
    return ok && tc_metadata_sort(&torch->reader->table.metadata, error);
}
