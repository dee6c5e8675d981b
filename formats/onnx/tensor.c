/*
 * TensorProto, fields by number: dims 1, data_type 2, segment 3, float_data 4, int32_data 5,
 * string_data 6, int64_data 7, name 8, raw_data 9, double_data 10,
 * uint64_data 11, external_data 13 {key 1, value 2}, data_location 14,
 * metadata_props 16.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/onnx/onnx.h"
#include "formats/protobuf/typed.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"

#define MAX_TEXT (UINT64_C(1) << 20)
#define DATA_STRING 8

/* Our dtypes by ONNX's number (TensorProto.DataType). */
static const uint8_t dtypes[] = {
    TC_NONE,    TC_F32,     TC_U8,          TC_I8,      TC_U16,         TC_I16, TC_I32, TC_I64,
    TC_NONE,    TC_BOOL,    TC_F16,         TC_F64,     TC_U32,         TC_U64, TC_C64, TC_C128,
    TC_BF16,    TC_F8_E4M3, TC_F8_E4M3FNUZ, TC_F8_E5M2, TC_F8_E5M2FNUZ, TC_U4,  TC_I4,  TC_F4,
    TC_F8_E8M0, TC_NONE,    TC_NONE,        TC_F6_E2M3, TC_F6_E3M2,
};

int onnx_data_type(enum tc_dtype dtype) {
    for (size_t i = 0; i < sizeof dtypes; i++)
        if (dtypes[i] == dtype && dtype != TC_NONE)
            return (int)i;
    return 0;
}

void onnx_init(struct onnx *onnx, struct tc_reader *reader) {
    onnx->reader = reader;
    wire_source_init(&onnx->source, reader->input);
    typed_reader_init(&onnx->typed, &onnx->source);
    tc_name_map_init(&onnx->locations, &reader->arena);
    tc_input_pool_init(&onnx->pool);
    onnx->pooled = true;
}

void onnx_release(struct onnx *onnx) {
    typed_reader_release(&onnx->typed);
    wire_source_release(&onnx->source);
    for (size_t i = 0; i < onnx->locations.count; i++)
        tc_input_close(onnx->files[i]);
    tc_name_map_release(&onnx->locations);
    if (onnx->pooled)
        tc_input_pool_release(&onnx->pool);
    free(onnx->files);
    free(onnx->places);
    free(onnx->indices);
    refused_release(&onnx->refused);
}

bool onnx_read_entry(struct onnx *onnx, struct wire message, struct tc_text *key,
                     struct tc_text *value, struct tc_error *error) {
    struct wire_field field;
    *key = *value = (struct tc_text){"", 0};
    while (wire_next(&message, &field, error)) {
        struct tc_text *to = field.number == 1 ? key : field.number == 2 ? value : NULL;
        if (to && !wire_text(&message, &field, MAX_TEXT, &onnx->reader->arena, to, error))
            return false;
    }
    return error->class == TC_OK;
}

/* External data */

struct external {
    bool is_used; /* data_location says EXTERNAL */
    struct tc_text location;
    struct tc_text offset;
    struct tc_text length;
    struct tc_text checksum;
};

static bool read_external(struct onnx *onnx, struct wire message, struct external *external,
                          uint64_t at, struct tc_error *error) {
    struct tc_text key;
    struct tc_text value;
    if (!onnx_read_entry(onnx, message, &key, &value, error))
        return false;
    struct tc_text *to = tc_text_equal(key, TC_TEXT("location"))   ? &external->location
                         : tc_text_equal(key, TC_TEXT("offset"))   ? &external->offset
                         : tc_text_equal(key, TC_TEXT("length"))   ? &external->length
                         : tc_text_equal(key, TC_TEXT("checksum")) ? &external->checksum
                                                                   : NULL;
    if (!to)
        return wire_bad(error, at, "external data has an unknown key");
    if (to->bytes)
        return wire_bad(error, at, "external data has a key twice");
    *to = value;
    return true;
}

/* Reads a number of digits only; false for any other text. */
static bool read_digits(struct tc_text text, uint64_t *number) {
    *number = 0;
    if (text.length == 0 || text.length > 19)
        return false;
    for (size_t i = 0; i < text.length; i++) {
        if (text.bytes[i] < '0' || text.bytes[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text.bytes[i] - '0');
    }
    return *number <= INT64_MAX;
}

bool onnx_location_is_below(struct tc_text location) {
    size_t start = 0;
    if (location.length == 0 || location.length > 4000 || location.bytes[0] == '/' ||
        memchr(location.bytes, '\\', location.length) ||
        memchr(location.bytes, '\0', location.length) ||
        memchr(location.bytes, ':', location.length))
        return false;
    for (size_t i = 0; i <= location.length; i++) {
        if (i < location.length && location.bytes[i] != '/')
            continue;
        if (i - start == 2 && memcmp(location.bytes + start, "..", 2) == 0)
            return false;
        start = i + 1;
    }
    return true;
}

static bool refuse_location(struct tc_text location, const char *what, struct tc_error *error) {
    return tc_fail(error, TC_UNSAFE, "external-data", "external data %s: \"%.*s\"", what,
                   tc_text_shown(location, 200), location.bytes);
}

static bool open_external(struct onnx *onnx, struct tc_text location, struct tc_input **input,
                          struct tc_error *error) {
    const uint32_t *known = tc_name_map_find(&onnx->locations, location);
    if (known) {
        *input = onnx->files[*known];
        return true;
    }
    if (!onnx_location_is_below(location))
        return refuse_location(location, "outside the model's folder", error);
    const char *model = onnx->reader->input->path;
    struct tc_buffer path = {0};
    tc_buffer_add(&path, model, (size_t)(tc_path_name(model) - model));
    tc_buffer_add_text(&path, location);
    tc_buffer_add(&path, "", 1);
    struct stat status;
    bool ok = tc_buffer_ok(&path, error);
    /* A symbolic link is followed, since caches of models consist of links. */
    if (ok && stat(path.bytes, &status) == 0 && !S_ISREG(status.st_mode))
        ok = refuse_location(location, "in what is no plain file", error);
    size_t count = onnx->locations.count;
    struct tc_input **files =
        ok ? reallocarray(onnx->files, count + 1, sizeof(struct tc_input *)) : NULL;
    if (ok && !files)
        ok = tc_fail_memory(error);
    if (files)
        onnx->reader->companions = onnx->files = files;
    *input = ok ? tc_reader_open_beside(onnx->reader, path.bytes, &onnx->pool, error) : NULL;
    tc_buffer_release(&path);
    if (!*input)
        return false;
    files[count] = *input;
    if (tc_name_add(&onnx->locations, location, (uint32_t)count,
                    onnx->reader->options->limits.tensors, error)) {
        onnx->reader->companion_count = onnx->locations.count;
        onnx->reader->size += (*input)->size;
        return true;
    }
    tc_input_close(*input);
    return false;
}

/* Finds where external data lies, and checks that its file has it. *length becomes
 * the length that the entry says, if it says one. */
static bool find_external(struct onnx *onnx, const struct external *external, uint64_t *length,
                          struct onnx_place *place, struct tc_error *error) {
    uint64_t offset = 0;
    if (!external->location.bytes)
        return tc_fail(error, TC_INVALID, "external-data", "external data without a location");
    if ((external->offset.bytes && !read_digits(external->offset, &offset)) ||
        (external->length.bytes && !read_digits(external->length, length)))
        return tc_fail(error, TC_INVALID, "external-data",
                       "external data's offset or length is no number");
    if (!open_external(onnx, external->location, &place->input, error))
        return false;
    if (!tc_range_within(offset, *length, place->input->size))
        return tc_fail(error, TC_INVALID, "external-data",
                       "external data passes the end of its file (%llu bytes)",
                       (unsigned long long)place->input->size);
    place->kind = ONNX_RAW;
    place->offset = offset;
    return true;
}

static bool place_external(struct onnx *onnx, const struct external *external, uint64_t nbytes,
                           struct onnx_place *place, struct tc_error *error) {
    uint64_t length = nbytes;
    return find_external(onnx, external, &length, place, error) &&
           (length == nbytes || tc_fail(error, TC_INVALID, "external-data",
                                        "external data has %llu bytes (expected %llu)",
                                        (unsigned long long)length, (unsigned long long)nbytes));
}

/* One TensorProto */

struct parsing {
    struct onnx *onnx;
    struct wire message;
    struct onnx_tensor *tensor;
    uint64_t data_type;
    uint64_t rank; /* how many dims there are, also more than are kept */
    bool has_raw;
    struct wire_field raw;
    struct wire_field typed; /* the first field with a list of values */
    size_t typed_count;
    struct external external;
    bool segment;
    uint32_t seen; /* bits: which fields that may occur only once have occurred */
};

static bool add_dimension(struct parsing *parsing, uint64_t value, uint64_t at,
                          struct tc_error *error) {
    if (value > INT64_MAX)
        return wire_bad(error, at, "a dimension is negative");
    if (parsing->rank < TC_MAX_RANK)
        parsing->tensor->shape[parsing->rank] = value;
    parsing->rank++;
    return true;
}

static bool read_dims(struct parsing *parsing, const struct wire_field *field,
                      struct tc_error *error) {
    if (field->type == WIRE_VARINT)
        return add_dimension(parsing, field->value, field->at, error);
    if (!wire_expect(field, WIRE_BYTES, "dims", error))
        return false;
    struct wire packed = wire_inside(&parsing->message, field);
    uint64_t value;
    while (wire_varint(&packed, &value, error))
        if (!add_dimension(parsing, value, field->at, error))
            return false;
    return error->class == TC_OK;
}

/* The wire type of the values in field `number`; false where it has no values. */
static bool typed_element(uint32_t number, enum wire_type *element) {
    switch (number) {
    case 4:
        *element = WIRE_FIXED32;
        return true;
    case 10:
        *element = WIRE_FIXED64;
        return true;
    case 5:
    case 7:
    case 11:
        *element = WIRE_VARINT;
        return true;
    default:
        return false;
    }
}

static bool read_typed(struct parsing *parsing, const struct wire_field *field,
                       enum wire_type element, struct tc_error *error) {
    if (field->type != WIRE_BYTES && !wire_expect(field, element, "a list of values", error))
        return false;
    if (field->type == WIRE_BYTES && field->length == 0)
        return true;
    if (parsing->typed_count && parsing->typed.number != field->number)
        return wire_bad(error, field->at, "a tensor has values in two fields");
    if (parsing->typed_count++ == 0)
        parsing->typed = *field;
    return true;
}

static bool read_metadata(struct parsing *parsing, const struct wire_field *field,
                          struct tc_error *error) {
    struct tc_arena *arena = &parsing->onnx->reader->arena;
    struct tc_text key;
    struct tc_text value;
    struct onnx_tensor *tensor = parsing->tensor;
    if (!wire_expect(field, WIRE_BYTES, "metadata_props", error) ||
        !onnx_read_entry(parsing->onnx, wire_inside(&parsing->message, field), &key, &value, error))
        return false;
    if (!tensor->metadata)
        tensor->metadata = tc_arena_alloc(arena, sizeof *tensor->metadata, error);
    return tensor->metadata && tc_metadata_add(tensor->metadata, arena, key, value, error);
}

/* Refuses a field that occurs twice: of such a field protobuf takes the last, another
 * parser may take the first. */
static bool once(struct parsing *parsing, const struct wire_field *field, struct tc_error *error) {
    uint32_t bit = 1u << field->number;
    if (parsing->seen & bit)
        return wire_bad(error, field->at, "field %u occurs twice", field->number);
    parsing->seen |= bit;
    return true;
}

static bool read_field(struct parsing *parsing, const struct wire_field *field,
                       struct tc_error *error) {
    struct onnx_tensor *tensor = parsing->tensor;
    enum wire_type element;
    if (typed_element(field->number, &element))
        return read_typed(parsing, field, element, error);
    switch (field->number) {
    case 1:
        return read_dims(parsing, field, error);
    case 2:
        parsing->data_type = field->value;
        return once(parsing, field, error) && wire_expect(field, WIRE_VARINT, "data_type", error);
    case 3:
        parsing->segment = true;
        return true;
    case 8:
        return once(parsing, field, error) &&
               wire_text(&parsing->message, field, TC_MAX_NAME_BYTES, &parsing->onnx->reader->arena,
                         &tensor->name, error);
    case 9:
        parsing->has_raw = true;
        parsing->raw = *field;
        return once(parsing, field, error) && wire_expect(field, WIRE_BYTES, "raw_data", error);
    case 13:
        return wire_expect(field, WIRE_BYTES, "external_data", error) &&
               read_external(parsing->onnx, wire_inside(&parsing->message, field),
                             &parsing->external, field->at, error);
    case 14:
        parsing->external.is_used = field->value == 1;
        return once(parsing, field, error) &&
               wire_expect(field, WIRE_VARINT, "data_location", error) &&
               (field->value <= 1 || wire_bad(error, field->at, "an unknown data_location"));
    case 16:
        return read_metadata(parsing, field, error);
    default:
        return true;
    }
}

/* The number of the field that holds a dtype's values. */
static uint32_t field_of(enum tc_dtype dtype) {
    switch (dtype) {
    case TC_F32:
    case TC_C64:
        return 4;
    case TC_F64:
    case TC_C128:
        return 10;
    case TC_I64:
        return 7;
    case TC_U32:
    case TC_U64:
        return 11;
    default:
        return 5;
    }
}

static bool place_typed(struct parsing *parsing, struct tc_error *error) {
    struct onnx_tensor *tensor = parsing->tensor;
    const struct wire_field *field = &parsing->typed;
    enum wire_type element = WIRE_VARINT;
    typed_element(field->number, &element);
    if (field->number != field_of(tensor->dtype))
        return wire_bad(error, field->at, "the values of %s are in a field of another type",
                        tc_dtype_name(tensor->dtype));
    if (tensor->dtype == TC_F6_E2M3 || tensor->dtype == TC_F6_E3M2)
        return tc_fail(error, TC_UNSUPPORTED, "dtype", "%s that is not in raw_data",
                       tc_dtype_name(tensor->dtype));
    /* One packed list of numbers of fixed size has the same bytes as raw_data. */
    if (parsing->typed_count == 1 && field->type == WIRE_BYTES && element != WIRE_VARINT &&
        field->length == tensor->nbytes) {
        tensor->place = (struct onnx_place){
            .kind = ONNX_RAW, .input = parsing->onnx->reader->input, .offset = field->offset};
        return true;
    }
    tensor->place = (struct onnx_place){.kind = ONNX_TYPED,
                                        .typed = {.start = parsing->message.at,
                                                  .end = parsing->message.end,
                                                  .field = field->number,
                                                  .element = (uint8_t)element,
                                                  .dtype = (uint8_t)tensor->dtype,
                                                  .nbytes = tensor->nbytes,
                                                  .int32 = field->number == 5,
                                                  .wraps = true}};
    return true;
}

static bool place_data(struct parsing *parsing, struct tc_error *error) {
    struct onnx_tensor *tensor = parsing->tensor;
    int forms = parsing->has_raw + (parsing->typed_count > 0) + parsing->external.is_used;
    if (parsing->external.location.bytes && !parsing->external.is_used)
        return wire_bad(error, parsing->message.at, "external data that data_location denies");
    /* An empty raw_data does not count where there is other data. */
    if (forms > 1 && !(parsing->has_raw && parsing->raw.length == 0))
        return wire_bad(error, parsing->message.at, "a tensor has its data in two places");
    if (parsing->external.is_used)
        return place_external(parsing->onnx, &parsing->external, tensor->nbytes, &tensor->place,
                              error);
    if (parsing->typed_count)
        return place_typed(parsing, error);
    uint64_t length = parsing->has_raw ? parsing->raw.length : 0;
    if (length != tensor->nbytes)
        return wire_bad(error, parsing->has_raw ? parsing->raw.at : parsing->message.at,
                        "a tensor has %llu bytes of data (expected %llu)",
                        (unsigned long long)length, (unsigned long long)tensor->nbytes);
    tensor->place = (struct onnx_place){
        .kind = ONNX_RAW, .input = parsing->onnx->reader->input, .offset = parsing->raw.offset};
    return true;
}

/* Fails where the message is well-formed, but tconv can't hold such a tensor. */
static bool check_supported(struct parsing *parsing, struct tc_error *error) {
    struct onnx_tensor *tensor = parsing->tensor;
    uint64_t type = parsing->data_type;
    tensor->dtype = type < sizeof dtypes ? dtypes[type] : TC_NONE;
    if (parsing->segment)
        return tc_fail(error, TC_UNSUPPORTED, "segment", "a tensor in segments");
    if (type == DATA_STRING)
        return tc_fail(error, TC_UNSUPPORTED, "dtype", "a tensor of strings");
    if (tensor->dtype == TC_NONE)
        return tc_fail(error, TC_UNSUPPORTED, "dtype", "ONNX's data type %llu is not supported",
                       (unsigned long long)type);
    if (parsing->rank > TC_MAX_RANK)
        return tc_fail(error, TC_UNSUPPORTED, "rank", "more than %u dimensions (got %llu)",
                       TC_MAX_RANK, (unsigned long long)parsing->rank);
    return true;
}

/* Checks the external data of a tensor that is not supported: damage is reported
 * rather than that. Returns false. */
static bool check_unread(struct parsing *parsing, struct tc_error *error) {
    struct onnx_place place;
    struct tc_error damage = {0};
    uint64_t length = 0;
    if (parsing->external.is_used &&
        !find_external(parsing->onnx, &parsing->external, &length, &place, &damage))
        *error = damage;
    return false;
}

bool onnx_parse_tensor(struct onnx *onnx, struct wire message, struct onnx_tensor *tensor,
                       struct tc_error *error) {
    struct parsing parsing = {.onnx = onnx, .message = message, .tensor = tensor};
    struct wire_field field;
    uint64_t count;
    *tensor = (struct onnx_tensor){.name = {"", 0}};
    while (wire_next(&message, &field, error))
        if (!read_field(&parsing, &field, error))
            return false;
    if (error->class != TC_OK)
        return false;
    if (!(parsing.seen & 1u << 2))
        return wire_bad(error, parsing.message.at, "a tensor without a data type");
    if (!check_supported(&parsing, error))
        return check_unread(&parsing, error);
    tensor->rank = (unsigned)parsing.rank;
    /* The elements do not fill their last byte: ONNX pads it, other formats can't. */
    if (!tc_shape_measure(tensor->dtype, tensor->shape, tensor->rank, &count, &tensor->nbytes,
                          error)) {
        if (error->reason != TC_REASON_PARTIAL_BYTE)
            return false;
        error->class = TC_UNSUPPORTED;
        return check_unread(&parsing, error);
    }
    return (!tensor->metadata || tc_metadata_sort(tensor->metadata, error)) &&
           place_data(&parsing, error);
}

static bool add_place(struct onnx *onnx, const struct onnx_place *place, struct tc_error *error) {
    if (onnx->count == onnx->capacity) {
        size_t capacity = onnx->capacity ? onnx->capacity * 2 : 64;
        uint64_t more = (capacity - onnx->capacity) * sizeof(struct onnx_place *);
        if (!tc_arena_charge(&onnx->reader->arena, more, error))
            return false;
        struct onnx_place **places =
            reallocarray(onnx->places, capacity, sizeof(struct onnx_place *));
        if (!places)
            return tc_fail_memory(error);
        onnx->places = places;
        onnx->capacity = capacity;
    }
    struct onnx_place *copy = tc_arena_alloc(&onnx->reader->arena, sizeof *copy, error);
    if (!copy)
        return false;
    *copy = *place;
    onnx->places[onnx->count++] = copy;
    return true;
}

/* Counts the tensor if it has values that wrap, which is possible only where numbers
 * in the file are wider than the tensor's elements. */
static bool note_wrapped(struct onnx *onnx, struct tc_text name, const struct onnx_tensor *tensor,
                         struct tc_error *error) {
    const struct typed *typed = &tensor->place.typed;
    uint64_t outside = 0;
    if (tensor->place.kind != ONNX_TYPED || typed->element != WIRE_VARINT ||
        tc_dtype_component(tensor->dtype) == 8 || !tc_reader_wants(onnx->reader, name))
        return true;
    if (!typed_count_outside(&onnx->source, typed, &outside, error))
        return false;
    if (outside && onnx->wrapped++ == 0)
        onnx->first_wrapped = name;
    return true;
}

bool onnx_finish(struct onnx *onnx, struct tc_error *error) {
    struct tc_text name = onnx->first_wrapped;
    if (onnx->wrapped)
        tc_reader_warn(onnx->reader,
                       "%zu tensor%s values outside the range of %s type, which wrap as in ONNX's "
                       "own library: \"%.*s\"%s",
                       onnx->wrapped, onnx->wrapped == 1 ? " has" : "s have",
                       onnx->wrapped == 1 ? "its" : "their", tc_text_shown(name, 200), name.bytes,
                       onnx->wrapped == 1 ? "" : " and others");
    return refused_finish(&onnx->refused, onnx->reader, error);
}

bool onnx_add_tensor(struct onnx *onnx, struct tc_text name, const struct onnx_tensor *tensor,
                     struct tc_error *error) {
    uint64_t *shape = tc_arena_array(&onnx->reader->arena, tensor->rank, sizeof *shape, error);
    if (!shape)
        return false;
    if (tensor->rank)
        memcpy(shape, tensor->shape, tensor->rank * sizeof *shape);
    bool streamed = tensor->place.kind == ONNX_TYPED || tensor->place.kind == ONNX_INDICES;
    struct tc_tensor entry = {.name = name,
                              .dtype = (uint8_t)tensor->dtype,
                              .rank = (uint8_t)tensor->rank,
                              .shape = shape,
                              .nbytes = tensor->nbytes,
                              .metadata = tensor->metadata,
                              .offset = onnx->count,
                              .cookie = (uint32_t)onnx->count,
                              .sequential = streamed && tensor->nbytes};
    return note_wrapped(onnx, name, tensor, error) && add_place(onnx, &tensor->place, error) &&
           tc_table_add(&onnx->reader->table, &entry, error);
}
