/*
 * .pt, .pth, .bin: PyTorch's files. Their content decides which of four forms they
 * have: a zip (torch/zip.c), pickles one after the other (torch/legacy.c), a tar
 * (torch/tar.c), or a plain pickle of arrays (.pkl, torch/plain.c), which joblib may
 * have compressed. They are written as torch.save writes a state dict
 * (torch/write.c).
 */
#include <string.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/opcodes.h"
#include "formats/pickle/option.h"
#include "formats/shards.h"
#include "formats/torch/torch.h"
#include "formats/torch/tree.h"
#include "formats/torch/write.h"
#include "formats/zip/write.h"

static bool is_tar(const struct tc_probe *probe) {
    return probe->length >= 262 && memcmp(probe->head + 257, "ustar", 5) == 0;
}

/* The length of the next line, with its newline, where that is a dotted name; else 0. */
static size_t name_line(const unsigned char *bytes, size_t length) {
    size_t at = 0;
    while (at < length &&
           (bytes[at] == '.' || bytes[at] == '_' || (bytes[at] >= '0' && bytes[at] <= '9') ||
            ((bytes[at] | 0x20) >= 'a' && (bytes[at] | 0x20) <= 'z')))
        at++;
    return at > 0 && at < length && bytes[at] == '\n' ? at + 1 : 0;
}

/* Pickles of protocols 0 and 1 have no magic bytes. They start with a global, or with
 * an empty container that is put into the memo, and end with STOP, a dot. */
static bool is_old_pickle(const struct tc_probe *probe) {
    unsigned char last;
    struct tc_error ignored = {0};
    if (probe->length < 4 ||
        !tc_input_read(probe->input, probe->input->size - 1, &last, 1, &ignored) || last != OP_STOP)
        return false;
    const unsigned char *head = probe->head;
    if (head[0] == OP_GLOBAL) {
        size_t module = name_line(head + 1, probe->length - 1);
        return module && name_line(head + 1 + module, probe->length - 1 - module);
    }
    if (head[0] == OP_MARK && (head[1] == OP_INST || head[1] == OP_GLOBAL))
        return true;
    if (head[0] == OP_MARK && (head[1] == OP_DICT || head[1] == OP_LIST))
        return head[2] == OP_PUT;
    return (head[0] == OP_EMPTY_DICT || head[0] == OP_EMPTY_LIST) && head[1] == OP_BINPUT;
}

static int probe_pt(const struct tc_probe *probe) {
    bool script;
    if (torch_zip_seen(probe, &script))
        return 95;
    if (torch_legacy_seen(probe))
        return 95;
    if (is_tar(probe))
        return 40;
    if (torch_packed_seen(probe))
        return 60;
    if (probe->length >= 2 && probe->head[0] == OP_PROTO && probe->head[1] >= 2 &&
        probe->head[1] <= PICKLE_PROTOCOL)
        return 60;
    return is_old_pickle(probe) ? 50 : 0;
}

static bool open_pt(struct tc_reader *reader, struct tc_error *error) {
    struct torch *torch = reader->state;
    struct tc_probe probe = {.input = reader->input};
    probe.length =
        reader->input->size < sizeof probe.head ? reader->input->size : sizeof probe.head;
    torch_init(torch, reader);
    if (!tc_input_read(reader->input, 0, probe.head, probe.length, error))
        return false;
    if (probe.head[0] != 'P' && !torch_legacy_seen(&probe) && !is_tar(&probe))
        reader->beyond = "a pickle that is not torch's";
    bool zip = probe.length >= 4 && memcmp(probe.head, "PK", 2) == 0;
    bool ok = zip                         ? torch_open_zip(torch, error)
              : torch_legacy_seen(&probe) ? torch_open_legacy(torch, error)
              : is_tar(&probe)            ? torch_open_tar(torch, error)
              : torch_packed_seen(&probe) ? torch_open_packed(torch, error)
                                          : torch_open_plain(torch, error);
    /* Of pickles that are not torch's the tensors are wanted, and not the classes that they
     * are objects of. */
    reader->plain |= reader->beyond && !zip && !torch_legacy_seen(&probe) && !is_tar(&probe);
    return ok && torch_finish(torch, error);
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    return torch_write_begin(writer, false, error);
}

const struct tc_backend tc_backend_pt = {
    .name = "pt",
    .summary = "PyTorch",
    .extensions = (const char *const[]){".pt", ".pth", ".bin", ".pkl", ".ckpt", NULL},
    .mime = "application/zip",
    .framework = "pt",
    .caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA |
            TC_CAN_TENSOR_METADATA | TC_CAN_LOAD_LAZILY | TC_NEEDS_SEEK | TC_CAN_TIE | TC_CAN_NEST,
    .dtypes = TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_BF16) |
              TC_SET(TC_F32) | TC_SET(TC_F64) | TC_SET(TC_C64) | TC_SET(TC_C128) | TC_SET(TC_C32) |
              TC_SET_F8 | TC_SET(TC_F4),
    .max_rank = TC_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .empty_name = true,
    .max_align = ZIP_MOST_ALIGNMENT,
    .options = (const struct tc_format_option *const[]){&pickle_mode_option, NULL},
    .probe = probe_pt,
    .reader_size = sizeof(struct torch),
    .open = open_pt,
    .read = torch_reader_read,
    .extent = torch_reader_extent,
    .strided = torch_reader_strided,
    .check_sums = torch_reader_check_sums,
    .close = torch_reader_close,
    .tree = torch_tree,
    .writer_size = sizeof(struct torch_writer),
    .check = torch_write_check,
    .begin = begin,
    .put = torch_write_put,
    .finish = torch_write_finish,
    .abort = torch_write_abort,
    .sharding =
        &(const struct tc_sharding){
            .count_digits = 5,
            .index_ending = ".index.json",
            .write_index = shards_write_index,
            .index_metadata = true,
            .listed = torch_write_listed,
            .leave_room = torch_write_leave_room,
            .single = true,
        },
};
