/*
 *     u64 length of the header
 *     header: JSON {"__metadata__": {…}, NAME: {"dtype", "shape", "data_offsets"}, …},
 *             padded with spaces to a multiple of 8
 *     data: the tensors, which tile it exactly; offsets count from its start
 *
 * It is written as the reference implementation writes it: tensors in the same
 * order, the header with the same text.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/format/source.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/layout.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/table.h"
#include "formats/shards.h"
#include "formats/tensor_entry.h"

#define PREFIX_BYTES 8u
#define HEADER_LIMIT UINT64_C(100000000)
#define DTYPES                                                                                     \
    (TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_BF16) | TC_SET(TC_F32) |       \
     TC_SET(TC_F64) | TC_SET_F8 | TC_SET(TC_F4) | TC_SET(TC_F6_E2M3) | TC_SET(TC_F6_E3M2) |        \
     TC_SET(TC_C64))

struct safetensors_reader {
    char *header; /* names and metadata point into it */
    uint64_t data;
};

static int probe(const struct tc_probe *probe) {
    if (probe->length < 10)
        return 0;
    uint64_t length = tc_load(probe->head, 8);
    size_t at = 8;
    while (at < probe->length && memchr(" \t\r\n", probe->head[at], 4))
        at++;
    if (at == probe->length || probe->head[at] != '{')
        return 0;
    return length >= 2 && length <= probe->input->size - 8 ? 90 : 40;
}

/* The table is sorted by offset. Each tensor must start where the one before ends;
 * an empty tensor may also start where the one before starts. */
static bool check_tiling(const struct tc_reader *reader, uint64_t size, struct tc_error *error) {
    uint64_t start = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        if (tensor->offset == end || (tensor->nbytes == 0 && tensor->offset == start)) {
            if (tensor->nbytes) {
                start = end;
                end += tensor->nbytes;
            }
            continue;
        }
        tc_fail(error, TC_INVALID, tensor->offset < end ? "overlap" : "hole",
                tensor->offset < end ? "its data overlaps another tensor's (starts at %llu, "
                                       "the one before ends at %llu)"
                                     : "a hole in the data before it (starts at %llu, the one "
                                       "before ends at %llu)",
                (unsigned long long)tensor->offset, (unsigned long long)end);
        return tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
    }
    uint64_t whole;
    if (end == size)
        return true;
    if (end > size && tc_add(reader->input->size - size, end, &whole))
        return tc_reader_cut_short(reader, whole, false, error);
    return tc_fail(error, TC_INVALID, "trailing-data",
                   "bytes follow the last tensor (got %llu bytes, expected %llu)",
                   (unsigned long long)size, (unsigned long long)end);
}

static bool parse_header(struct tc_reader *reader, uint64_t length, struct tc_error *error) {
    struct safetensors_reader *safetensors = reader->state;
    struct tc_table *table = &reader->table;
    struct tc_json json;
    struct tc_text name;
    bool metadata = false;
    tc_json_init(&json, safetensors->header, length, 8, &reader->arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &name)) {
        if (!tc_text_equal(name, TC_TEXT("__metadata__"))) {
            if (!tensor_entry_read(&json, reader, name, DTYPES, false))
                return false;
            continue;
        }
        if (metadata)
            return tc_json_fail(&json, "__metadata__ occurs twice");
        metadata = true;
        /* MLX writes null where there is none. */
        if (!(tc_json_peek(&json) == TC_JSON_NULL ? tc_json_null(&json)
                                                  : tc_metadata_read(&json, &table->metadata)))
            return false;
    }
    return tc_json_end(&json);
}

static bool open_safetensors(struct tc_reader *reader, struct tc_error *error) {
    struct safetensors_reader *safetensors = reader->state;
    struct tc_input *input = reader->input;
    unsigned char prefix[PREFIX_BYTES];
    if (input->size < sizeof prefix)
        return tc_reader_cut_short(reader, sizeof prefix, true, error);
    if (!tc_input_read(input, 0, prefix, sizeof prefix, error))
        return false;
    uint64_t length = tc_load(prefix, 8);
    uint64_t limit = tc_reader_header_limit(reader, HEADER_LIMIT);
    if (length > input->size - 8 && length <= limit)
        return tc_reader_cut_short(reader, 8 + length, true, error);
    if (length > input->size - 8)
        return tc_fail(error, TC_INVALID, "truncated",
                       "the header is longer than the file (%llu bytes, the file has %llu)",
                       (unsigned long long)length, (unsigned long long)input->size);
    if (length > limit) {
        tc_fail(error, TC_UNSAFE, "header-limit", "the header is too long (%llu bytes, limit %llu)",
                (unsigned long long)length, (unsigned long long)limit);
        return tc_error_hint(error, "raise the limit with --max-header if you trust this file");
    }
    safetensors->header = tc_reader_load(reader, 8, length, error);
    safetensors->data = 8 + length;
    uint64_t size = input->size - safetensors->data;
    return safetensors->header && parse_header(reader, length, error) &&
           tc_table_sort(&reader->table, error) && check_tiling(reader, size, error) &&
           tc_tensor_metadata_restore(reader, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    const struct safetensors_reader *safetensors = reader->state;
    *extent =
        (struct tc_extent){.input = reader->input, .offset = safetensors->data + tensor->offset};
    return true;
}

static bool read_safetensors(struct tc_reader *reader, const struct tc_tensor *tensor,
                             uint64_t offset, void *buffer, size_t length, struct tc_error *error) {
    const struct safetensors_reader *safetensors = reader->state;
    return tc_input_read(reader->input, safetensors->data + tensor->offset + offset, buffer, length,
                         error);
}

static void close_safetensors(struct tc_reader *reader) {
    free(((struct safetensors_reader *)reader->state)->header);
}

/* The reference writer's order: by dtype, from the largest alignment to the smallest
 * as its list of dtypes has them, then by name. */
static const uint8_t ranks[TC_DTYPES] = {
    [TC_U64] = 0,          [TC_I64] = 1,      [TC_F64] = 2,      [TC_C64] = 3,
    [TC_F32] = 4,          [TC_U32] = 5,      [TC_I32] = 6,      [TC_BF16] = 7,
    [TC_F16] = 8,          [TC_U16] = 9,      [TC_I16] = 10,     [TC_F8_E5M2FNUZ] = 11,
    [TC_F8_E4M3FNUZ] = 12, [TC_F8_E8M0] = 13, [TC_F8_E4M3] = 14, [TC_F8_E5M2] = 15,
    [TC_I8] = 16,          [TC_U8] = 17,      [TC_F6_E3M2] = 18, [TC_F6_E2M3] = 19,
    [TC_F4] = 20,          [TC_BOOL] = 21,
};

static int compare(const struct tc_item *a, const struct tc_item *b) {
    if (ranks[a->dtype] != ranks[b->dtype])
        return ranks[a->dtype] < ranks[b->dtype] ? -1 : 1;
    return tc_text_compare(a->name, b->name);
}

static bool check(struct tc_plan *plan, struct tc_error *error) {
    if (tc_metadata_find(&plan->metadata, TC_TEXT(TC_TENSOR_METADATA_KEY))) {
        tc_fail(error, TC_UNSUPPORTED, "metadata",
                "metadata key \"%s\" means something of its own here", TC_TENSOR_METADATA_KEY);
        return tc_error_hint(error, "leave the metadata out with --keep-metadata=drop");
    }
    for (size_t i = 0; i < plan->count; i++)
        if (tc_text_equal(plan->items[i].name, TC_TEXT("__metadata__"))) {
            tc_fail(error, TC_UNSUPPORTED, "name", "safetensors cannot hold a tensor of this name");
            return tc_error_in_tensor(error, plan->items[i].name.bytes, plan->items[i].name.length);
        }
    return true;
}

struct safetensors_writer {
    uint64_t *offsets; /* of the items, in the file */
};

static void add_header(struct tc_buffer *text, const struct tc_writer *writer) {
    const struct tc_plan *plan = writer->plan;
    const struct tc_output_file *file = writer->file;
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    if (file->metadata.count)
        tc_metadata_write(&json, "__metadata__", &file->metadata);
    uint64_t offset = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct tc_item *item = &plan->items[file->first + i];
        const uint64_t offsets[2] = {offset, offset + item->nbytes};
        tc_json_add_key(&json, item->name);
        tc_json_open_object(&json, NULL);
        tc_json_add_string(&json, "dtype", tc_dtype_name(item->dtype));
        tc_json_add_numbers(&json, "shape", item->shape, item->rank);
        tc_json_add_numbers(&json, "data_offsets", offsets, 2);
        tc_json_close(&json);
        offset += item->nbytes;
    }
    tc_json_close(&json);
    uint64_t end = PREFIX_BYTES + text->length;
    uint64_t data = tc_layout_start(writer, (end + 7) & ~UINT64_C(7));
    tc_buffer_add_spaces(text, data - end);
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    struct safetensors_writer *safetensors = writer->state;
    const struct tc_output_file *file = writer->file;
    struct tc_buffer text = {0};
    add_header(&text, writer);
    bool ok = tc_buffer_ok(&text, error);
    if (ok && text.length > HEADER_LIMIT) {
        tc_fail(error, TC_UNSUPPORTED, "header-limit",
                "the header would be %zu bytes, more than safetensors allows (%llu)", text.length,
                (unsigned long long)HEADER_LIMIT);
        ok = tc_error_because(error, TC_REASON_HEADER_SIZE);
    }
    unsigned char prefix[PREFIX_BYTES];
    tc_store(prefix, text.length, sizeof prefix);
    uint64_t offset = sizeof prefix + text.length;
    ok = ok && tc_outfile_write(writer->out, prefix, sizeof prefix, error) &&
         tc_outfile_write(writer->out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    safetensors->offsets =
        ok ? tc_arena_array(&writer->arena, file->count, sizeof(uint64_t), error) : NULL;
    for (size_t i = 0; safetensors->offsets && i < file->count; i++) {
        safetensors->offsets[i] = offset;
        offset += writer->plan->items[file->first + i].nbytes;
    }
    return safetensors->offsets != NULL;
}

static uint64_t place(const struct tc_writer *writer, size_t item) {
    const struct safetensors_writer *safetensors = writer->state;
    return safetensors->offsets[item];
}

static bool put(struct tc_writer *writer, size_t item, struct tc_source *source,
                struct tc_error *error) {
    writer->out->position = place(writer, item);
    return tc_source_write(source, writer->out, error);
}

static bool leave_room(struct tc_writer *writer, size_t item, struct tc_error *error) {
    const struct safetensors_writer *safetensors = writer->state;
    (void)error;
    writer->out->position = safetensors->offsets[item];
    tc_outfile_skip(writer->out, writer->plan->items[writer->file->first + item].nbytes);
    return true;
}

const struct tc_backend tc_backend_safetensors = {
    .name = "safetensors",
    .summary = "Hugging Face safetensors",
    .extensions = (const char *const[]){".safetensors", NULL},
    .mime = "application/vnd.safetensors",
    .caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA |
            TC_CAN_LOAD_LAZILY | TC_WRITES_ANY_ORDER,
    .dtypes = DTYPES,
    .max_rank = TC_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .empty_name = true,
    .max_align = TC_MOST_ALIGNMENT,
    .shares_blocks = true,
    .probe = probe,
    .reader_size = sizeof(struct safetensors_reader),
    .open = open_safetensors,
    .read = read_safetensors,
    .extent = extent,
    .close = close_safetensors,
    .writer_size = sizeof(struct safetensors_writer),
    .compare = compare,
    .check = check,
    .begin = begin,
    .place = place,
    .put = put,
    .sharding =
        &(const struct tc_sharding){
            .count_digits = 5,
            .index_ending = ".index.json",
            .write_index = shards_write_index,
            .index_metadata = true,
            .leave_room = leave_room,
            .single = true,
        },
};
