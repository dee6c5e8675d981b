/*
 * .tensor: one TensorProto (tf/tensor.c), as tf.io.serialize_tensor writes it.
 * The tensor gets the file's name. The elements of a tensor of strings may be
 * serialized tensors themselves:
 *     DT_STRING [3]      tf.io.serialize_sparse: I64 indices [nnz, ndim], values
 *                        [nnz], I64 shape [ndim]; a sparse tensor of the file's name
 *     DT_STRING [n, 3]   serialize_many_sparse: n such sparse tensors, named NAME.0,
 *                        NAME.1, …
 *     DT_STRING [n]      any other tensors, named 0, 1, …
 */

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/chunk_pipe.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"
#include "formats/tf/tensor.h"

static int probe(const struct tc_probe *probe) {
    struct wire_source source;
    if (probe->length < 2)
        return 0;
    wire_source_init(&source, probe->input);
    /* The score is above that of an ONNX model's fields, since a shape says more. A
     * TensorFlow graph is recognised so that open can say what it is. */
    int score = tf_tensor_seen(&source, 0, probe->input->size) ? 85
                : tf_graph_seen(&source)                       ? 20
                                                               : 0;
    wire_source_release(&source);
    return score;
}

static bool refuse_strings(struct tc_error *error) {
    return tc_fail(error, TC_UNSUPPORTED, "dtype",
                   "dtype DT_STRING is supported only where the strings are tensors");
}

/* The next string of a tensor of strings. */
static bool next_string(struct wire *wire, struct wire_field *field, struct tc_error *error) {
    while (wire_next(wire, field, error))
        if (field->number == TF_STRING_VAL)
            return true;
    return false;
}

static bool hold_tensors(struct tf_reader *tf, const struct tf_tensor *strings,
                         struct tc_error *error) {
    struct wire wire = wire_open(&tf->source, strings->start, strings->end);
    struct wire_field field;
    while (next_string(&wire, &field, error))
        if (!tf_tensor_seen(&tf->source, field.offset, field.offset + field.length))
            return false;
    return error->class == TC_OK;
}

static bool find_string(struct tf_reader *tf, struct wire *wire, struct tf_tensor *tensor,
                        struct tc_error *error) {
    struct wire_field field;
    return next_string(wire, &field, error) &&
           tf_tensor_find(tf, field.offset, field.offset + field.length, tensor, error) &&
           (tensor->dtype != TC_NONE || refuse_strings(error));
}

static bool add_list(struct tf_reader *tf, const struct tf_tensor *strings,
                     struct tc_error *error) {
    struct wire wire = wire_open(&tf->source, strings->start, strings->end);
    for (uint64_t i = 0; i < strings->count; i++) {
        struct tf_tensor tensor;
        struct tc_text name;
        if (!tf_name(&tf->reader->arena, i, &name, error))
            return false;
        if (!(find_string(tf, &wire, &tensor, error) &&
              tf_tensor_add(tf, &tensor, name, NULL, error)) &&
            !refused_add(&tf->refused, tf->reader, name, error))
            return false;
    }
    return true;
}

static bool is_sparse(const struct tf_tensor group[3]) {
    const struct tf_tensor *indices = &group[0];
    const struct tf_tensor *values = &group[1];
    const struct tf_tensor *shape = &group[2];
    return indices->dtype == TC_I64 && indices->rank == 2 && values->rank == 1 &&
           shape->dtype == TC_I64 && shape->rank == 1 && indices->shape[0] == values->shape[0] &&
           indices->shape[1] == shape->shape[0];
}

/* Adds PARENT.indices, .values and .shape. The table has indices as [ndim, nnz], so
 * they are transposed. */
static bool add_sparse(struct tf_reader *tf, struct tf_tensor group[3], struct tc_text parent,
                       struct tc_error *error) {
    const struct tc_sparse_layout *coo = &tc_sparse_layouts[TC_SPARSE_COO];
    struct tc_arena *arena = &tf->reader->arena;
    group[0].transposed = true;
    for (unsigned i = 0; i < coo->parts; i++) {
        struct tc_text name = tc_sparse_name(arena, coo, parent, i, error);
        struct tc_metadata *metadata =
            name.bytes ? tc_sparse_metadata(arena, coo, parent, i, error) : NULL;
        if (!metadata || !tf_tensor_add(tf, &group[i], name, metadata, error))
            return false;
    }
    return true;
}

/* Reads the next three strings. Where one fails the others are passed over, so that
 * the next group can be read. */
static bool find_group(struct tf_reader *tf, struct wire *wire, struct tf_tensor group[3],
                       struct tc_error *error) {
    struct tc_error ignored = {0};
    struct wire_field field;
    for (unsigned i = 0; i < 3; i++) {
        if (error->class != TC_OK)
            next_string(wire, &field, &ignored);
        else
            find_string(tf, wire, &group[i], error);
    }
    return error->class == TC_OK;
}

/* Adds one of several sparse tensors, as NAME.INDEX. */
static bool add_next_sparse(struct tf_reader *tf, struct wire *wire, uint64_t index,
                            struct tc_error *error) {
    struct tf_tensor group[3] = {0};
    struct tc_buffer text = {0};
    tc_buffer_add_text(&text, tf->reader->stem);
    tc_buffer_addf(&text, ".%llu", (unsigned long long)index);
    char *copy = tc_buffer_ok(&text, error)
                     ? tc_arena_copy(&tf->reader->arena, text.bytes, text.length, error)
                     : NULL;
    struct tc_text parent = {copy, text.length};
    tc_buffer_release(&text);
    if (!copy)
        return false;
    bool found = find_group(tf, wire, group, error);
    if (found && is_sparse(group))
        return add_sparse(tf, group, parent, error);
    if (found)
        refuse_strings(error);
    return refused_add(&tf->refused, tf->reader, parent, error);
}

static bool add_many_sparse(struct tf_reader *tf, const struct tf_tensor *strings,
                            struct tc_error *error) {
    struct wire wire = wire_open(&tf->source, strings->start, strings->end);
    for (uint64_t i = 0; i < strings->shape[0]; i++)
        if (!add_next_sparse(tf, &wire, i, error))
            return false;
    return true;
}

static bool add_strings(struct tf_reader *tf, const struct tf_tensor *strings,
                        struct tc_error *error) {
    if (strings->field && strings->pieces != strings->count)
        return wire_bad(error, strings->start, "%llu strings for %llu elements",
                        (unsigned long long)strings->pieces, (unsigned long long)strings->count);
    bool many = strings->rank == 2 && strings->shape[1] == 3;
    if ((strings->rank != 1 && !many) || strings->pieces == 0 || !hold_tensors(tf, strings, error))
        return error->class == TC_OK && refuse_strings(error);
    if (many)
        return add_many_sparse(tf, strings, error);
    if (strings->count == 3) {
        struct wire wire = wire_open(&tf->source, strings->start, strings->end);
        struct tf_tensor group[3] = {0};
        struct tc_error ignored = {0}; /* add_list meets it again, and names the tensor */
        if (find_group(tf, &wire, group, &ignored) && is_sparse(group))
            return add_sparse(tf, group, tf->reader->stem, error);
    }
    return add_list(tf, strings, error);
}

static bool open_tf(struct tc_reader *reader, struct tc_error *error) {
    struct tf_reader *tf = reader->state;
    struct tf_tensor tensor;
    uint64_t size = reader->input->size;
    tf_reader_init(tf, reader);
    unsigned graph = tf_tensor_seen(&tf->source, 0, size) ? 0 : tf_graph_seen(&tf->source);
    if (graph)
        return tf_graph_refuse(&tf->source, graph, error);
    return tf_tensor_find(tf, 0, size, &tensor, error) &&
           (tensor.dtype == TC_NONE ? add_strings(tf, &tensor, error)
                                    : tf_tensor_add(tf, &tensor, reader->stem, NULL, error)) &&
           tf_reader_finish(tf, error);
}

static bool read_tf(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                    void *buffer, size_t length, struct tc_error *error) {
    return tf_read(reader->state, tensor, offset, buffer, length, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    return tf_extent(reader->state, tensor, extent);
}

static void close_tf(struct tc_reader *reader) {
    tf_reader_release(reader->state);
}

/* A sparse tensor says by itself which of its parts is which. */
static bool holds_metadata(const struct tc_item *item) {
    for (size_t i = 0; i < item->metadata->count; i++)
        if (!tc_text_starts(item->metadata->pairs[i].key, TC_SPARSE_KEYS))
            return false;
    return true;
}

static bool put(struct tc_writer *writer, size_t index, struct tc_source *source,
                struct tc_error *error) {
    struct tc_chunk *chunk;
    enum tc_next next;
    (void)index;
    if (writer->file->count == 1)
        return tc_source_write(source, writer->out, error);
    while ((next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK)
        tc_chunk_release(chunk);
    return next == TC_NEXT_END;
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    if (writer->file->count > 1)
        return tf_write_sparse(writer, error);
    struct tc_buffer head = {0};
    bool ok = tf_write_head(&head, &writer->plan->items[writer->file->first], error) &&
              tc_outfile_write(writer->out, head.bytes, head.length, error);
    tc_buffer_release(&head);
    return ok;
}

const struct tc_backend tc_backend_tf = {
    .name = "tf",
    .summary = "TensorFlow tensor",
    .extensions = (const char *const[]){".tensor", NULL},
    .mime = "application/x-protobuf",
    .many = "tfrecord",
    .caps = TC_CAN_WRITE | TC_CAN_LOAD_LAZILY | TC_HAS_NO_END | TC_CAN_HOLD_SPARSE,
    .dtypes = TF_DTYPES,
    .max_rank = TC_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .empty_name = true,
    .probe = probe,
    .reader_size = sizeof(struct tf_reader),
    .open = open_tf,
    .read = read_tf,
    .extent = extent,
    .close = close_tf,
    .compare = tf_compare,
    .check = tf_check,
    .holds_metadata = holds_metadata,
    .begin = begin,
    .put = put,
};
