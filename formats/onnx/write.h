/*
 * Writing ONNX: a model whose graph has the tensors as initializers, and each
 * as an output too, since onnxruntime opens no graph without one. Everything
 * is known before the first byte, so the message's lengths go first and the
 * data streams. Beyond 2 GiB, which no protobuf message passes, data goes to a
 * file beside the model.
 */
#ifndef TCONV_FORMATS_ONNX_WRITE_H
#define TCONV_FORMATS_ONNX_WRITE_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/source.h"
#include "core/plan/plan.h"

/* A backend's writer_size. */
struct onnx_writer {
    uint64_t *offsets; /* of external data, by item; UINT64_MAX: in the model */
};

/* Whether a file's data goes beside the model. */
bool onnx_write_companion(const struct tc_plan *plan, const struct tc_output_file *file);
bool onnx_write_begin(struct tc_writer *writer, struct tc_error *error);
bool onnx_write_put(struct tc_writer *writer, size_t index, struct tc_source *source,
                    struct tc_error *error);
bool onnx_write_finish(struct tc_writer *writer, struct tc_error *error);
void onnx_write_abort(struct tc_writer *writer);

/* A tensor by itself: one TensorProto is the whole file. */
bool onnx_write_lone(struct tc_writer *writer, struct tc_source *source, struct tc_error *error);
/* Whether a tensor fits one: for a backend's check. */
bool onnx_write_check_lone(struct tc_plan *plan, struct tc_error *error);

#endif
