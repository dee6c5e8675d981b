/*
 * .ot: two kinds of files have this extension; their content decides. One is what
 * tch (Rust) saves: a TorchScript archive of one module whose attributes are the
 * tensors. It stores "." in a name as "|" and turns every "|" back, so that a name
 * that had "|" comes back changed. The other is an ONNX model, which the backend
 * onnx writes for --ot-dialect=onnx.
 */
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/onnx/onnx.h"
#include "formats/onnx/options.h"
#include "formats/pickle/option.h"
#include "formats/torch/torch.h"
#include "formats/torch/write.h"
#include "formats/zip/write.h"

struct ot_reader {
    bool is_onnx;
    bool opened;
    struct torch torch;
    struct onnx onnx;
};

static int probe_ot(const struct tc_probe *probe) {
    bool script;
    return torch_zip_seen(probe, &script) && script ? 95 : onnx_probe_model(probe);
}

static bool open_archive(struct torch *torch, struct tc_reader *reader, struct tc_error *error) {
    torch_init(torch, reader);
    torch->bars = true;
    if (!torch_open_zip(torch, error))
        return false;
    if (!torch->script)
        return tc_fail(error, TC_INVALID, "torch-archive",
                       "the archive has no constants.pkl: it is no TorchScript, and no .ot");
    return torch_finish(torch, error);
}

static bool open_ot(struct tc_reader *reader, struct tc_error *error) {
    struct ot_reader *ot = reader->state;
    unsigned char head[2] = {0};
    size_t length = reader->input->size < 2 ? reader->input->size : 2;
    if (!tc_input_read(reader->input, 0, head, length, error))
        return false;
    ot->opened = true;
    ot->is_onnx = memcmp(head, "PK", 2) != 0;
    if (!ot->is_onnx)
        return open_archive(&ot->torch, reader, error);
    reader->beyond = "the form of an ONNX model";
    reader->framework = NULL; /* an ONNX model is anybody's */
    onnx_init(&ot->onnx, reader);
    return onnx_read_model(&ot->onnx, error);
}

static bool read_ot(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                    void *buffer, size_t length, struct tc_error *error) {
    struct ot_reader *ot = reader->state;
    return ot->is_onnx ? onnx_read(&ot->onnx, tensor, offset, buffer, length, error)
                       : torch_read(&ot->torch, tensor, offset, buffer, length, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    struct ot_reader *ot = reader->state;
    return ot->is_onnx ? onnx_extent(&ot->onnx, tensor, extent)
                       : torch_extent(&ot->torch, tensor, extent);
}

static bool check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    struct ot_reader *ot = reader->state;
    return ot->is_onnx || torch_verify(&ot->torch, wanted, error);
}

static void close_ot(struct tc_reader *reader) {
    struct ot_reader *ot = reader->state;
    if (ot->opened && ot->is_onnx)
        onnx_release(&ot->onnx);
    else if (ot->opened)
        torch_release(&ot->torch);
}

/* "|" in a name comes back as ".", with which it may be another tensor's name. */
static bool check(struct tc_plan *plan, struct tc_error *error) {
    struct tc_name_map names; /* as they come back; filled only where a name has "|" */
    tc_name_map_init(&names, &plan->arena);
    bool ok = true;
    bool any = false;
    for (size_t i = 0; i < plan->count && ok; i++) {
        struct tc_text name = plan->items[i].name;
        if (!memchr(name.bytes, '|', name.length))
            continue;
        any = true;
        ok = tc_plan_note(plan, TC_LOSS, TC_KIND_NAME, name, error,
                          "\"|\" in a name comes back as \".\", as tch reads it");
    }
    for (size_t i = 0; i < plan->count && ok && any; i++) {
        struct tc_text name = plan->items[i].name;
        char *copy = tc_arena_copy(&plan->arena, name.bytes, name.length, error);
        if (!(ok = copy != NULL))
            break;
        for (size_t at = 0; at < name.length; at++)
            if (copy[at] == '|')
                copy[at] = '.';
        struct tc_text written = {copy, name.length};
        plan->items[i].written = written;
        if (tc_name_map_find(&names, written)) {
            ok = tc_fail(error, TC_INVALID, "duplicate-name",
                         "another tensor has this name where \"|\" and \".\" are one");
            tc_error_in_tensor(error, name.bytes, name.length);
        }
        ok = ok && tc_name_map_add(&names, written, 0, error);
    }
    tc_name_map_release(&names);
    return ok;
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    return torch_write_begin(writer, true, error);
}

const struct tc_backend tc_backend_ot = {
    .name = "ot",
    .summary = "tch-rs and libtorch archive",
    .extensions = (const char *const[]){".ot", NULL},
    .mime = "application/zip",
    .framework = "pt",
    .caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA |
            TC_CAN_TENSOR_METADATA | TC_CAN_LOAD_LAZILY | TC_NEEDS_SEEK | TC_CAN_TIE,
    .dtypes = TC_SET(TC_BOOL) | TC_SET(TC_U8) | TC_SET(TC_I8) | TC_SET(TC_I16) | TC_SET(TC_I32) |
              TC_SET(TC_I64) | TC_SET(TC_F16) | TC_SET(TC_BF16) | TC_SET(TC_F32) | TC_SET(TC_F64) |
              TC_SET(TC_C64) | TC_SET(TC_C128),
    .max_rank = TC_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .max_align = ZIP_MOST_ALIGNMENT,
    .options =
        (const struct tc_format_option *const[]){&pickle_mode_option, &ot_dialect_option, NULL},
    .probe = probe_ot,
    .reader_size = sizeof(struct ot_reader),
    .open = open_ot,
    .read = read_ot,
    .extent = extent,
    .check_sums = check_sums,
    .close = close_ot,
    .written_instead = onnx_written_as_ot,
    .writer_size = sizeof(struct torch_writer),
    .check = check,
    .begin = begin,
    .put = torch_write_put,
    .finish = torch_write_finish,
    .abort = torch_write_abort,
};
