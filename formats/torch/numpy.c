/*
 * numpy's arrays and scalars in a pickle:
 *     _reconstruct(ndarray, (0,), b'b')  BUILD (version, shape, dtype, fortran, data)
 *     _frombuffer(data, dtype, shape, order)
 *     scalar(dtype, data)
 *     dtype('f4', False, True)  BUILD (3, '<', None, …)
 */
#include <string.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"

static bool bad(struct tc_error *error, const char *what) {
    return tc_fail(error, TC_INVALID, "numpy", "a numpy array %s", what);
}

static const struct {
    const char *name;
    enum tc_dtype dtype;
} codes[] = {
    {"b1", TC_BOOL}, {"u1", TC_U8},  {"i1", TC_I8},  {"u2", TC_U16},   {"i2", TC_I16},
    {"u4", TC_U32},  {"i4", TC_I32}, {"u8", TC_U64}, {"i8", TC_I64},   {"f2", TC_F16},
    {"f4", TC_F32},  {"f8", TC_F64}, {"c8", TC_C64}, {"c16", TC_C128},
};

/* The dtype's name without its byte order. */
static struct tc_text read_code(const struct pickle_node *dtype) {
    const struct pickle_node *name =
        pickle_calls(dtype, PICKLE_NUMPY_DTYPE) ? pickle_item(dtype->arguments, 0) : NULL;
    struct tc_text code = pickle_is(name, PICKLE_TEXT) ? pickle_text(name) : TC_TEXT("");
    if (code.length && memchr("<>|=", code.bytes[0], 4)) {
        code.bytes++;
        code.length--;
    }
    return code;
}

/* Types without a fixed size (text, records) have it in their state, all others in
 * their name. */
bool torch_numpy_item(const struct pickle_node *dtype, uint64_t *nbytes, bool *objects) {
    struct tc_text code = read_code(dtype);
    const struct pickle_node *size = code.length ? pickle_item(pickle_state(dtype), 5) : NULL;
    *objects = code.length && code.bytes[0] == 'O';
    *nbytes = 0;
    if (pickle_is(size, PICKLE_INT) && size->integer >= 0) {
        *nbytes = (uint64_t)size->integer;
        return true;
    }
    for (size_t i = 1; i < code.length; i++) {
        if (code.bytes[i] < '0' || code.bytes[i] > '9' || *nbytes > 1u << 30)
            return false;
        *nbytes = *nbytes * 10 + (uint64_t)(code.bytes[i] - '0');
    }
    *nbytes *= code.length && code.bytes[0] == 'U' ? 4 : 1;
    return code.length > 1 || *objects;
}

/* Types that the package ml_dtypes adds to numpy, which jax uses. */
static enum tc_dtype find_class(struct tc_text name) {
    static const struct {
        const char *name;
        enum tc_dtype dtype;
    } classes[] = {
        {"ml_dtypes.bfloat16", TC_BF16},
        {"ml_dtypes.float8_e4m3fn", TC_F8_E4M3},
        {"ml_dtypes.float8_e5m2", TC_F8_E5M2},
        {"ml_dtypes.float8_e4m3fnuz", TC_F8_E4M3FNUZ},
        {"ml_dtypes.float8_e5m2fnuz", TC_F8_E5M2FNUZ},
        {"ml_dtypes.float8_e8m0fnu", TC_F8_E8M0},
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (tc_text_equal(name, tc_text_of(classes[i].name)))
            return classes[i].dtype;
    return TC_NONE;
}

/* Reads a numpy dtype; TC_NONE where its elements are not numbers. */
static bool read_dtype(const struct pickle_node *node, enum tc_dtype *dtype, bool *swap,
                       struct tc_error *error) {
    const struct pickle_node *name =
        pickle_calls(node, PICKLE_NUMPY_DTYPE) ? pickle_item(node->arguments, 0) : NULL;
    const struct pickle_node *order = name ? pickle_item(pickle_state(node), 1) : NULL;
    if (pickle_is(name, PICKLE_GLOBAL)) {
        *dtype = find_class(pickle_text(name));
        return true;
    }
    if (pickle_is(node, PICKLE_OBJECT) || pickle_is(name, PICKLE_OBJECT)) {
        *dtype = TC_NONE;
        return true;
    }
    if (!pickle_is(name, PICKLE_TEXT))
        return bad(error, "has no dtype");
    struct tc_text code = read_code(node);
    *swap = pickle_is(order, PICKLE_TEXT) && tc_text_equal(pickle_text(order), TC_TEXT(">"));
    *swap |= name->length && name->text[0] == '>';
    *dtype = TC_NONE;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (tc_text_equal(code, tc_text_of(codes[i].name)))
            *dtype = codes[i].dtype;
    return true;
}

/* The parts of an array, from whichever of the three calls it is. */
struct parts {
    const struct pickle_node *dtype;
    const struct pickle_node *shape; /* NULL: a scalar */
    const struct pickle_node *data;
    bool fortran;
};

static bool read_parts(const struct pickle_node *node, struct parts *parts,
                       struct tc_error *error) {
    const struct pickle_node *arguments = node->arguments;
    switch ((enum pickle_global)node->callable->global) {
    case PICKLE_NUMPY_SCALAR:
        *parts =
            (struct parts){.dtype = pickle_item(arguments, 0), .data = pickle_item(arguments, 1)};
        return parts->data || bad(error, "has no data");
    case PICKLE_NUMPY_FROMBUFFER: {
        const struct pickle_node *order = pickle_item(arguments, 3);
        *parts = (struct parts){.data = pickle_item(arguments, 0),
                                .dtype = pickle_item(arguments, 1),
                                .shape = pickle_item(arguments, 2)};
        if (!pickle_is(order, PICKLE_TEXT) || order->length != 1 ||
            (order->text[0] != 'C' && order->text[0] != 'F'))
            return bad(error, "has no order");
        parts->fortran = order->text[0] == 'F';
        return true;
    }
    default: {
        const struct pickle_node *state = pickle_state(node);
        const struct pickle_node *fortran = pickle_item(state, 3);
        *parts = (struct parts){.shape = pickle_item(state, 1),
                                .dtype = pickle_item(state, 2),
                                .data = pickle_item(state, 4)};
        if (!pickle_is(fortran, PICKLE_BOOL) && !pickle_is(fortran, PICKLE_INT))
            return bad(error, "was left without its data");
        parts->fortran = fortran->kind == PICKLE_BOOL ? fortran->value != 0 : fortran->integer != 0;
        return true;
    }
    }
}

static void fortran_strides(struct torch_shape *shape) {
    uint64_t stride = 1;
    for (unsigned i = 0; i < shape->rank; i++) {
        shape->stride[i] = stride;
        stride *= shape->size[i] ? shape->size[i] : 1;
    }
}

/* What an array is whose elements are not numbers. */
static const char *name_other(const struct pickle_node *dtype) {
    struct tc_text code = read_code(dtype);
    switch (code.length ? code.bytes[0] : 0) {
    case 'O':
        return "a numpy array of Python objects";
    case 'S':
    case 'U':
    case 'a':
        return "a numpy array of text";
    case 'M':
    case 'm':
        return "a numpy array of dates or times";
    case 'V':
        return "a numpy array of records";
    default:
        return "a numpy array of a type that no tensor has";
    }
}

bool torch_numpy(struct torch *torch, const struct pickle_node *node, struct torch_shape *shape,
                 const char **other, struct tc_error *error) {
    struct parts parts;
    bool swap = false;
    uint64_t count;
    uint64_t nbytes;
    if (!read_parts(node, &parts, error) || !read_dtype(parts.dtype, &shape->dtype, &swap, error))
        return false;
    *other = shape->dtype == TC_NONE ? name_other(parts.dtype) : NULL;
    if (*other)
        return true;
    bool bytes = parts.data && (parts.data->kind == PICKLE_BYTES ||
                                (parts.data->kind == PICKLE_TEXT && parts.data->raw));
    if (!bytes || (parts.shape && !torch_sizes(parts.shape, shape->size, &shape->rank)))
        return bad(error, "has no shape or no data");
    if (shape->rank > TC_MAX_RANK)
        return tc_fail(error, TC_UNSUPPORTED, "rank", "more than %u dimensions", TC_MAX_RANK);
    if (!tc_shape_measure(shape->dtype, shape->size, shape->rank, &count, &nbytes, error))
        return false;
    if (nbytes != parts.data->length)
        return bad(error, "has more or less data than its shape");
    if (parts.fortran)
        fortran_strides(shape);
    else
        torch_dense(shape);
    shape->extent = nbytes;
    if (!torch_add_bytes(torch, parts.data->text, parts.data->offset, nbytes, &shape->storage,
                         error))
        return false;
    torch->storages[shape->storage].swap = swap;
    return true;
}
