/*
 * Sparse tensors as SparseTensorProto (sparse.c has its fields), in the graph's sparse_initializer.
 * ONNX has them in COO layout with one value each, its indices ascending; any other sparse tensor
 * stays a group of tensors. Elements stand in the middle of the message, so that a sparse tensor is
 * read before the model is written: one of more than LARGEST bytes stays a group, too.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/plan/kept_metadata.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "formats/onnx/write.h"
#include "formats/protobuf/wire.h"

#define LARGEST (UINT64_C(16) << 20)

#define TAG_VALUES 0x0A   /* SparseTensorProto, field 1 */
#define TAG_INDICES 0x12  /* field 2 */
#define TAG_DIMS 0x18     /* field 3 */
#define TAG_RAW_DATA 0x4A /* TensorProto, field 9 */

enum { INDICES, VALUES, SHAPE, PARTS };

/* Whether an item has its tensor's own bytes, all of them. */
static bool is_whole(const struct tc_item *item) {
    return !item->densify && !item->dequantise && item->dtype == item->tensor->dtype &&
           item->taken == item->tensor->nbytes;
}

/* The items that are the parts of a sparse tensor, found by any of them. */
static bool find_parts(const struct tc_item *items, const struct tc_name_map *names,
                       const struct tc_item *item, struct tc_arena *arena, size_t parts[PARTS],
                       struct tc_error *error) {
    const struct tc_sparse_layout *coo = &tc_sparse_layouts[TC_SPARSE_COO];
    const struct tc_text *parent = tc_sparse_parent(item->metadata);
    const struct tc_text *layout = tc_metadata_find(item->metadata, TC_SPARSE_LAYOUT);
    if (!parent || parent->length == 0 || (layout && tc_sparse_layout(*layout) != coo) ||
        tc_name_map_find(names, *parent))
        return false;
    for (unsigned i = 0; i < PARTS; i++) {
        struct tc_text name = tc_sparse_name(arena, coo, *parent, i, error);
        const uint32_t *found = name.bytes ? tc_name_map_find(names, name) : NULL;
        const struct tc_text *other = found ? tc_sparse_parent(items[*found].metadata) : NULL;
        if (!other || !tc_text_equal(*other, *parent) || !is_whole(&items[*found]))
            return false;
        parts[i] = *found;
    }
    return true;
}

/* Whether shapes and dtypes are those that ONNX has. */
static bool fits(const struct tc_item *indices, const struct tc_item *values,
                 const struct tc_item *shape) {
    return indices->dtype == TC_I64 && indices->rank == 2 && values->rank == 1 &&
           shape->dtype == TC_I64 && shape->rank == 1 && shape->shape[0] == indices->shape[0] &&
           shape->shape[0] && shape->shape[0] <= TC_MAX_RANK &&
           values->shape[0] == indices->shape[1] && indices->nbytes + values->nbytes <= LARGEST;
}

static bool read_item(const struct tc_item *item, struct tc_arena *arena, unsigned char **bytes,
                      struct tc_error *error) {
    *bytes = tc_arena_alloc(arena, item->nbytes + 1, error);
    return *bytes && tc_reader_read(item->reader, item->tensor, 0, *bytes, item->nbytes, error);
}

/* Transposes indices [ndim, nnz] to [nnz, ndim]; false where they don't ascend, or lie outside. */
static bool transpose(const unsigned char *from, unsigned char *to, const uint64_t *dims,
                      unsigned rank, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        bool greater = i == 0;
        bool equal = true;
        for (unsigned d = 0; d < rank; d++) {
            uint64_t index = tc_load(from + (d * count + i) * 8, 8);
            uint64_t before = i ? tc_load(from + (d * count + i - 1) * 8, 8) : 0;
            if (index >= dims[d] || (equal && i && index < before))
                return false;
            greater |= equal && index > before;
            equal = equal && index == before;
            tc_store(to + (i * rank + d) * 8, index, 8);
        }
        if (!greater)
            return false;
    }
    return true;
}

/* Reads a sparse tensor; *sparse is NULL where ONNX can't hold it. */
static bool load(const struct tc_item *items, const size_t parts[PARTS], struct tc_arena *arena,
                 struct onnx_sparse **sparse, struct tc_error *error) {
    const struct tc_item *indices = &items[parts[INDICES]];
    const struct tc_item *values = &items[parts[VALUES]];
    const struct tc_item *shape = &items[parts[SHAPE]];
    unsigned char *bytes[2];
    *sparse = NULL;
    if (!fits(indices, values, shape))
        return true;
    struct onnx_sparse *made = tc_arena_alloc(arena, sizeof *made, error);
    if (!made || !read_item(shape, arena, &bytes[0], error))
        return false;
    made->parent = *tc_sparse_parent(indices->metadata);
    made->rank = (unsigned)shape->shape[0];
    made->count = values->shape[0];
    made->values = values;
    for (unsigned i = 0; i < made->rank; i++) {
        made->dims[i] = tc_load(bytes[0] + i * 8, 8);
        if (made->dims[i] == 0 || made->dims[i] > INT64_MAX)
            return true;
    }
    made->indices = tc_arena_alloc(arena, indices->nbytes + 1, error);
    if (!made->indices || !read_item(indices, arena, &bytes[1], error) ||
        !read_item(values, arena, &made->elements, error))
        return false;
    if (transpose(bytes[1], made->indices, made->dims, made->rank, made->count))
        *sparse = made;
    return true;
}

bool onnx_find_sparse(struct tc_writer *writer, struct onnx_writer *onnx, struct tc_error *error) {
    const struct tc_item *items = writer->plan->items + writer->file->first;
    size_t count = writer->file->count;
    struct tc_name_map names;
    bool any = false;
    onnx->sparse = tc_arena_array(&writer->arena, count, sizeof *onnx->sparse, error);
    for (size_t i = 0; i < count && !any; i++)
        any = tc_sparse_parent(items[i].metadata) != NULL;
    if (!onnx->sparse || !any)
        return onnx->sparse != NULL;
    tc_name_map_init(&names, &writer->arena);
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++)
        ok = tc_name_map_add(&names, items[i].name, (uint32_t)i, error);
    for (size_t i = 0; i < count && ok; i++) {
        size_t parts[PARTS];
        struct onnx_sparse *sparse = NULL;
        if (onnx->sparse[i] ||
            !find_parts(items, &names, &items[i], &writer->arena, parts, error)) {
            ok = error->class == TC_OK;
            continue;
        }
        ok = load(items, parts, &writer->arena, &sparse, error);
        for (unsigned p = 0; sparse && p < PARTS; p++)
            onnx->sparse[parts[p]] = sparse;
        if (sparse) {
            sparse->first = i;
            writer->sees_bytes = true; /* and passes over those that it wrote already */
        }
    }
    tc_name_map_release(&names);
    return ok;
}

/* The metadata of the tensors, as a text in the arena: the parts of sparse tensors without what
 * makes them parts, which they will be again when the model is read. */
static bool encode_rest(struct tc_writer *writer, const struct onnx_writer *onnx,
                        struct tc_text *rest, struct tc_error *error) {
    size_t count = writer->file->count;
    struct tc_item *items = tc_arena_array(&writer->arena, count, sizeof *items, error);
    struct tc_buffer text = {0};
    if (!items)
        return false;
    for (size_t i = 0; i < count; i++) {
        items[i] = writer->plan->items[writer->file->first + i];
        if (!onnx->sparse[i])
            continue;
        struct tc_metadata *others = tc_metadata_copy(items[i].metadata, &writer->arena, error);
        if (!others)
            return false;
        tc_metadata_remove(others, TC_SPARSE_LAYOUT);
        tc_metadata_remove(others, TC_SPARSE_PARENT);
        tc_metadata_remove(others, TC_SPARSE_ROLE);
        items[i].metadata = others;
    }
    bool ok = tc_tensor_metadata_encode(items, count, &text, error);
    rest->length = text.length;
    rest->bytes = ok ? tc_arena_copy(&writer->arena, text.bytes, text.length, error) : NULL;
    tc_buffer_release(&text);
    return rest->bytes != NULL;
}

bool onnx_leave_out_sparse(struct tc_writer *writer, struct onnx_writer *onnx,
                           struct tc_error *error) {
    const struct tc_text key = TC_TEXT(TC_TENSOR_METADATA_KEY);
    struct tc_text rest;
    bool any = false;
    onnx->metadata = writer->file->metadata;
    for (size_t i = 0; i < writer->file->count && !any; i++)
        any = onnx->sparse[i] != NULL;
    if (!any || !tc_metadata_find(&onnx->metadata, key))
        return true;
    const struct tc_metadata *own = tc_metadata_copy(&onnx->metadata, &writer->arena, error);
    if (!own || !encode_rest(writer, onnx, &rest, error))
        return false;
    onnx->metadata = *own;
    if (rest.length)
        return tc_metadata_set(&onnx->metadata, &writer->arena, key, rest, error);
    tc_metadata_remove(&onnx->metadata, key);
    return true;
}

/* Appends a TensorProto with its data as a field of the message. */
static bool add_part(struct tc_buffer *text, unsigned tag, const struct tc_item *item,
                     const unsigned char *bytes, struct tc_error *error) {
    struct tc_buffer tensor = {0};
    bool ok = onnx_write_head(&tensor, item, 0, NULL, error);
    wire_add_varint(&tensor, TAG_RAW_DATA);
    wire_add_varint(&tensor, item->nbytes);
    tc_buffer_add(&tensor, bytes, item->nbytes);
    ok = ok && tc_buffer_ok(&tensor, error);
    wire_add_varint(text, tag);
    wire_add_varint(text, tensor.length);
    tc_buffer_add(text, tensor.bytes, ok ? tensor.length : 0);
    tc_buffer_release(&tensor);
    return ok && tc_buffer_ok(text, error);
}

bool onnx_add_sparse_tensor(struct tc_buffer *text, const struct onnx_sparse *sparse,
                            struct tc_error *error) {
    const uint64_t shape[] = {sparse->count, sparse->rank};
    struct tc_item values = *sparse->values;
    struct tc_item indices = {.name = TC_TEXT(""),
                              .dtype = TC_I64,
                              .rank = 2,
                              .shape = shape,
                              .nbytes = sparse->count * sparse->rank * 8};
    values.name = sparse->parent;
    if (!add_part(text, TAG_VALUES, &values, sparse->elements, error) ||
        !add_part(text, TAG_INDICES, &indices, sparse->indices, error))
        return false;
    for (unsigned i = 0; i < sparse->rank; i++) {
        wire_add_varint(text, TAG_DIMS);
        wire_add_varint(text, sparse->dims[i]);
    }
    return tc_buffer_ok(text, error);
}
