/*
 * SparseTensorProto, fields by number: values 1 (a TensorProto, with the name),
 * indices 2 (I64 [nnz, ndim], or [nnz] into the flattened tensor), dims 3. In the
 * table it is a group of tensors in COO layout, with indices [ndim, nnz], which are
 * transposed when they are read. Reading is here too, also that of all other tensors.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/onnx/onnx.h"
#include "formats/protobuf/typed.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"

struct sparse {
    struct onnx_tensor values;
    struct onnx_tensor indices;
    uint64_t dims[TC_MAX_RANK];
    unsigned rank;
    bool has_values;
    bool has_indices;
};

static bool bad(struct tc_error *error, uint64_t at, const char *what) {
    return wire_bad(error, at, "a sparse tensor %s", what);
}

static bool read_dims(struct sparse *sparse, const struct wire *message,
                      const struct wire_field *field, struct tc_error *error) {
    struct wire packed = field->type == WIRE_BYTES ? wire_inside(message, field)
                                                   : wire_open(message->source, field->offset,
                                                               field->offset + field->length);
    uint64_t value;
    if (field->type != WIRE_BYTES && !wire_expect(field, WIRE_VARINT, "dims", error))
        return false;
    while (wire_varint(&packed, &value, error)) {
        if (value > INT64_MAX || sparse->rank == TC_MAX_RANK)
            return bad(error, field->at, "has a bad dimension, or too many");
        sparse->dims[sparse->rank++] = value;
    }
    return error->class == TC_OK;
}

static bool read_parts(struct onnx *onnx, struct wire message, struct sparse *sparse,
                       struct tc_error *error) {
    struct wire_field field;
    uint64_t start = message.at;
    while (wire_next(&message, &field, error)) {
        bool *seen = field.number == 1   ? &sparse->has_values
                     : field.number == 2 ? &sparse->has_indices
                                         : NULL;
        if (field.number == 3 && !read_dims(sparse, &message, &field, error))
            return false;
        if (!seen)
            continue;
        if (*seen)
            return bad(error, field.at, "has its values or indices twice");
        *seen = true;
        if (!wire_expect(&field, WIRE_BYTES, "a part", error) ||
            !onnx_parse_tensor(onnx, wire_inside(&message, &field),
                               field.number == 1 ? &sparse->values : &sparse->indices, error))
            return false;
    }
    if (error->class != TC_OK)
        return false;
    const struct onnx_tensor *indices = &sparse->indices;
    if (!sparse->has_values || !sparse->has_indices)
        return bad(error, start, "lacks values or indices");
    if (sparse->values.rank != 1 || indices->dtype != TC_I64 || indices->rank < 1 ||
        indices->rank > 2 || indices->shape[0] != sparse->values.shape[0] ||
        (indices->rank == 2 && indices->shape[1] != sparse->rank))
        return bad(error, start, "has values, indices and dims that do not fit");
    return true;
}

/* The tensors of the COO layout, by their position in it. */
enum { INDICES, VALUES, SHAPE };

static bool add_part(struct onnx *onnx, struct tc_text parent, unsigned part,
                     struct onnx_tensor *tensor, struct tc_error *error) {
    const struct tc_sparse_layout *coo = &tc_sparse_layouts[TC_SPARSE_COO];
    struct tc_arena *arena = &onnx->reader->arena;
    struct tc_text name = tc_sparse_name(arena, coo, parent, part, error);
    tensor->metadata = name.bytes ? tc_sparse_metadata(arena, coo, parent, part, error) : NULL;
    return tensor->metadata && onnx_add_tensor(onnx, name, tensor, error);
}

static bool add_indices(struct onnx *onnx, struct tc_text parent, const struct sparse *sparse,
                        const uint64_t *dims, struct tc_error *error) {
    struct onnx_place *stored = tc_arena_alloc(&onnx->reader->arena, sizeof *stored, error);
    if (!stored)
        return false;
    *stored = sparse->indices.place;
    struct onnx_tensor indices = {.dtype = TC_I64, .rank = 2};
    indices.shape[0] = sparse->rank;
    indices.shape[1] = sparse->values.shape[0];
    uint64_t count;
    if (!tc_shape_measure(TC_I64, indices.shape, 2, &count, &indices.nbytes, error))
        return false;
    /* They are held in memory, twice while they are transposed. */
    uint64_t limit = onnx->reader->options->limits.memory;
    if ((limit && indices.nbytes > limit / 2) || !tc_memory_fits(indices.nbytes)) {
        tc_fail(error, TC_UNSAFE, "memory-limit",
                "its indices would take %llu bytes of memory, twice",
                (unsigned long long)indices.nbytes);
        return tc_error_hint(error, "raise the limit with --max-memory if you trust this file");
    }
    indices.place = (struct onnx_place){.kind = ONNX_INDICES,
                                        .stored = stored,
                                        .shape = dims,
                                        .rank = sparse->rank,
                                        .entries = sparse->values.shape[0],
                                        .flat = sparse->indices.rank == 1};
    return add_part(onnx, parent, INDICES, &indices, error);
}

static bool add_shape(struct onnx *onnx, struct tc_text parent, const struct sparse *sparse,
                      struct tc_error *error) {
    struct onnx_tensor shape = {.dtype = TC_I64, .rank = 1, .nbytes = sparse->rank * 8};
    unsigned char *bytes = tc_arena_alloc(&onnx->reader->arena, shape.nbytes + 1, error);
    if (!bytes)
        return false;
    for (unsigned i = 0; i < sparse->rank; i++)
        tc_store(bytes + i * 8, sparse->dims[i], 8);
    shape.shape[0] = sparse->rank;
    shape.place = (struct onnx_place){.kind = ONNX_MEMORY, .memory = bytes};
    return add_part(onnx, parent, SHAPE, &shape, error);
}

static bool add_parts(struct onnx *onnx, struct tc_text name, struct sparse *sparse,
                      struct tc_error *error) {
    uint64_t *dims = tc_arena_array(&onnx->reader->arena, sparse->rank, sizeof *dims, error);
    if (!dims)
        return false;
    memcpy(dims, sparse->dims, sparse->rank * sizeof *dims);
    return add_indices(onnx, name, sparse, dims, error) &&
           add_part(onnx, name, VALUES, &sparse->values, error) &&
           add_shape(onnx, name, sparse, error);
}

bool onnx_add_sparse(struct onnx *onnx, struct wire message, struct tc_text prefix,
                     struct tc_text name, struct tc_error *error) {
    struct sparse sparse = {0};
    uint64_t start = message.at;
    bool parsed = read_parts(onnx, message, &sparse, error);
    if (name.length == 0)
        name = sparse.values.name;
    if (name.length == 0)
        return parsed && bad(error, start, "has no name");
    if (prefix.length + name.length > TC_MAX_NAME_BYTES) {
        tc_fail(error, TC_UNSAFE, "name-limit", "a name is too long (%zu bytes, limit %u)",
                prefix.length + name.length, TC_MAX_NAME_BYTES);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    struct tc_error ignored = {0};
    char *parent = tc_arena_alloc(&onnx->reader->arena, prefix.length + name.length + 1,
                                  parsed ? error : &ignored);
    if (!parent)
        return false;
    if (prefix.length)
        memcpy(parent, prefix.bytes, prefix.length);
    memcpy(parent + prefix.length, name.bytes, name.length);
    struct tc_text whole = {parent, prefix.length + name.length};
    return parsed ? add_parts(onnx, whole, &sparse, error)
                  : refused_add(&onnx->refused, onnx->reader, whole, error);
}

/* Reading */

static bool read_place(struct onnx *onnx, const struct onnx_place *place, uint64_t offset,
                       void *buffer, size_t length, struct tc_error *error);

/* The coordinates of an entry, from its index into the flattened tensor. */
static void unravel(const struct onnx_place *place, uint64_t flat, uint64_t *coordinates) {
    for (unsigned axis = place->rank; axis > 1; axis--) {
        uint64_t size = place->shape[axis - 1] ? place->shape[axis - 1] : 1;
        coordinates[axis - 1] = flat % size;
        flat /= size;
    }
    /* An index that is out of range makes the first coordinate out of range too. */
    if (place->rank)
        coordinates[0] = flat;
}

/* Transposes indices from [nnz, ndim] to [ndim, nnz]. */
static bool transpose_indices(struct onnx *onnx, const struct onnx_place *place,
                              struct tc_error *error) {
    uint64_t columns = place->flat ? 1 : place->rank;
    uint64_t size = place->entries * columns * 8;
    unsigned char *stored = malloc(size ? size : 1);
    unsigned char *transposed = malloc(place->entries * place->rank * 8 + 1);
    bool ok = stored && transposed ? read_place(onnx, place->stored, 0, stored, (size_t)size, error)
                                   : tc_fail_memory(error);
    for (uint64_t entry = 0; entry < place->entries && ok; entry++) {
        uint64_t coordinates[TC_MAX_RANK];
        if (place->flat)
            unravel(place, tc_load(stored + entry * 8, 8), coordinates);
        for (unsigned axis = 0; axis < place->rank; axis++)
            tc_store(transposed + (axis * place->entries + entry) * 8,
                     place->flat ? coordinates[axis]
                                 : tc_load(stored + (entry * columns + axis) * 8, 8),
                     8);
    }
    free(stored);
    if (!ok) {
        free(transposed);
        return false;
    }
    free(onnx->indices);
    onnx->indices = transposed;
    onnx->transposed = place;
    return true;
}

static bool read_place(struct onnx *onnx, const struct onnx_place *place, uint64_t offset,
                       void *buffer, size_t length, struct tc_error *error) {
    switch (place->kind) {
    case ONNX_RAW:
        return tc_input_read(place->input, place->offset + offset, buffer, length, error);
    case ONNX_TYPED:
        return typed_read(&onnx->typed, &place->typed, offset, buffer, length, error);
    case ONNX_MEMORY:
        memcpy(buffer, place->memory + offset, length);
        return true;
    default:
        if (onnx->transposed != place && !transpose_indices(onnx, place, error))
            return false;
        memcpy(buffer, onnx->indices + offset, length);
        return true;
    }
}

bool onnx_read(struct onnx *onnx, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
               size_t length, struct tc_error *error) {
    return read_place(onnx, onnx->places[tensor->cookie], offset, buffer, length, error);
}

bool onnx_extent(struct onnx *onnx, const struct tc_tensor *tensor, struct tc_extent *extent) {
    const struct onnx_place *place = onnx->places[tensor->cookie];
    *extent = (struct tc_extent){.input = place->input, .offset = place->offset};
    return place->kind == ONNX_RAW;
}

bool onnx_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *error) {
    return onnx_read(reader->state, tensor, offset, buffer, length, error);
}

bool onnx_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                        struct tc_extent *extent) {
    return onnx_extent(reader->state, tensor, extent);
}

void onnx_reader_close(struct tc_reader *reader) {
    onnx_release(reader->state);
}
