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
#include "core/format/backend.h"
#include "core/format/source.h"
#include "core/plan/plan.h"

/* The writer's state: writer_size of a backend is its size. */
struct onnx_writer {
    uint64_t *offsets; /* of external data, by item; UINT64_MAX: in the model */
};

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
