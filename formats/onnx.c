/*
 * .onnx: a ModelProto. All tensors in it are read, wherever they are (onnx/graph.c).
 * A model that is written holds nothing but tensors (onnx/write.c).
 */

#include "formats/onnx/onnx.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "formats/onnx/options.h"
#include "formats/onnx/write.h"

static bool open_onnx(struct tc_reader *reader, struct tc_error *error) {
    onnx_init(reader->state, reader);
    return onnx_read_model(reader->state, error);
}

const struct tc_backend tc_backend_onnx = {
    .name = "onnx",
    .summary = "ONNX model",
    .extensions = (const char *const[]){".onnx", NULL},
    .mime = "application/octet-stream",
    .caps =
        TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA | TC_CAN_LOAD_LAZILY,
    .dtypes = ONNX_DTYPES,
    .max_rank = TC_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .options =
        (const struct tc_format_option *const[]){&onnx_external_option, &ot_dialect_option, NULL},
    .probe = onnx_probe_model,
    .reader_size = sizeof(struct onnx),
    .open = open_onnx,
    .read = onnx_reader_read,
    .extent = onnx_reader_extent,
    .close = onnx_reader_close,
    .writer_size = sizeof(struct onnx_writer),
    .companion = onnx_write_companion,
    .begin = onnx_write_begin,
    .put = onnx_write_put,
};
