#include "formats/tf/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/limits.h"
#include "core/io/input.h"
#include "core/tensor/shape.h"

/* How many fields of a message a probe looks at. */
#define MOST_PROBED 4096u
/* A dtype's number plus this is a reference to a variable of that dtype. */
#define REFERENCE 100u

enum {
    DTYPE = 1,
    SHAPE = 2,
    VERSION = 3,
    CONTENT = 4,
    FIRST_LIST = 5,
    INT_VAL = 7,
    LAST_LIST = 18,
    SHAPE_DIM = 2,
    SHAPE_UNKNOWN_RANK = 3,
    DIM_SIZE = 1,
    DT_STRING = 7,
};

static const struct kind {
    uint8_t number;
    uint8_t dtype;
    uint8_t field; /* the list that holds its values */
    uint8_t element;
} kinds[] = {
    {1, TC_F32, 5, WIRE_FIXED32},         {2, TC_F64, 6, WIRE_FIXED64},
    {3, TC_I32, 7, WIRE_VARINT},          {4, TC_U8, 7, WIRE_VARINT},
    {5, TC_I16, 7, WIRE_VARINT},          {6, TC_I8, 7, WIRE_VARINT},
    {8, TC_C64, 9, WIRE_FIXED32},         {9, TC_I64, 10, WIRE_VARINT},
    {10, TC_BOOL, 11, WIRE_VARINT},       {14, TC_BF16, 13, WIRE_VARINT},
    {17, TC_U16, 7, WIRE_VARINT},         {18, TC_C128, 12, WIRE_FIXED64},
    {19, TC_F16, 13, WIRE_VARINT},        {22, TC_U32, 16, WIRE_VARINT},
    {23, TC_U64, 17, WIRE_VARINT},        {24, TC_F8_E5M2, 18, WIRE_BYTES},
    {25, TC_F8_E4M3, 18, WIRE_BYTES},     {26, TC_F8_E4M3FNUZ, 18, WIRE_BYTES},
    {28, TC_F8_E5M2FNUZ, 18, WIRE_BYTES},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* The names of dtypes that are not supported, by number. */
static const char *const unsupported[] = {
    [11] = "QINT8",         [12] = "QUINT8",   [13] = "QINT32",  [15] = "QINT16",
    [16] = "QUINT16",       [20] = "RESOURCE", [21] = "VARIANT", [27] = "FLOAT8_E4M3B11FNUZ",
    [29] = "INT4",          [30] = "UINT4",    [31] = "INT2",    [32] = "UINT2",
    [33] = "FLOAT4_E2M1FN",
};
#define UNSUPPORTED (sizeof unsupported / sizeof *unsupported)

unsigned tf_dtype_number(enum tc_dtype dtype) {
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].dtype == dtype)
            return kinds[i].number;
    return 0;
}

bool tf_name(struct tc_arena *arena, uint64_t number, struct tc_text *name,
             struct tc_error *error) {
    struct tc_buffer text = {0};
    tc_buffer_add_number(&text, number);
    char *copy =
        tc_buffer_ok(&text, error) ? tc_arena_copy(arena, text.bytes, text.length, error) : NULL;
    *name = (struct tc_text){copy, text.length};
    tc_buffer_release(&text);
    return copy != NULL;
}

void tf_reader_init(struct tf_reader *tf, struct tc_reader *reader) {
    *tf = (struct tf_reader){.reader = reader};
    wire_source_init(&tf->source, reader->input);
    typed_reader_init(&tf->typed, &tf->source);
}

static void forget_current(struct tf_reader *tf) {
    if (tf->current)
        tc_view_reader_release(&tf->view_reader);
    tf->current = NULL;
}

void tf_reader_release(struct tf_reader *tf) {
    forget_current(tf);
    typed_reader_release(&tf->typed);
    wire_source_release(&tf->source);
    free(tf->values);
    refused_release(&tf->refused);
}

/* A shape has dimensions and unknown_rank, and nothing else. */
static bool shape_seen(struct wire wire, struct tc_error *ignored) {
    struct wire_field field;
    for (unsigned i = 0; i < MOST_PROBED && wire_next(&wire, &field, ignored); i++)
        if (!(field.number == SHAPE_DIM && field.type == WIRE_BYTES) &&
            !(field.number == SHAPE_UNKNOWN_RANK && field.type == WIRE_VARINT))
            return false;
    return ignored->class == TC_OK;
}

/* Whether the bytes are exactly one number, and so not a message. */
static bool is_number(struct wire wire, struct tc_error *ignored) {
    uint64_t value;
    return wire_varint(&wire, &value, ignored) && wire.at == wire.end;
}

/* An ONNX model must not be taken for a tensor. It has a text in the field of the
 * shape, which looks like a shape only if it is empty, and a graph in field 7, where a
 * tensor has integers. */
bool tf_tensor_seen(struct wire_source *source, uint64_t start, uint64_t end) {
    struct tc_error ignored = {0};
    struct wire wire = wire_open(source, start, end);
    struct wire_field field;
    struct wire_field integers = {0};
    bool scalar = false;
    uint32_t list = 0;
    bool dtype = false;
    bool shape = false;
    for (unsigned i = 0; i < MOST_PROBED && wire_next(&wire, &field, &ignored); i++) {
        bool values = field.number >= FIRST_LIST && field.number <= LAST_LIST;
        bool fits = field.number == DTYPE   ? !dtype && field.type == WIRE_VARINT
                    : field.number == SHAPE ? !shape && field.type == WIRE_BYTES &&
                                                  shape_seen(wire_inside(&wire, &field), &ignored)
                                            : !values || !list || list == field.number;
        if (!fits)
            return false;
        dtype |= field.number == DTYPE;
        shape |= field.number == SHAPE;
        scalar |= field.number == SHAPE && field.length == 0;
        list = values ? field.number : list;
        if (field.number == INT_VAL && field.type == WIRE_BYTES)
            integers = field;
    }
    return ignored.class == TC_OK && dtype && shape &&
           (!scalar || !integers.number || is_number(wire_inside(&wire, &integers), &ignored));
}

/* The fields of a message; one that does not occur has number 0. */
struct fields {
    struct wire_field dtype;
    struct wire_field shape;
    struct wire_field content;
    struct wire_field list; /* the first field of the list of values */
    uint64_t pieces;        /* how many fields the list has */
    uint64_t held;          /* bytes of all these fields */
    unsigned types;         /* wire types of all these fields, a bit each */
    uint32_t second;        /* number of another list of values; 0: none */
    uint32_t unknown;       /* number of an unknown field; 0: none */
};

static bool take_once(struct wire_field *into, const struct wire_field *field, enum wire_type type,
                      const char *what, struct tc_error *error) {
    if (into->number)
        return wire_bad(error, field->at, "%s is there twice", what);
    *into = *field;
    return wire_expect(field, type, what, error);
}

static bool take_field(struct fields *fields, const struct wire_field *field,
                       struct tc_error *error) {
    switch (field->number) {
    case DTYPE:
        return take_once(&fields->dtype, field, WIRE_VARINT, "dtype", error);
    case SHAPE:
        return take_once(&fields->shape, field, WIRE_BYTES, "tensor_shape", error);
    case CONTENT:
        return take_once(&fields->content, field, WIRE_BYTES, "tensor_content", error);
    case VERSION:
        return wire_expect(field, WIRE_VARINT, "version_number", error);
    default:
        break;
    }
    if (field->number > LAST_LIST) {
        fields->unknown = field->number;
        return true;
    }
    if (fields->list.number && fields->list.number != field->number)
        fields->second = field->number;
    if (!fields->list.number)
        fields->list = *field;
    fields->pieces++;
    fields->held += field->length;
    fields->types |= 1u << field->type;
    return true;
}

static bool read_dim(struct wire wire, uint64_t *size, struct tc_error *error) {
    struct wire_field field;
    bool seen = false;
    *size = 0;
    while (wire_next(&wire, &field, error)) {
        if (field.number != DIM_SIZE)
            continue; /* a name, which says nothing of the values */
        if (seen)
            return wire_bad(error, field.at, "a dimension has two sizes");
        if (!wire_expect(&field, WIRE_VARINT, "a dimension's size", error))
            return false;
        if (field.value > INT64_MAX)
            return wire_bad(error, field.at, "a dimension is negative (%lld)",
                            (long long)field.value);
        seen = true;
        *size = field.value;
    }
    return error->class == TC_OK;
}

static bool read_shape(struct tf_reader *tf, struct wire wire, struct tf_tensor *tensor,
                       struct tc_error *error) {
    uint64_t sizes[TC_MAX_RANK];
    uint64_t rank = 0;
    struct wire_field field;
    while (wire_next(&wire, &field, error)) {
        if (field.number == SHAPE_UNKNOWN_RANK && field.type == WIRE_VARINT && field.value)
            return wire_bad(error, field.at, "the tensor's rank is unknown");
        if (field.number != SHAPE_DIM)
            continue;
        uint64_t size;
        if (!wire_expect(&field, WIRE_BYTES, "a dimension", error) ||
            !read_dim(wire_inside(&wire, &field), &size, error))
            return false;
        if (rank < TC_MAX_RANK)
            sizes[rank] = size;
        rank++;
    }
    if (error->class != TC_OK)
        return false;
    if (rank > TC_MAX_RANK)
        return tc_fail(error, TC_UNSUPPORTED, "rank", "%llu dimensions (at most %u are supported)",
                       (unsigned long long)rank, TC_MAX_RANK);
    uint64_t *shape = tc_arena_array(&tf->reader->arena, rank, sizeof *shape, error);
    if (!shape)
        return false;
    memcpy(shape, sizes, rank * sizeof *shape);
    tensor->shape = shape;
    tensor->rank = (uint8_t)rank;
    return true;
}

static bool refuse_dtype(const struct wire_field *field, struct tc_error *error) {
    unsigned long long number = field->value;
    const char *name = number < UNSUPPORTED ? unsupported[number] : NULL;
    if (number % REFERENCE == 0 || number > 2 * REFERENCE)
        return wire_bad(error, field->at, "dtype %llu is none", number);
    if (number > REFERENCE)
        tc_fail(error, TC_UNSUPPORTED, "dtype", "dtype %llu: a reference to a variable, no values",
                number);
    else if (name)
        tc_fail(error, TC_UNSUPPORTED, "dtype", "dtype DT_%s is not supported", name);
    else
        tc_fail(error, TC_UNSUPPORTED, "dtype", "dtype %llu is not known", number);
    return tc_error_at(error, field->at);
}

/* Compares a list's bytes with those of the tensor, whose missing elements repeat the
 * last value. How many varints there are is known only when they are decoded, but it
 * is at least one for each ten bytes and at most one for each byte. */
static bool place_list(const struct fields *fields, struct tf_tensor *tensor,
                       struct tc_error *error) {
    bool varint = tensor->element == WIRE_VARINT;
    unsigned unit = tc_dtype_component(tensor->dtype);
    uint64_t numbers = tensor->nbytes / unit;
    bool too_many = varint ? fields->held / 10 + (fields->held % 10 > 0) > numbers
                           : fields->held > tensor->nbytes;
    if (too_many)
        return wire_bad(error, fields->list.at, "more values than the tensor has elements");
    uint64_t most = varint ? fields->held : fields->held / unit;
    tensor->missing = most < numbers ? (numbers - most) * unit : 0;
    tensor->data = fields->list.offset;
    tensor->raw = !varint && fields->pieces == 1 && fields->list.type == WIRE_BYTES &&
                  fields->held == tensor->nbytes;
    return true;
}

static bool place_values(const struct fields *fields, struct tf_tensor *tensor,
                         struct tc_error *error) {
    const struct wire_field *content = &fields->content;
    const struct wire_field *list = &fields->list;
    if (content->number && list->number)
        return wire_bad(error, list->at, "the tensor has tensor_content and a list of values");
    if (fields->second || (list->number && list->number != tensor->field))
        return wire_bad(error, list->at, "the tensor has values of another dtype (field %u)",
                        fields->second ? fields->second : list->number);
    if (fields->types & ~(1u << WIRE_BYTES | 1u << tensor->element))
        return wire_bad(error, list->at, "a value has the wrong wire type");
    if (tensor->element == WIRE_BYTES && tensor->dtype != TC_NONE && fields->pieces > 1)
        return wire_bad(error, list->at, "float8_val is there twice");
    tensor->pieces = fields->pieces;
    if (tensor->dtype == TC_NONE) {
        tensor->field = content->number ? 0 : tensor->field;
        return true;
    }
    if (list->number)
        return place_list(fields, tensor, error);
    tensor->field = 0;
    tensor->data = content->offset;
    tensor->raw = content->number || tensor->nbytes == 0;
    tensor->missing = tensor->raw ? 0 : tensor->nbytes;
    if (content->number && content->length != tensor->nbytes)
        return wire_bad(error, content->at, "tensor_content has %llu bytes, its shape needs %llu",
                        (unsigned long long)content->length, (unsigned long long)tensor->nbytes);
    return true;
}

static bool find_kind(const struct fields *fields, struct tf_tensor *tensor,
                      struct tc_error *error) {
    if (fields->dtype.value == DT_STRING) {
        tensor->dtype = TC_NONE;
        tensor->field = TF_STRING_VAL;
        tensor->element = WIRE_BYTES;
        return true;
    }
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].number == fields->dtype.value) {
            tensor->dtype = kinds[i].dtype;
            tensor->field = kinds[i].field;
            tensor->element = kinds[i].element;
            return true;
        }
    return refuse_dtype(&fields->dtype, error);
}

bool tf_tensor_find(struct tf_reader *tf, uint64_t start, uint64_t end, struct tf_tensor *tensor,
                    struct tc_error *error) {
    struct wire wire = wire_open(&tf->source, start, end);
    struct fields fields = {0};
    struct wire_field field;
    *tensor = (struct tf_tensor){.start = start, .end = end};
    while (wire_next(&wire, &field, error))
        if (!take_field(&fields, &field, error))
            return false;
    if (error->class != TC_OK)
        return false;
    if (!fields.dtype.number || !fields.shape.number)
        return wire_bad(error, start, "no TensorProto: it has no %s",
                        fields.dtype.number ? "tensor_shape" : "dtype");
    if (!read_shape(tf, wire_inside(&wire, &fields.shape), tensor, error) ||
        !find_kind(&fields, tensor, error))
        return false;
    if (fields.unknown) {
        tc_fail(error, TC_UNSUPPORTED, "tf-field", "field %u of a TensorProto is not known",
                fields.unknown);
        return tc_error_at(error, start);
    }
    /* Strings are measured as if each had one byte. */
    enum tc_dtype measured = tensor->dtype == TC_NONE ? TC_U8 : tensor->dtype;
    if (!tc_shape_measure(measured, tensor->shape, tensor->rank, &tensor->count, &tensor->nbytes,
                          error))
        return tc_error_at(error, fields.shape.at);
    return place_values(&fields, tensor, error);
}

static bool add_values(struct tf_reader *tf, const struct tf_tensor *tensor, uint32_t *cookie,
                       struct tc_error *error) {
    if (tf->count == tf->capacity) {
        size_t capacity = tf->capacity ? tf->capacity + tf->capacity / 2 : 4;
        size_t more = (capacity - tf->capacity) * sizeof *tf->values;
        if (!tc_arena_charge(&tf->reader->arena, more, error))
            return false;
        struct tf_values *values = reallocarray(tf->values, capacity, sizeof *values);
        if (!values)
            return tc_fail_memory(error);
        tf->values = values;
        tf->capacity = capacity;
    }
    tf->values[tf->count++] =
        (struct tf_values){.typed = {.start = tensor->start,
                                     .end = tensor->end,
                                     .field = tensor->field,
                                     .element = tensor->element,
                                     .dtype = tensor->dtype,
                                     .nbytes = tensor->nbytes,
                                     .repeats = true},
                           .data = tensor->data,
                           .rows = tensor->transposed ? tensor->shape[0] : 0,
                           .columns = tensor->transposed ? tensor->shape[1] : 0,
                           .raw = tensor->raw};
    *cookie = (uint32_t)tf->count;
    return true;
}

/* Counts the bytes of elements that no value in the file stands for, which are
 * limited. They are only produced for tensors that the user selected. */
static bool count_missing(struct tf_reader *tf, const struct tf_tensor *tensor, struct tc_text name,
                          struct tc_error *error) {
    uint64_t limit = tc_reader_made_limit(tf->reader);
    if (tensor->missing == 0 || !tc_reader_wants(tf->reader, name))
        return true;
    if (tc_add(tf->reader->made, tensor->missing, &tf->reader->made) && tf->reader->made <= limit)
        return true;
    tc_fail(error, TC_UNSAFE, "size-limit",
            "%llu bytes that only repeat the last value of a list (limit %llu bytes a file)",
            (unsigned long long)tensor->missing, (unsigned long long)limit);
    return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
}

static const uint64_t *transposed_shape(struct tf_reader *tf, const uint64_t *shape,
                                        struct tc_error *error) {
    uint64_t *result = tc_arena_array(&tf->reader->arena, 2, sizeof *result, error);
    if (result) {
        result[0] = shape[1];
        result[1] = shape[0];
    }
    return result;
}

bool tf_tensor_add(struct tf_reader *tf, const struct tf_tensor *tensor, struct tc_text name,
                   struct tc_metadata *metadata, struct tc_error *error) {
    struct tc_tensor entry = {.name = name,
                              .dtype = tensor->dtype,
                              .rank = tensor->rank,
                              .shape = tensor->shape,
                              .metadata = metadata,
                              .nbytes = tensor->nbytes,
                              .offset = tensor->raw ? tensor->data : tensor->start};
    struct tf_tensor found = *tensor;
    if (found.transposed && !(entry.shape = transposed_shape(tf, found.shape, error)))
        return false;
    /* A matrix of one row or column has the same bytes when it is transposed. */
    found.transposed &= found.nbytes && found.shape[0] > 1 && found.shape[1] > 1;
    entry.sequential = !found.raw || found.transposed;
    if (!count_missing(tf, &found, name, error) ||
        (entry.sequential && !add_values(tf, &found, &entry.cookie, error)))
        return tc_error_in_tensor(error, name.bytes, name.length);
    tf->zeroes += found.nbytes && found.pieces == 0 && !found.raw;
    return tc_table_add(&tf->reader->table, &entry, error);
}

bool tf_reader_finish(struct tf_reader *tf, struct tc_error *error) {
    if (tf->zeroes)
        tc_reader_warn(tf->reader,
                       "%llu tensor%s no values in the file, which means zeros; if it was cut "
                       "short, nothing tells",
                       (unsigned long long)tf->zeroes, tf->zeroes == 1 ? " has" : "s have");
    return refused_finish(&tf->refused, tf->reader, error);
}

/* The elements as they are stored; offsets count from the first. */
static bool fetch_current(void *context, uint64_t offset, void *buffer, size_t length,
                          struct tc_error *error) {
    struct tf_reader *tf = context;
    const struct tf_values *values = tf->current;
    return values->raw
               ? tc_input_read(tf->reader->input, values->data + offset, buffer, length, error)
               : typed_read(&tf->typed, &values->typed, offset, buffer, length, error);
}

static bool read_transposed(struct tf_reader *tf, const struct tf_values *values, uint64_t offset,
                            void *buffer, size_t length, struct tc_error *error) {
    if (tf->current != values) {
        unsigned element = tc_dtype_bits(values->typed.dtype) / 8;
        struct tc_view view = {.rank = 2,
                               .element = element,
                               .shape = {values->columns, values->rows},
                               .stride = {element, values->columns * element},
                               .storage = values->typed.nbytes};
        forget_current(tf);
        tf->current = values;
        if (!tc_view_reader_init(&tf->view_reader, &view, fetch_current, tf, error)) {
            forget_current(tf);
            return false;
        }
    }
    return tc_view_reader_read(&tf->view_reader, offset, buffer, length, error);
}

bool tf_read(struct tf_reader *tf, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
             size_t length, struct tc_error *error) {
    if (!tensor->cookie)
        return tc_input_read(tf->reader->input, tensor->offset + offset, buffer, length, error);
    const struct tf_values *values = &tf->values[tensor->cookie - 1];
    if (values->rows)
        return read_transposed(tf, values, offset, buffer, length, error);
    return typed_read(&tf->typed, &values->typed, offset, buffer, length, error);
}

bool tf_extent(struct tf_reader *tf, const struct tc_tensor *tensor, struct tc_extent *extent) {
    *extent = (struct tc_extent){.input = tf->reader->input, .offset = tensor->offset};
    return !tensor->cookie;
}
