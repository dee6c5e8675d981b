/*
 *     "GGUF", u32 version (2 or 3), u64 tensors, u64 pairs of metadata
 *     pairs: string key, u32 type, value (gguf/value.c); a string is u64 length and bytes
 *     tensors: string name, u32 rank, u64 dimensions, innermost first, u32 dtype, u64 offset
 *     data: starts at the next multiple of the alignment (metadata general.alignment, else 32);
 *           each tensor starts where the padding behind the one before ends
 *
 * Names that quantised dtypes have are ggml's. Of a model in several files (gguf/split.c) the
 * first is opened.
 */
#include <string.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/gguf/gguf.h"
#include "formats/shards.h"

static int probe(const struct tc_probe *probe) {
    return probe->length >= 4 && memcmp(probe->head, GGUF_MAGIC, 4) == 0 ? 100 : 0;
}

static bool read_gguf(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *error) {
    struct gguf_reader *gguf = reader->state;
    if (gguf->split)
        return shards_read(&gguf->shards, tensor, offset, buffer, length, error);
    return tc_input_read(reader->input, gguf->data + tensor->offset + offset, buffer, length,
                         error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    struct gguf_reader *gguf = reader->state;
    if (gguf->split)
        return shards_extent(&gguf->shards, tensor, extent);
    *extent = (struct tc_extent){.input = reader->input, .offset = gguf->data + tensor->offset};
    return true;
}

static void close_gguf(struct tc_reader *reader) {
    shards_release(&((struct gguf_reader *)reader->state)->shards);
}

const struct tc_backend tc_backend_gguf = {
    .name = "gguf",
    .summary = "GGUF, of ggml and llama.cpp",
    .extensions = (const char *const[]){".gguf", NULL},
    .mime = "application/octet-stream",
    .caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA |
            TC_CAN_TYPE_METADATA | TC_CAN_LOAD_LAZILY | TC_WRITES_ANY_ORDER | TC_HAS_NO_END,
    .dtypes = TC_SET(TC_I8) | TC_SET(TC_I16) | TC_SET(TC_I32) | TC_SET(TC_I64) | TC_SET(TC_F16) |
              TC_SET(TC_BF16) | TC_SET(TC_F32) | TC_SET(TC_F64) | TC_SET_BLOCKS,
    .max_rank = GGUF_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .empty_name = true,
    .options = (const struct tc_format_option *const[]){&gguf_version_option, NULL},
    .probe = probe,
    .reader_size = sizeof(struct gguf_reader),
    .open = gguf_open,
    .read = read_gguf,
    .extent = extent,
    .close = close_gguf,
    .writer_size = sizeof(struct gguf_writer),
    .check = gguf_check,
    .begin = gguf_begin,
    .put = gguf_put,
    .sharding = &gguf_sharding,
};
