/* The tensors of a checkpoint tree in a table, and the names that a tree may use. */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/tree.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

/* Names */

static bool is_among(struct tc_text name, const char *const *list) {
    for (; *list; list++)
        if (tc_text_equal(name, tc_text_of(*list)))
            return true;
    return false;
}

bool tc_tree_is_dtype(struct tc_text name) {
    static const char *const names[] = {"float32",
                                        "float64",
                                        "float16",
                                        "bfloat16",
                                        "int64",
                                        "int32",
                                        "int16",
                                        "int8",
                                        "uint8",
                                        "uint16",
                                        "uint32",
                                        "uint64",
                                        "bool",
                                        "complex32",
                                        "complex64",
                                        "complex128",
                                        "float8_e4m3fn",
                                        "float8_e5m2",
                                        "float8_e4m3fnuz",
                                        "float8_e5m2fnuz",
                                        "float8_e8m0fnu",
                                        "float4_e2m1fn_x2",
                                        "qint8",
                                        "quint8",
                                        "qint32",
                                        "uint1",
                                        "uint2",
                                        "uint3",
                                        "uint4",
                                        "uint5",
                                        "uint6",
                                        "uint7",
                                        "int1",
                                        "int2",
                                        "int3",
                                        "int4",
                                        "int5",
                                        "int6",
                                        "int7",
                                        "bits8",
                                        "bits16",
                                        "bits1x8",
                                        "bits2x4",
                                        "bits4x2",
                                        "quint4x2",
                                        "quint2x4",
                                        "bcomplex32",
                                        NULL};
    return is_among(name, names);
}

bool tc_tree_is_device(struct tc_text name) {
    static const char *const names[] = {"cpu", "cuda", "mps", "xpu", "meta",
                                        "hpu", "xla",  "npu", NULL};
    const char *colon = memchr(name.bytes, ':', name.length);
    size_t word = colon ? (size_t)(colon - name.bytes) : name.length;
    size_t digits = colon ? name.length - word - 1 : 0;
    if (!is_among((struct tc_text){name.bytes, word}, names) || digits > 3 || (colon && !digits))
        return false;
    /* torch knows no device "cuda:00". */
    if (digits > 1 && colon[1] == '0')
        return false;
    for (size_t i = word + 1; i < name.length; i++)
        if (name.bytes[i] < '0' || name.bytes[i] > '9')
            return false;
    return true;
}

bool tc_tree_is_layout(struct tc_text name) {
    static const char *const names[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                        "sparse_bsr", "sparse_bsc", NULL};
    return is_among(name, names);
}

bool tc_tree_is_factory(struct tc_text name) {
    static const char *const names[] = {"list", "dict",  "int",  "float", "str",
                                        "set",  "tuple", "bool", NULL};
    return is_among(name, names);
}

bool tc_tree_is_attribute(struct tc_text name) {
    size_t start = name.length && name.bytes[0] == '_';
    for (size_t i = start; i < name.length; i++) {
        char c = name.bytes[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && (i == start || (c != '_' && (c < '0' || c > '9'))))
            return false;
    }
    return name.length > start;
}

bool tc_tree_is_dense(const uint64_t *shape, const uint64_t *stride, unsigned rank) {
    uint64_t count = tc_shape_count(shape, rank);
    uint64_t span = 1;
    if (count == 0)
        return false;
    for (unsigned i = 0; i < rank; i++) {
        uint64_t reach;
        if (shape[i] < 2)
            continue;
        if (stride[i] == 0 || !tc_mul(shape[i] - 1, stride[i], &reach) ||
            !tc_add(span, reach, &span))
            return false;
        /* Each axis steps over all elements of those with smaller strides. Of two equal strides
         * one would step over the other's second element. */
        for (unsigned j = 0; j < rank; j++) {
            uint64_t other;
            bool smaller = j != i && shape[j] > 1 && stride[j] <= stride[i];
            if (smaller && (!tc_mul(stride[j], shape[j], &other) || stride[i] < other))
                return false;
        }
    }
    return span / 2 + span % 2 <= count;
}

/* Matching */

struct match {
    struct tc_tree *tree;
    const struct tc_table *table;
    const uint8_t *dtypes; /* by table position; NULL: the table's */
    struct tc_error *error;
    const struct tc_tree_tensor **users; /* by table position */
    size_t used;
};

static bool stale(struct match *match, struct tc_text name, const char *what) {
    return tc_fail(match->error, TC_UNSUPPORTED, "stale-tree", "\"%.*s\" %s",
                   tc_text_shown(name, 200), name.bytes ? name.bytes : "", what);
}

static enum tc_dtype dtype_of(const struct match *match, const struct tc_tensor *tensor) {
    return match->dtypes ? match->dtypes[tensor - match->table->tensors] : tensor->dtype;
}

/* Takes NAME or NAME.ENDING as a tensor's next part. */
static const struct tc_tensor *take(struct match *match, struct tc_tree_tensor *tensor,
                                    const char *ending) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, tensor->name);
    if (ending[0])
        tc_buffer_addf(&name, ".%s", ending);
    const struct tc_tensor *found =
        tc_buffer_ok(&name, match->error)
            ? tc_table_find(match->table,
                            (struct tc_text){name.length ? name.bytes : "", name.length})
            : NULL;
    size_t position = found ? (size_t)(found - match->table->tensors) : 0;
    if (match->error->class == TC_OK && (!found || match->users[position])) {
        stale(match, (struct tc_text){name.bytes, name.length},
              found ? "stands in it twice" : "is not in the file");
        found = NULL;
    }
    tc_buffer_release(&name);
    if (!found)
        return NULL;
    match->users[position] = tensor;
    match->used++;
    tensor->position[tensor->parts++] = position;
    return found;
}

static bool match_sparse(struct match *match, struct tc_tree_tensor *tensor) {
    const struct tc_sparse_layout *layout = tensor->layout;
    unsigned last = layout->parts - 1u;
    const struct tc_tensor *first = take(match, tensor, layout->roles[0]);
    const struct tc_tensor *plain = first;
    if (first && layout->compressed)
        plain = take(match, tensor, layout->roles[1]);
    const struct tc_tensor *values = plain ? take(match, tensor, layout->roles[last - 1]) : NULL;
    const struct tc_tensor *shape = values ? take(match, tensor, layout->roles[last]) : NULL;
    if (!shape)
        return false;
    enum tc_dtype indices = dtype_of(match, first);
    bool fits = (indices == TC_I64 || (layout->compressed && indices == TC_I32)) &&
                dtype_of(match, plain) == indices;
    /* The shape stands in the pickle, as the file has it. */
    return (fits && shape->dtype == TC_I64 && dtype_of(match, shape) == TC_I64 &&
            shape->rank == 1 && shape->shape[0] <= TC_MAX_RANK) ||
           stale(match, tensor->name, "is no sparse tensor any more");
}

static bool match_quantised(struct match *match, struct tc_tree_tensor *tensor) {
    const struct tc_tensor *values = take(match, tensor, "");
    if (!values)
        return false;
    enum tc_dtype dtype = dtype_of(match, values);
    bool fits = dtype == TC_I8 || dtype == TC_U8 || dtype == TC_I32;
    if (tensor->channels) {
        uint64_t axis = (uint64_t)tensor->zero_point;
        const struct tc_tensor *scales = take(match, tensor, "scales");
        const struct tc_tensor *zeros = scales ? take(match, tensor, "zero_points") : NULL;
        if (!zeros)
            return false;
        fits = fits && axis < values->rank && scales->rank == 1 && zeros->rank == 1 &&
               scales->shape[0] == values->shape[axis] && zeros->shape[0] == values->shape[axis] &&
               tc_dtype_is_float(dtype_of(match, scales)) &&
               !tc_dtype_is_complex(dtype_of(match, zeros));
    }
    return fits || stale(match, tensor->name, "is no quantised tensor any more");
}

static bool match_array(struct match *match, struct tc_tree_tensor *tensor, bool scalar) {
    static const tc_dtype_set numbers = TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) |
                                        TC_SET(TC_F32) | TC_SET(TC_F64) | TC_SET(TC_C64) |
                                        TC_SET(TC_C128);
    const struct tc_tensor *values = take(match, tensor, "");
    if (!values)
        return false;
    return (numbers & TC_SET(dtype_of(match, values)) && (!scalar || values->rank == 0)) ||
           stale(match, tensor->name, "is nothing that numpy could hold any more");
}

static bool match_dense(struct match *match, struct tc_tree_tensor *tensor) {
    const struct tc_tensor *values = take(match, tensor, "");
    if (!values)
        return false;
    tensor->dense = true;
    enum tc_dtype dtype = dtype_of(match, values);
    if (tensor->requires_grad && !tc_dtype_is_float(dtype) && !tc_dtype_is_complex(dtype))
        return stale(match, tensor->name, "can have no gradient any more");
    return !tensor->stride || tensor->rank == values->rank ||
           stale(match, tensor->name, "has other dimensions than in the tree");
}

/* Finds the tensor whose storage another one shares, and checks that it lies in there. */
static bool match_view(struct match *match, struct tc_tree_tensor *tensor) {
    const struct tc_table *table = match->table;
    const struct tc_tensor *view = &table->tensors[tensor->position[0]];
    const struct tc_tensor *base = tc_table_find(table, tensor->base);
    const struct tc_tree_tensor *shares = base ? match->users[base - table->tensors] : NULL;
    /* A base has its data to itself, so that nothing goes round. */
    if (!shares || shares == tensor || shares->base.bytes || !shares->dense ||
        base->dtype != view->dtype)
        return stale(match, tensor->name, "shares data with nothing that could have it");
    uint64_t last = tensor->offset;
    bool ok = true;
    bool empty = tc_shape_count(view->shape, view->rank) == 0;
    for (unsigned i = 0; i < view->rank && ok && !empty; i++) {
        uint64_t span;
        ok = tc_mul(view->shape[i] - 1, tensor->stride[i], &span) && tc_add(last, span, &last);
    }
    if (!ok || empty || last >= tc_shape_count(base->shape, base->rank))
        return stale(match, tensor->name, "reaches past the tensor whose data it shares");
    tensor->shares = shares;
    return true;
}

static bool match_node(struct match *match, const struct tc_tree_node *node) {
    switch ((enum tc_tree_kind)node->kind) {
    case TC_TREE_TENSOR:
    case TC_TREE_PARAMETER:
        return match_dense(match, node->tensor);
    case TC_TREE_SPARSE:
        return match_sparse(match, node->tensor);
    case TC_TREE_QUANTISED:
        return match_quantised(match, node->tensor);
    case TC_TREE_ARRAY:
    case TC_TREE_SCALAR:
        return match_array(match, node->tensor, node->kind == TC_TREE_SCALAR);
    default:
        return true;
    }
}

bool tc_tree_match(struct tc_tree *tree, const struct tc_table *table, const uint8_t *dtypes,
                   struct tc_arena *arena, struct tc_error *error) {
    struct match match = {.tree = tree, .table = table, .dtypes = dtypes, .error = error};
    match.users = tc_arena_array(arena, table->count, sizeof *match.users, error);
    if (!match.users)
        return false;
    for (size_t i = 0; i < tree->count; i++)
        if (tree->nodes[i].kind >= TC_TREE_TENSOR)
            tree->nodes[i].tensor->parts = 0; /* it may have been matched before */
    for (size_t i = 0; i < tree->count; i++)
        if (!match_node(&match, &tree->nodes[i]))
            return false;
    for (size_t i = 0; i < table->count; i++)
        if (!match.users[i])
            return stale(&match, table->tensors[i].name, "is not in it");
    for (size_t i = 0; i < tree->count; i++)
        if (tree->nodes[i].kind >= TC_TREE_TENSOR && tree->nodes[i].tensor->base.bytes &&
            !match_view(&match, tree->nodes[i].tensor))
            return false;
    return true;
}
