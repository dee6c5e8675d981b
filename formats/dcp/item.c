/*
 * Items: ranges of the .distcp files, unaligned and one behind the other, each a whole archive of
 * torch.save with one tensor or one value; or that as a frame of zstd, without its size.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/zstd.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/dcp/dcp.h"
#include "formats/pieces.h"
#include "formats/torch/object.h"

/* What an archive of torch's adds to a tensor's bytes at most: headers, and a pickle. */
#define ARCHIVE_ROOM (UINT64_C(1) << 20)
#define UNPACK_STEP ((size_t)256 << 10)
/* How many items of a tuple are asked for, to know whether a selection takes any of them. */
#define ITEMS_ASKED 16u

static bool unpack(struct tc_zstd_decoder *decoder, int fd, uint64_t most, uint64_t *size,
                   struct tc_error *error) {
    char *buffer = malloc(UNPACK_STEP);
    size_t got = UNPACK_STEP;
    bool ok = buffer || tc_fail_memory(error);
    *size = 0;
    while (ok && got == UNPACK_STEP) {
        ok = tc_zstd_decode_some(decoder, buffer, UNPACK_STEP, &got, error);
        if (ok && got > most - *size)
            ok = tc_fail(error, TC_INVALID, "dcp-item",
                         "an item unpacks to more than %llu bytes, which what it holds could have",
                         (unsigned long long)most);
        ok = ok && tc_tempfile_check(fd, *size, got, error) && tc_write_all(fd, buffer, got, error);
        *size += ok ? got : 0;
    }
    free(buffer);
    return ok && tc_zstd_decoder_end(decoder, error);
}

/* An item that is packed, as a temporary file. */
static struct tc_input *unpack_item(struct tc_input *file, const struct dcp_item *item,
                                    uint64_t most, struct tc_error *error) {
    struct tc_zstd_decoder decoder = {0};
    uint64_t size;
    int fd = tc_tempfile(error);
    bool ok =
        fd >= 0 &&
        tc_zstd_decoder_init(&decoder, file, item->offset, item->offset + item->length, error) &&
        unpack(&decoder, fd, most, &size, error);
    if (fd >= 0)
        tc_zstd_decoder_release(&decoder);
    if (ok)
        return tc_input_adopt(fd, file->path, size, file, error);
    if (fd >= 0)
        close(fd);
    return NULL;
}

struct tc_reader *dcp_item_open(struct dcp *dcp, const struct dcp_item *item, uint64_t most,
                                struct tc_error *error) {
    struct tc_input *file = dcp->inputs[item->file];
    if (!tc_range_within(item->offset, item->length, file->size)) {
        tc_fail(error, TC_INVALID, "truncated",
                "an item of %llu bytes at %llu reaches past the file's end (%llu bytes)",
                (unsigned long long)item->length, (unsigned long long)item->offset,
                (unsigned long long)file->size);
        tc_error_in_file(error, file->path);
        return NULL;
    }
    struct tc_input *input =
        item->packed ? unpack_item(file, item, most, error)
                     : tc_input_part(file, file->path, item->offset, item->length, error);
    struct tc_reader *reader = input ? torch_object_open(input, &dcp->options, error) : NULL;
    if (reader)
        return reader;
    if (input && error->has_offset && !item->packed)
        error->offset += item->offset;
    if (item->packed)
        error->has_offset = false; /* it is one in what was unpacked */
    tc_error_in_file(error, file->path);
    return NULL;
}

/* Whether the tensor of an item is the piece that the table says. */
static bool fits(const struct dcp_entry *entry, const struct piece *piece,
                 const struct tc_tensor *tensor) {
    if (tensor->dtype != entry->dtype || tensor->rank != entry->rank)
        return false;
    for (unsigned d = 0; d < entry->rank; d++) {
        bool pairs = entry->dtype == TC_F4 && d + 1 == entry->rank;
        if (tensor->shape[d] != piece->size[d] * (pairs ? 2 : 1))
            return false;
    }
    return true;
}

static bool fail_misfit(const struct dcp_entry *entry, const struct piece *piece,
                        const struct tc_tensor *tensor, struct tc_error *error) {
    struct tc_buffer held = {0};
    struct tc_buffer expected = {0};
    tc_shape_print(&held, tensor->shape, tensor->rank);
    tc_shape_print(&expected, piece->size, entry->rank);
    if (tc_buffer_ok(&held, error) && tc_buffer_ok(&expected, error))
        tc_fail(error, TC_INVALID, "dcp-item",
                "an item holds %s %.*s, where the table says %s %.*s", tc_dtype_name(tensor->dtype),
                (int)held.length, held.bytes, tc_dtype_name(entry->dtype), (int)expected.length,
                expected.bytes);
    tc_buffer_release(&held);
    tc_buffer_release(&expected);
    return false;
}

struct tc_reader *dcp_piece_open(struct dcp *dcp, const struct dcp_entry *entry,
                                 const struct piece *piece, struct tc_error *error) {
    const struct dcp_item *item = &entry->sources[piece->source].item;
    struct tc_reader *reader =
        dcp_item_open(dcp, item, pieces_bytes(&entry->pieces, piece) + ARCHIVE_ROOM, error);
    bool ok = reader && torch_object_add(reader, entry->name, torch_object_root(reader), error) &&
              torch_object_finish(reader, error) &&
              (fits(entry, piece, &reader->table.tensors[0]) ||
               fail_misfit(entry, piece, &reader->table.tensors[0], error));
    if (ok)
        return reader;
    tc_error_in_tensor(error, entry->name.bytes, entry->name.length);
    tc_error_in_file(error, dcp->inputs[item->file]->path);
    tc_reader_close(reader);
    return NULL;
}

/* Values */

bool dcp_wants(const struct dcp *dcp, const struct dcp_entry *entry) {
    if (entry->left_out)
        return false;
    if (!dcp->reader->options->select || tc_reader_wants(dcp->reader, entry->name))
        return true;
    bool wanted = false;
    for (unsigned i = 0; i < ITEMS_ASKED && !wanted && !entry->tensor; i++) {
        struct tc_buffer item = {0};
        tc_buffer_add_text(&item, entry->name);
        tc_buffer_addf(&item, ".%u", i);
        wanted =
            item.failed || tc_reader_wants(dcp->reader, (struct tc_text){item.bytes, item.length});
        tc_buffer_release(&item);
    }
    return wanted;
}

static bool copy_text(struct tc_arena *arena, struct tc_text *text, struct tc_error *error) {
    text->bytes = tc_arena_copy(arena, text->length ? text->bytes : "", text->length, error);
    return text->bytes != NULL;
}

/* Takes over what a value's reader has beside tensors. */
static bool take_metadata(struct dcp *dcp, const struct tc_reader *value, struct tc_error *error) {
    struct tc_reader *reader = dcp->reader;
    const struct tc_metadata *metadata = &value->table.metadata;
    for (size_t i = 0; i < metadata->count; i++) {
        struct tc_pair pair = metadata->pairs[i];
        if (!copy_text(&reader->arena, &pair.key, error) ||
            !copy_text(&reader->arena, &pair.value, error) ||
            !tc_metadata_add(&reader->table.metadata, &reader->arena, pair.key, pair.value, error))
            return false;
    }
    reader->leaves |= metadata->count > 0;
    reader->skipped_pickle |= value->skipped_pickle;
    return tc_notes_merge(&reader->notes, &value->notes, TC_SEVERITIES, error);
}

/* Adds the tensors that are in a value, which stays open for them. */
static bool take_tensors(struct dcp *dcp, struct tc_reader *value, struct tc_error *error) {
    struct tc_reader **values =
        reallocarray(dcp->values, dcp->value_count + 1, sizeof(struct tc_reader *));
    if (!values) {
        tc_reader_close(value);
        return tc_fail_memory(error);
    }
    dcp->values = values;
    dcp->values[dcp->value_count++] = value;
    for (size_t i = 0; i < value->table.count; i++) {
        struct tc_tensor tensor = value->table.tensors[i];
        tensor.tie = tensor.storage = 0;
        tensor.cookie = (uint32_t)(dcp->count + dcp->value_count - 1);
        tensor.offset = i;
        if (!tc_table_add(&dcp->reader->table, &tensor, error))
            return false;
    }
    return true;
}

static bool read_value(struct dcp *dcp, const struct dcp_entry *entry, struct tc_error *error) {
    if (!entry->placed)
        return tc_fail(error, TC_INVALID, "dcp-table", "the table has no item for it");
    struct tc_reader *value = dcp_item_open(dcp, &entry->item, dcp->options.limits.pickle, error);
    bool ok = value && torch_object_walk(value, entry->name, torch_object_root(value), error) &&
              torch_object_finish(value, error) && take_metadata(dcp, value, error);
    if (ok && value->table.count)
        return take_tensors(dcp, value, error);
    if (!ok)
        tc_error_in_file(error, dcp->inputs[entry->item.file]->path);
    tc_reader_close(value);
    return ok;
}

bool dcp_read_values(struct dcp *dcp, struct tc_error *error) {
    for (size_t i = 0; i < dcp->count; i++) {
        const struct dcp_entry *entry = &dcp->entries[i];
        if (entry->tensor || !dcp_wants(dcp, entry) || read_value(dcp, entry, error))
            continue;
        tc_error_in_tensor(error, entry->name.bytes, entry->name.length);
        if (!tc_reader_forgive(dcp->reader, error))
            return false;
    }
    return tc_metadata_sort(&dcp->reader->table.metadata, error);
}
