/*
 * Tensors whose elements stand one by one in a repeated field of a protobuf
 * message, packed or not: ONNX's float_data, int32_data and so on, TensorFlow's
 * float_val, int_val and so on. They are decoded, and checked, into a spool when
 * they are first read; one tensor at a time, by one thread at a time.
 */
#ifndef TCONV_FORMATS_PROTOBUF_TYPED_H
#define TCONV_FORMATS_PROTOBUF_TYPED_H

#include "core/base/error.h"
#include "core/io/spool.h"
#include "formats/protobuf/wire.h"

/* Where a tensor's elements are, and how to decode them. */
struct typed {
    uint64_t start; /* of the tensor's message */
    uint64_t end;
    uint32_t field;
    /* enum wire_type: WIRE_VARINT, WIRE_FIXED32, WIRE_FIXED64; or WIRE_BYTES,
     * where each byte of the field is a number. */
    uint8_t element;
    /* A number of the list is an element (of a complex dtype one of its two
     * components), or the bits of an element that is not an integer (float16). Of a
     * dtype with less than eight bits it is a byte of several elements. */
    uint8_t dtype;
    uint64_t nbytes; /* of the whole tensor */
    /* TensorFlow's rule: a list that is too short goes on with its last value, an
     * empty one with zeros. Without it, the list must have all values. */
    bool repeats;
    /* The field's type is int32: protobuf drops the bits beyond. */
    bool int32;
    /* A value outside the dtype's range wraps, as in ONNX's own library. */
    bool wraps;
};

/* Decodes one tensor at a time. */
struct typed_reader {
    struct wire_source *source;
    const struct typed *current; /* the tensor in the spool; NULL: none */
    struct tc_spool spool;
    uint64_t decoded;       /* bytes in the spool */
    unsigned char last[16]; /* the last element that the list has, which may repeat */
};

void typed_reader_init(struct typed_reader *reader, struct wire_source *source);
void typed_reader_release(struct typed_reader *reader);
/* Counts the values that are outside their dtype's range. */
bool typed_count_outside(struct wire_source *source, const struct typed *typed, uint64_t *count,
                         struct tc_error *error);
/* Reads bytes of the tensor's C-order little-endian stream. A tensor is known by
 * the address of its `typed`, which must not move. */
bool typed_read(struct typed_reader *reader, const struct typed *typed, uint64_t offset,
                void *buffer, size_t length, struct tc_error *error);

#endif
