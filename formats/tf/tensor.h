/*
 * TensorFlow's TensorProto: a .tensor file is one, each record of a .tfrecord has
 * one. Its fields by number:
 *     1 dtype   2 tensor_shape {2 dim {1 size, 2 name}, 3 unknown_rank}
 *     3 version_number   4 tensor_content: the elements, little-endian
 *     5 to 18, without tensor_content: a list of values; the dtype says which field
 * A list that is shorter than the tensor goes on with its last value, an empty
 * one with zeros.
 *
 * tf_read of a sequential tensor runs in one thread at a time, of any other in
 * several.
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

/* What a message says of its tensor. */
struct tf_tensor {
    uint64_t start;
    uint64_t end;
    const uint64_t *shape; /* the arena's */
    uint64_t count;        /* elements */
    uint64_t nbytes;
    uint64_t pieces;  /* how often the field of the list occurs; for strings once each */
    uint64_t data;    /* where its bytes lie in the file, if raw */
    uint64_t missing; /* bytes that no value in the file stands for */
    uint32_t field;   /* the field that has the list of values; 0: none */
    uint8_t element;  /* enum wire_type, of the list's values */
    uint8_t dtype;    /* TC_NONE: strings */
    uint8_t rank;
    bool raw;        /* its bytes are in tensor_content */
    bool transposed; /* the caller's, before tf_tensor_add: a matrix to be transposed */
};

/* Where the elements of a tensor come from whose bytes can't be read as they are. */
struct tf_values {
    struct typed typed;
    uint64_t data;
    uint64_t rows; /* as stored; 0: not transposed */
    uint64_t columns;
    bool raw;
};

/* Reads the tensors of a file: a backend's state, or a part of it. */
struct tf_reader {
    struct tc_reader *reader;
    struct wire_source source;
    struct typed_reader typed;
    struct tf_values *values; /* by a tensor's cookie less 1; with cookie 0 it is raw */
    size_t count;
    size_t capacity;
    uint64_t zeroes; /* tensors that have no values, and so are zeros */
    struct refused refused;
    /* The matrix that is being transposed. */
    const struct tf_values *current;
    struct tc_view_reader view_reader;
};

void tf_reader_init(struct tf_reader *tf, struct tc_reader *reader);
void tf_reader_release(struct tf_reader *tf);

/* Whether a message looks like a TensorProto: for a probe. */
bool tf_tensor_seen(struct wire_source *source, uint64_t start, uint64_t end);
/* Parses and checks a message, except for the values in its list. */
bool tf_tensor_find(struct tf_reader *tf, uint64_t start, uint64_t end, struct tf_tensor *tensor,
                    struct tc_error *error);
/* Adds the tensor to the table; name and metadata must outlive the table. */
bool tf_tensor_add(struct tf_reader *tf, const struct tf_tensor *tensor, struct tc_text name,
                   struct tc_metadata *metadata, struct tc_error *error);
/* Called once all tensors are added: adds the notes for the user, and fails where
 * only values that were refused are there. */
bool tf_reader_finish(struct tf_reader *tf, struct tc_error *error);

bool tf_read(struct tf_reader *tf, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
             size_t length, struct tc_error *error);
bool tf_extent(struct tf_reader *tf, const struct tc_tensor *tensor, struct tc_extent *extent);

/* The number that a dtype has in TensorFlow. */
unsigned tf_dtype_number(enum tc_dtype dtype);
/* The digits of a number as a tensor's name, in the arena. */
bool tf_name(struct tc_arena *arena, uint64_t number, struct tc_text *name, struct tc_error *error);

/* The message of an item up to its elements, which follow as they are. */
bool tf_write_head(struct tc_buffer *head, const struct tc_item *item, struct tc_error *error);
/* Fails where a tensor is too large for a protobuf message: a backend's check. */
bool tf_check(struct tc_plan *plan, struct tc_error *error);

/* Which kind of TensorFlow graph or saved model the file is, which has no tensor as
 * a whole; 0: none. */
unsigned tf_graph_seen(struct wire_source *source);
/* Fills the error with what such a file is; returns false. */
bool tf_graph_refuse(struct wire_source *source, unsigned kind, struct tc_error *error);

/* Writes a sparse tensor, the items of which are its parts in the order of tf_compare. */
bool tf_write_sparse(struct tc_writer *writer, struct tc_error *error);
int tf_compare(const struct tc_item *a, const struct tc_item *b);

#endif
