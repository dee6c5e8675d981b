/*
 * .pb: one TensorProto of ONNX, as the inputs and outputs of its backend tests are
 * stored, or a SequenceProto (fields: elem_type 2, tensor_values 3), a list of them.
 */
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/input.h"
#include "formats/onnx/onnx.h"
#include "formats/onnx/write.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"

/* Whether it is a sequence: it has its tensors in field 3, where a TensorProto has
 * its segment, and no field above, where a TensorProto has its data. */
static bool is_sequence(struct wire message, struct tc_error *error) {
    struct wire_field field;
    bool tensors = false;
    bool data = false;
    while (wire_next(&message, &field, error)) {
        tensors |= field.number == 3 && field.type == WIRE_BYTES;
        data |= field.number > 3;
    }
    return error->class == TC_OK && tensors && !data;
}

/* Whether a field's bytes start as a sequence does: with a name or an elem_type. */
static bool starts_sequence(const struct wire *message, const struct wire_field *field,
                            struct tc_error *error) {
    unsigned char tag;
    return field->length >= 2 &&
           tc_input_read(message->source->input, field->offset, &tag, 1, error) &&
           (tag == 0x0A || tag == 0x10);
}

/* Whether it is a sequence of sparse tensors, sequences, maps or optionals. Their
 * elem_type is 2 to 5, and all else is in the field elem_type + 2; a TensorProto has
 * other fields. Only a scalar TensorProto of I8 (data_type 3) could look like a
 * sequence of sequences. */
static bool is_other_sequence(struct wire message, struct tc_error *error) {
    struct wire_field field;
    uint64_t type = 0;
    uint64_t values = 0;
    while (wire_next(&message, &field, error)) {
        if (field.number == 2 && field.type == WIRE_VARINT)
            type = field.value;
        else if (type >= 2 && type <= 5 && field.number == type + 2 && field.type == WIRE_BYTES &&
                 (type != 3 || starts_sequence(&message, &field, error)))
            values++;
        else
            return false;
    }
    return error->class == TC_OK && values > 0;
}

static bool add_named(struct onnx *onnx, struct wire message, struct tc_text name,
                      struct tc_error *error) {
    struct onnx_tensor tensor;
    bool parsed = onnx_parse_tensor(onnx, message, &tensor, error);
    if (tensor.name.length)
        name = tensor.name;
    return (parsed && onnx_add_tensor(onnx, name, &tensor, error)) ||
           refused_add(&onnx->refused, onnx->reader, name, error);
}

static bool read_sequence(struct onnx *onnx, struct wire message, struct tc_error *error) {
    struct wire_field field;
    uint64_t count = 0;
    while (wire_next(&message, &field, error)) {
        struct tc_buffer number = {0};
        if (field.number != 3)
            continue;
        tc_buffer_add_number(&number, count++);
        char *name = tc_buffer_ok(&number, error)
                         ? tc_arena_copy(&onnx->reader->arena, number.bytes, number.length, error)
                         : NULL;
        struct tc_text text = {name, number.length};
        tc_buffer_release(&number);
        if (!name || !wire_expect(&field, WIRE_BYTES, "a tensor", error) ||
            !add_named(onnx, wire_inside(&message, &field), text, error))
            return false;
    }
    return error->class == TC_OK;
}

static bool open_pb(struct tc_reader *reader, struct tc_error *error) {
    struct onnx *onnx = reader->state;
    onnx_init(onnx, reader);
    struct wire message = wire_open(&onnx->source, 0, reader->input->size);
    bool sequence = is_sequence(message, error);
    if (error->class != TC_OK)
        return false;
    if (is_other_sequence(message, error))
        return tc_fail(error, TC_UNSUPPORTED, "sequence",
                       "a sequence of sparse tensors, sequences, maps or optionals");
    if (error->class != TC_OK)
        return false;
    if (reader->input->size == 0)
        return wire_bad(error, 0, "an empty message");
    return (sequence ? read_sequence(onnx, message, error)
                     : add_named(onnx, message, reader->stem, error)) &&
           onnx_finish(onnx, error);
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    (void)writer;
    (void)error;
    return true;
}

static bool put(struct tc_writer *writer, size_t index, struct tc_source *source,
                struct tc_error *error) {
    (void)index;
    return onnx_write_lone(writer, source, error);
}

const struct tc_backend tc_backend_pb = {
    .name = "pb",
    .summary = "ONNX tensor",
    .extensions = (const char *const[]){".pb", NULL},
    .mime = "application/octet-stream",
    .many = "onnx",
    .caps = TC_CAN_WRITE | TC_CAN_NAME | TC_CAN_LOAD_LAZILY,
    .dtypes = ONNX_DTYPES,
    .max_rank = TC_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .probe = onnx_probe_tensor,
    .reader_size = sizeof(struct onnx),
    .open = open_pb,
    .read = onnx_reader_read,
    .extent = onnx_reader_extent,
    .close = onnx_reader_close,
    .check = onnx_write_check_lone,
    .begin = begin,
    .put = put,
};
