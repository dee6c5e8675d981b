/*
 * Tensors whose elements stand one by one in a repeated field of a protobuf
 * message, packed or not: ONNX's float_data, int32_data and so on, TensorFlow's
 * float_val, int_val and so on. They are decoded, and checked, when they are
 * first read, to a spool; one tensor at a time.
 */
#ifndef TCONV_FORMATS_PROTOBUF_TYPED_H
#define TCONV_FORMATS_PROTOBUF_TYPED_H

#include "core/base/error.h"
#include "core/io/spool.h"
#include "formats/protobuf/wire.h"

/* Where the elements are. */
struct typed {
    uint64_t start; /* of the tensor's message */
    uint64_t end;
    uint32_t field;
    /* enum wire_type: WIRE_VARINT, WIRE_FIXED32, WIRE_FIXED64; or WIRE_BYTES,
     * where each byte of the field is a number. */
    uint8_t element;
    uint8_t dtype;
    /* What a number holds: an element's component, or the bits of one that is
     * no integer. A packed dtype has a byte of its elements in each. */
    uint64_t nbytes; /* of the whole tensor */
    /* TensorFlow: a list that is too short goes on with its last value, an
     * empty one with zeros. Else it must have all of them. */
    bool repeats;
    /* Numbers of 32 bits: protobuf drops what is beyond. */
    bool int32;
    /* A value outside the dtype's range wraps, as in ONNX's own library. */
    bool wraps;
};

/* The one that is decoded. */
struct typed_reader {
    struct wire_source *source;
    const struct typed *current;
    struct tc_spool spool;
    uint64_t decoded;       /* bytes in the spool */
    unsigned char last[16]; /* the last element of those, which may repeat */
};

void typed_reader_init(struct typed_reader *reader, struct wire_source *source);
void typed_reader_release(struct typed_reader *reader);
/* How many values are outside their dtype's range. */
bool typed_count_outside(struct wire_source *source, const struct typed *typed, uint64_t *count,
                         struct tc_error *error);
/* Bytes of the tensor's stream; from one thread at a time. `typed` must stay
 * where it is. */
bool typed_read(struct typed_reader *reader, const struct typed *typed, uint64_t offset,
                void *buffer, size_t length, struct tc_error *error);

#endif
