/*
 * Writing ONNX: a model whose graph has the tensors as initializers, and each
 * as an output too, since onnxruntime opens no graph without one. Everything
 * is known before the first byte, so the lengths of the messages are written first
 * and the data is streamed. A protobuf message can't be larger than 2 GiB: beyond
 * that, the data goes to a second file (NAME.data).
 */
#ifndef TCONV_FORMATS_ONNX_WRITE_H
#define TCONV_FORMATS_ONNX_WRITE_H

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/source.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"

/* A sparse tensor that is written as one. */
struct onnx_sparse {
    struct tc_text parent;
    const struct tc_item *values;
    unsigned char *elements; /* of the values */
    unsigned char *indices;  /* [nnz, ndim] */
    uint64_t dims[TC_MAX_RANK];
    unsigned rank;
    uint64_t count;
    size_t first; /* of its items in the file: where it is written */
};

/* The writer's state: writer_size of a backend is its size. */
struct onnx_writer {
    uint64_t *offsets;                 /* of external data, by item; UINT64_MAX: in the model */
    const struct onnx_sparse **sparse; /* by item: the sparse tensor that it is part of, or NULL */
    struct tc_metadata metadata;       /* the file's, less what the sparse tensors say themselves */
};

/* write_sparse.c: finds those of the file; makes the metadata; appends the message of one. */
bool onnx_find_sparse(struct tc_writer *writer, struct onnx_writer *onnx, struct tc_error *error);
bool onnx_leave_out_sparse(struct tc_writer *writer, struct onnx_writer *onnx,
                           struct tc_error *error);
bool onnx_add_sparse_tensor(struct tc_buffer *text, const struct onnx_sparse *sparse,
                            struct tc_error *error);
/* Appends a TensorProto without data. With a location, it refers to external data at
 * `offset` there. */
bool onnx_write_head(struct tc_buffer *text, const struct tc_item *item, uint64_t offset,
                     const char *location, struct tc_error *error);

/* Whether a model's data goes to a second file. */
bool onnx_write_companion(const struct tc_plan *plan, const struct tc_output_file *file);
bool onnx_write_begin(struct tc_writer *writer, struct tc_error *error);
bool onnx_write_put(struct tc_writer *writer, size_t index, struct tc_source *source,
                    struct tc_error *error);

/* Writes a single tensor: one TensorProto is the whole file. */
bool onnx_write_lone(struct tc_writer *writer, struct tc_source *source, struct tc_error *error);
/* Fails where a tensor is too large for one TensorProto: for a backend's check. */
bool onnx_write_check_lone(struct tc_plan *plan, struct tc_error *error);

#endif
