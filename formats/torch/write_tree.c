#include "formats/torch/write_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/pickle/opcodes.h"

/* The most bytes of one of numpy's arrays, which stand in the pickle. */
#define MAX_ARRAY ((uint64_t)256 << 20)

struct object {
    struct torch_pickler *pickler;
    const struct tc_tree *tree;
    const size_t *places;
    struct tc_error *error;
};

static size_t item_of(const struct object *object, const struct tc_tree_tensor *tensor,
                      unsigned part) {
    return object->places[tensor->position[part]] - 1;
}

/* Globals of the pickle, each known by a word of the tree. A word that is on no list can't come
 * here: the tree was checked. */

static const char *named(const char *const *pairs, struct tc_text word) {
    for (; pairs[0]; pairs += 2)
        if (tc_text_equal(word, tc_text_of(pairs[0])))
            return pairs[1];
    return "torch\nfloat32";
}

static const char *const dtypes[] = {"float32",
                                     "torch\nfloat32",
                                     "float64",
                                     "torch\nfloat64",
                                     "float16",
                                     "torch\nfloat16",
                                     "bfloat16",
                                     "torch\nbfloat16",
                                     "int64",
                                     "torch\nint64",
                                     "int32",
                                     "torch\nint32",
                                     "int16",
                                     "torch\nint16",
                                     "int8",
                                     "torch\nint8",
                                     "uint8",
                                     "torch\nuint8",
                                     "uint16",
                                     "torch\nuint16",
                                     "uint32",
                                     "torch\nuint32",
                                     "uint64",
                                     "torch\nuint64",
                                     "bool",
                                     "torch\nbool",
                                     "complex32",
                                     "torch\ncomplex32",
                                     "complex64",
                                     "torch\ncomplex64",
                                     "complex128",
                                     "torch\ncomplex128",
                                     "float8_e4m3fn",
                                     "torch\nfloat8_e4m3fn",
                                     "float8_e5m2",
                                     "torch\nfloat8_e5m2",
                                     "float8_e4m3fnuz",
                                     "torch\nfloat8_e4m3fnuz",
                                     "float8_e5m2fnuz",
                                     "torch\nfloat8_e5m2fnuz",
                                     "float8_e8m0fnu",
                                     "torch\nfloat8_e8m0fnu",
                                     "float4_e2m1fn_x2",
                                     "torch\nfloat4_e2m1fn_x2",
                                     "qint8",
                                     "torch\nqint8",
                                     "quint8",
                                     "torch\nquint8",
                                     "qint32",
                                     "torch\nqint32",
                                     "uint1",
                                     "torch\nuint1",
                                     "uint2",
                                     "torch\nuint2",
                                     "uint3",
                                     "torch\nuint3",
                                     "uint4",
                                     "torch\nuint4",
                                     "uint5",
                                     "torch\nuint5",
                                     "uint6",
                                     "torch\nuint6",
                                     "uint7",
                                     "torch\nuint7",
                                     "int1",
                                     "torch\nint1",
                                     "int2",
                                     "torch\nint2",
                                     "int3",
                                     "torch\nint3",
                                     "int4",
                                     "torch\nint4",
                                     "int5",
                                     "torch\nint5",
                                     "int6",
                                     "torch\nint6",
                                     "int7",
                                     "torch\nint7",
                                     "bits8",
                                     "torch\nbits8",
                                     "bits16",
                                     "torch\nbits16",
                                     "bits1x8",
                                     "torch\nbits1x8",
                                     "bits2x4",
                                     "torch\nbits2x4",
                                     "bits4x2",
                                     "torch\nbits4x2",
                                     "quint4x2",
                                     "torch\nquint4x2",
                                     "quint2x4",
                                     "torch\nquint2x4",
                                     "bcomplex32",
                                     "torch\nbcomplex32",
                                     NULL};

static const char *const layouts[] = {
    "strided",    "torch.strided",    "sparse_coo", "torch.sparse_coo",
    "sparse_csr", "torch.sparse_csr", "sparse_csc", "torch.sparse_csc",
    "sparse_bsr", "torch.sparse_bsr", "sparse_bsc", "torch.sparse_bsc",
    NULL};

/* As Python calls them in a pickle of protocol 2. */
static const char *const factories[] = {
    "list",  "__builtin__\nlist",  "dict", "__builtin__\ndict",    "int", "__builtin__\nlong",
    "float", "__builtin__\nfloat", "str",  "__builtin__\nunicode", "set", "__builtin__\nset",
    "tuple", "__builtin__\ntuple", "bool", "__builtin__\nbool",    NULL};

/* Plain values */

static void call(struct torch_pickler *pickler, unsigned count) {
    pickler_end_tuple(pickler, count);
    pickler_byte(pickler, OP_REDUCE);
}

static void add_device(struct torch_pickler *pickler, struct tc_text name) {
    const char *colon = memchr(name.bytes, ':', name.length);
    size_t word = colon ? (size_t)(colon - name.bytes) : name.length;
    uint64_t number = 0;
    for (size_t i = word + 1; i < name.length; i++)
        number = number * 10 + (uint64_t)(name.bytes[i] - '0');
    pickler_shared(pickler, "torch\ndevice");
    pickler_text(pickler, (struct tc_text){name.bytes, word});
    if (colon)
        pickler_integer(pickler, number);
    call(pickler, colon ? 2 : 1);
}

static void add_bytearray(struct torch_pickler *pickler, const struct tc_tree_node *node) {
    pickler_shared(pickler, "__builtin__\nbytearray");
    if (node->length)
        pickler_latin1(pickler, node->text, node->length, "latin-1");
    call(pickler, node->length ? 2 : 0);
}

/* Writes a value that holds no others; false where it is none. */
static bool add_plain(struct torch_pickler *pickler, const struct tc_tree_node *node) {
    switch ((enum tc_tree_kind)node->kind) {
    case TC_TREE_NONE:
        pickler_byte(pickler, OP_NONE);
        return true;
    case TC_TREE_BOOL:
        pickler_boolean(pickler, node->value);
        return true;
    case TC_TREE_INT:
        pickler_signed(pickler, node->integer);
        return true;
    case TC_TREE_LONG:
        pickler_long(pickler, tc_tree_text(node));
        return true;
    case TC_TREE_FLOAT:
        pickler_real(pickler, node->real);
        return true;
    case TC_TREE_COMPLEX:
        pickler_shared(pickler, "__builtin__\ncomplex");
        pickler_real(pickler, node->real);
        pickler_real(pickler, node->imaginary);
        call(pickler, 2);
        return true;
    case TC_TREE_TEXT:
    case TC_TREE_HALVES:
        pickler_text(pickler, tc_tree_text(node));
        return true;
    case TC_TREE_BYTES:
        pickler_bytes(pickler, node->text, node->length);
        return true;
    case TC_TREE_BYTEARRAY:
        add_bytearray(pickler, node);
        return true;
    case TC_TREE_DTYPE:
        pickler_shared(pickler, named(dtypes, tc_tree_text(node)));
        return true;
    case TC_TREE_DEVICE:
        add_device(pickler, tc_tree_text(node));
        return true;
    case TC_TREE_LAYOUT:
        pickler_shared(pickler, "torch.serialization\n_get_layout");
        pickler_shared(pickler, named(layouts, tc_tree_text(node)));
        call(pickler, 1);
        return true;
    default:
        return false;
    }
}

/* numpy */

static const char *numpy_code(unsigned dtype) {
    switch (dtype) {
    case TC_BOOL:
        return "b1";
    case TC_U8:
        return "u1";
    case TC_I8:
        return "i1";
    case TC_U16:
        return "u2";
    case TC_I16:
        return "i2";
    case TC_U32:
        return "u4";
    case TC_I32:
        return "i4";
    case TC_U64:
        return "u8";
    case TC_I64:
        return "i8";
    case TC_F16:
        return "f2";
    case TC_F32:
        return "f4";
    case TC_F64:
        return "f8";
    case TC_C64:
        return "c8";
    default:
        return "c16";
    }
}

/* numpy.dtype("f4", False, True) with the state (3, "<", None, None, None, -1, -1, 0). */
static void add_dtype(struct torch_pickler *pickler, unsigned dtype) {
    bool one = tc_dtype_bits(dtype) == 8;
    pickler_shared(pickler, "numpy\ndtype");
    pickler_shared(pickler, numpy_code(dtype));
    pickler_boolean(pickler, false);
    pickler_boolean(pickler, true);
    call(pickler, 3);
    pickler_byte(pickler, OP_MARK);
    pickler_integer(pickler, 3);
    pickler_shared(pickler, one ? "|" : "<");
    for (int i = 0; i < 3; i++)
        pickler_byte(pickler, OP_NONE);
    pickler_signed(pickler, -1);
    pickler_signed(pickler, -1);
    pickler_integer(pickler, 0);
    pickler_byte(pickler, OP_TUPLE);
    pickler_byte(pickler, OP_BUILD);
}

/* The elements as they are written. What a cast may lose is counted where they are read as any
 * other tensor's. */
static bool read_array(const struct tc_item *item, unsigned char *bytes, struct tc_error *error) {
    const struct tc_tensor *tensor = item->tensor;
    if (item->dtype == tensor->dtype)
        return tc_reader_read(item->reader, tensor, 0, bytes, item->nbytes, error);
    unsigned char *own = malloc(tensor->nbytes ? tensor->nbytes : 1);
    if (!own)
        return tc_fail_memory(error);
    bool ok = tc_reader_read(item->reader, tensor, 0, own, tensor->nbytes, error);
    if (ok)
        tc_cast(tensor->dtype, item->dtype, own, bytes, tc_shape_count(item->shape, item->rank),
                NULL);
    free(own);
    return ok;
}

/* Its elements stand in the pickle. */
static bool add_numpy(struct object *object, const struct tc_tree_node *node) {
    struct torch_pickler *pickler = object->pickler;
    const struct tc_item *item = &pickler->items[item_of(object, node->tensor, 0)];
    if (item->nbytes > MAX_ARRAY || item->tensor->nbytes > MAX_ARRAY) {
        tc_fail(object->error, TC_UNSUPPORTED, "array-size",
                "one of numpy's arrays has more bytes than a pickle takes (limit %llu)",
                (unsigned long long)MAX_ARRAY);
        return tc_error_in_tensor(object->error, item->name.bytes, item->name.length);
    }
    unsigned char *bytes = malloc(item->nbytes ? item->nbytes : 1);
    bool ok = bytes ? read_array(item, bytes, object->error) : tc_fail_memory(object->error);
    if (ok && node->kind == TC_TREE_SCALAR) {
        pickler_shared(pickler, "numpy._core.multiarray\nscalar");
        add_dtype(pickler, item->dtype);
        pickler_bytes(pickler, bytes, item->nbytes);
        call(pickler, 2);
    } else if (ok) {
        pickler_shared(pickler, "numpy._core.multiarray\n_reconstruct");
        pickler_shared(pickler, "numpy\nndarray");
        pickler_sizes(pickler, (const uint64_t[]){0}, 1);
        pickler_bytes(pickler, "b", 1);
        call(pickler, 3);
        pickler_byte(pickler, OP_MARK);
        pickler_integer(pickler, 1);
        pickler_sizes(pickler, item->shape, item->rank);
        add_dtype(pickler, item->dtype);
        pickler_boolean(pickler, false); /* not in Fortran's order */
        pickler_bytes(pickler, bytes, item->nbytes);
        pickler_byte(pickler, OP_TUPLE);
        pickler_byte(pickler, OP_BUILD);
    }
    free(bytes);
    return ok;
}

/* Values that hold others. What stands before its items, between them and its attributes, and
 * behind all of them. */

static void begin_attributes(struct torch_pickler *pickler) {
    pickler_byte(pickler, OP_EMPTY_DICT);
    pickler_byte(pickler, OP_MARK);
}

/* _rebuild_from_type_v2(function, Tensor, arguments, {attributes}), or without attributes the
 * function itself; and a parameter around a tensor, which has its attributes. */
static void begin_tensor(struct object *object, const struct tc_tree_node *node) {
    struct torch_pickler *pickler = object->pickler;
    const struct tc_tree_tensor *tensor = node->tensor;
    size_t index = item_of(object, tensor, 0);
    if (node->kind == TC_TREE_PARAMETER) {
        pickler_shared(pickler, node->count ? "torch._utils\n_rebuild_parameter_with_state"
                                            : "torch._utils\n_rebuild_parameter");
        pickler_begin_tuple(pickler, node->count ? 4 : 3);
        pickler_dense(pickler, index);
        pickler_boolean(pickler, tensor->requires_grad);
        pickler_empty_dict(pickler);
    } else if (node->count) {
        pickler_shared(pickler, "torch._tensor\n_rebuild_from_type_v2");
        pickler_begin_tuple(pickler, 4);
        pickler_tensor_function(pickler, index);
        pickler_shared(pickler, "torch\nTensor");
        pickler_tensor_arguments(pickler, index, tensor->requires_grad);
    } else {
        pickler_tensor_function(pickler, index);
        pickler_tensor_arguments(pickler, index, tensor->requires_grad);
    }
    if (node->count)
        begin_attributes(pickler);
}

static void end_tensor(struct torch_pickler *pickler, const struct tc_tree_node *node) {
    if (node->count)
        pickler_byte(pickler, OP_SETITEMS);
    if (node->count || node->kind == TC_TREE_PARAMETER)
        pickler_end_tuple(pickler, node->count ? 4 : 3);
    pickler_byte(pickler, OP_REDUCE);
}

static void begin_dict(struct torch_pickler *pickler, const struct tc_tree_node *node) {
    if (node->kind == TC_TREE_ORDERED_DICT)
        pickler_empty_dict(pickler);
    else if (node->kind == TC_TREE_DEFAULT_DICT) {
        pickler_shared(pickler, "collections\ndefaultdict");
        if (node->length)
            pickler_shared(pickler, named(factories, tc_tree_text(node)));
        call(pickler, node->length ? 1 : 0);
    } else {
        if (node->kind == TC_TREE_COUNTER)
            pickler_shared(pickler, "collections\nCounter");
        pickler_byte(pickler, OP_EMPTY_DICT);
    }
    if (node->count)
        pickler_byte(pickler, OP_MARK);
}

static bool begin(struct object *object, const struct tc_tree_node *node) {
    struct torch_pickler *pickler = object->pickler;
    switch ((enum tc_tree_kind)node->kind) {
    case TC_TREE_SIZE:
        pickler_shared(pickler, "torch\nSize");
        pickler_begin_tuple(pickler, node->count);
        return true;
    case TC_TREE_TUPLE:
        pickler_begin_tuple(pickler, node->count);
        return true;
    case TC_TREE_SET:
        pickler_shared(pickler, "__builtin__\nset");
        /* fallthrough */
    case TC_TREE_LIST:
        pickler_byte(pickler, OP_EMPTY_LIST);
        if (node->count)
            pickler_byte(pickler, OP_MARK);
        return true;
    case TC_TREE_TENSOR:
    case TC_TREE_PARAMETER:
        begin_tensor(object, node);
        return true;
    case TC_TREE_SPARSE:
        return pickler_sparse(pickler, pickler->slots[item_of(object, node->tensor, 0)].group,
                              object->error);
    case TC_TREE_QUANTISED:
        pickler_quantised(pickler, item_of(object, node->tensor, 0));
        return true;
    case TC_TREE_ARRAY:
    case TC_TREE_SCALAR:
        return add_numpy(object, node);
    default:
        begin_dict(pickler, node);
        return true;
    }
}

/* Behind a value's items: the attributes of an OrderedDict are still to come. */
static void end_items(struct torch_pickler *pickler, const struct tc_tree_node *node) {
    bool dict = node->kind >= TC_TREE_DICT && node->kind <= TC_TREE_DEFAULT_DICT;
    if (dict && node->count)
        pickler_byte(pickler, OP_SETITEMS);
    if (node->attributes)
        begin_attributes(pickler);
}

static void end(struct torch_pickler *pickler, const struct tc_tree_node *node) {
    switch ((enum tc_tree_kind)node->kind) {
    case TC_TREE_SIZE:
        pickler_end_tuple(pickler, node->count);
        call(pickler, 1);
        return;
    case TC_TREE_TUPLE:
        pickler_end_tuple(pickler, node->count);
        return;
    case TC_TREE_SET:
    case TC_TREE_LIST:
        if (node->count)
            pickler_byte(pickler, OP_APPENDS);
        if (node->kind == TC_TREE_SET)
            call(pickler, 1);
        return;
    case TC_TREE_TENSOR:
    case TC_TREE_PARAMETER:
        end_tensor(pickler, node);
        return;
    case TC_TREE_COUNTER:
        call(pickler, 1);
        return;
    default:
        if (node->attributes) {
            pickler_byte(pickler, OP_SETITEMS);
            pickler_byte(pickler, OP_BUILD);
        }
    }
}

/* A value whose items, or then attributes, are being written. */
struct level {
    uint32_t node;
    uint32_t left;
    bool attributes;
};

/* Ends values that have nothing left, from the innermost on; returns how many are open. */
static size_t end_levels(struct object *object, struct level *levels, size_t depth) {
    for (; depth; depth--) {
        struct level *level = &levels[depth - 1];
        const struct tc_tree_node *node = &object->tree->nodes[level->node];
        if (level->left == 0 && !level->attributes) {
            end_items(object->pickler, node);
            level->attributes = true;
            level->left = node->attributes;
        }
        if (level->left) {
            level->left--;
            return depth;
        }
        end(object->pickler, node);
    }
    return 0;
}

bool torch_write_tree(struct torch_pickler *pickler, const size_t *places, struct tc_error *error) {
    const struct tc_tree *tree = pickler->writer->plan->tree;
    struct object object = {pickler, tree, places, error};
    /* The parser bounds the depth; a tensor's attributes may be one deeper. */
    struct level *levels =
        tc_arena_array(&pickler->writer->arena, TC_TREE_MAX_DEPTH + 8, sizeof *levels, error);
    size_t depth = 0;
    if (!levels)
        return false;
    for (size_t i = 0; i < tree->count; i++) {
        const struct tc_tree_node *node = &tree->nodes[i];
        if (!add_plain(pickler, node)) {
            if (!begin(&object, node))
                return false;
            levels[depth++] = (struct level){(uint32_t)i, node->count, false};
        }
        depth = end_levels(&object, levels, depth);
        if (pickler->text.failed)
            break;
    }
    return tc_buffer_ok(&pickler->text, error);
}
