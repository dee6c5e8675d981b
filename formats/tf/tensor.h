/*
 * TensorFlow's TensorProto: a .tensor file is one, a .tfrecord has one a record.
 *     1 dtype   2 tensor_shape {2 dim {1 size, 2 name}, 3 unknown_rank}
 *     3 version   4 tensor_content: the elements, little-endian
 *     5 to 18 without tensor_content: a list of values, which one tells the dtype
 * A list that is shorter than the tensor goes on with its last value, an empty
 * one with zeros.
 */
#ifndef TCONV_FORMATS_TF_TENSOR_H
#define TCONV_FORMATS_TF_TENSOR_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/strided_view.h"
#include "core/tensor/table.h"
#include "formats/protobuf/typed.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"

#define TF_DTYPES                                                                                  \
    (TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_BF16) | TC_SET(TC_F32) |       \
     TC_SET(TC_F64) | TC_SET(TC_C64) | TC_SET(TC_C128) | TC_SET(TC_F8_E4M3) | TC_SET(TC_F8_E5M2))

enum { TF_STRING_VAL = 8 };

/* A message as it was found. */
struct tf_tensor {
    uint64_t start;
    uint64_t end;
    const uint64_t *shape; /* the arena's */
    uint64_t count;        /* elements */
    uint64_t nbytes;
    uint64_t pieces;  /* of its list of values; strings have one each */
    uint64_t data;    /* where its bytes lie, if raw */
    uint64_t missing; /* bytes that no value in the file stands for */
    uint32_t field;   /* its list; 0: none */
    uint8_t element;  /* enum wire_type, of the list's values */
    uint8_t dtype;    /* TC_NONE: strings */
    uint8_t rank;
    bool raw;
    bool transposed; /* set before it is added: a matrix, to be read by columns */
};

/* Elements that do not lie in the file as they are wanted. */
struct tf_values {
    struct typed typed;
    uint64_t data;
    uint64_t rows; /* as stored; 0: not transposed */
    uint64_t columns;
    bool raw;
};

/* What reads the tensors of a file. */
struct tf_reader {
    struct tc_reader *reader;
    struct wire_source source;
    struct typed_reader typed;
    struct tf_values *values; /* by a tensor's cookie, less 1; with 0 it is raw */
    size_t count;
    size_t capacity;
    uint64_t zeroes; /* tensors without any */
    struct refused refused;
    /* The one that is being transposed. */
    const struct tf_values *current;
    struct tc_view_reader view_reader;
};

void tf_reader_init(struct tf_reader *tf, struct tc_reader *reader);
void tf_reader_release(struct tf_reader *tf);

/* Whether a message has the marks of a TensorProto. */
bool tf_tensor_seen(struct wire_source *source, uint64_t start, uint64_t end);
/* Reads and checks a message, but for the values in its list. */
bool tf_tensor_find(struct tf_reader *tf, uint64_t start, uint64_t end, struct tf_tensor *tensor,
                    struct tc_error *error);
/* Adds what was found to the table; name and metadata must outlive it. */
bool tf_tensor_add(struct tf_reader *tf, const struct tf_tensor *tensor, struct tc_text name,
                   struct tc_metadata *metadata, struct tc_error *error);
/* Once all are added: says what a reader would want to know, and fails where
 * nothing is left. */
bool tf_reader_finish(struct tf_reader *tf, struct tc_error *error);

bool tf_read(struct tf_reader *tf, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
             size_t length, struct tc_error *error);
bool tf_extent(struct tf_reader *tf, const struct tc_tensor *tensor, struct tc_extent *extent);

/* The number that a dtype has in TensorFlow. */
unsigned tf_dtype_number(enum tc_dtype dtype);
/* A number as a name, the arena's. */
bool tf_name(struct tc_arena *arena, uint64_t number, struct tc_text *name, struct tc_error *error);

/* Everything of an item's message but its elements, which follow. */
bool tf_write_head(struct tc_buffer *head, const struct tc_item *item, struct tc_error *error);
/* Refuses messages that no protobuf parser takes. */
bool tf_check(struct tc_plan *plan, struct tc_error *error);

/* Graphs and saved models, which are no tensors: 0 where the file is none. */
unsigned tf_graph_seen(struct wire_source *source);
/* Says what it is; returns false. */
bool tf_graph_refuse(struct wire_source *source, unsigned kind, struct tc_error *error);

#endif
