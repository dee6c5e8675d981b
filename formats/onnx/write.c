#include "formats/onnx/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/format/format_option.h"
#include "core/io/chunk_pipe.h"
#include "core/io/publish.h"
#include "core/tensor/dtype.h"
#include "formats/onnx.pb-c.h"
#include "formats/onnx/onnx.h"
#include "formats/onnx/options.h"
#include "formats/protobuf/wire.h"

/* The largest message that protobuf can parse, and what is reserved in it for all that
 * is not data. */
#define LARGEST_MESSAGE UINT64_C(0x7FFFFFFF)
#define HEADER_ROOM (UINT64_C(64) << 20)
/* External data starts at a multiple of this, so that every system can map it.
 * Tensors that are smaller stay in the model as long as they fit; those below
 * EXTERNAL_LEAST always do. */
#define EXTERNAL_ALIGNMENT (UINT64_C(1) << 16)
#define EXTERNAL_LEAST (UINT64_C(1) << 10)

#define TAG_INITIALIZER 0x2A /* GraphProto, field 5 */
#define TAG_GRAPH 0x3A       /* ModelProto, field 7 */
#define TAG_RAW_DATA 0x4A    /* TensorProto, field 9 */
#define TAG_OUTPUT 0x62      /* GraphProto, field 12 */
#define TAG_SPARSE 0x7A      /* GraphProto, field 15 */
#define TAG_GRAPH_NAME 0x12  /* GraphProto, field 2 */
#define GRAPH_NAME "tensors"

/* The lowest versions of IR and opset that have a dtype. */
static const struct versions {
    uint8_t ir;
    uint8_t opset;
} versions[TC_DTYPES] = {
    [TC_BF16] = {4, 13},        [TC_F8_E4M3] = {9, 19},     [TC_F8_E5M2] = {9, 19},
    [TC_F8_E4M3FNUZ] = {9, 19}, [TC_F8_E5M2FNUZ] = {9, 19}, [TC_U4] = {10, 21},
    [TC_I4] = {10, 21},         [TC_F4] = {11, 23},         [TC_F8_E8M0] = {12, 24},
    [TC_F6_E2M3] = {14, 28},    [TC_F6_E3M2] = {14, 28},
};
/* From IR 4 on initializers need not be inputs; opset 9 belongs to it. */
#define LEAST_IR 4
#define LEAST_OPSET 9
/* Sparse initializers came with IR 6 and opset 11. */
#define SPARSE_IR 6
#define SPARSE_OPSET 11

/* protobuf-c wants strings with a NUL behind them. */
static char *terminated(struct tc_arena *arena, struct tc_text text, struct tc_error *error) {
    return tc_arena_copy(arena, text.length ? text.bytes : "", text.length, error);
}

/* Packs a message and appends it. */
static void add_message(struct tc_buffer *text, const ProtobufCMessage *message) {
    size_t size = protobuf_c_message_get_packed_size(message);
    unsigned char *bytes = malloc(size ? size : 1);
    if (!bytes) {
        text->failed = true;
        return;
    }
    protobuf_c_message_pack(message, bytes);
    tc_buffer_add(text, bytes, size);
    free(bytes);
}

/* The casts are safe: protobuf-c does not write to what it packs. */
static void set_entry(Onnx__StringStringEntryProto *entry, struct tc_text key,
                      struct tc_text value) {
    entry->has_key = entry->has_value = true;
    entry->key = (ProtobufCBinaryData){key.length, (uint8_t *)(uintptr_t)key.bytes};
    entry->value = (ProtobufCBinaryData){value.length, (uint8_t *)(uintptr_t)value.bytes};
}

bool onnx_write_head(struct tc_buffer *text, const struct tc_item *item, uint64_t offset,
                     const char *location, struct tc_error *error) {
    struct tc_arena arena;
    tc_arena_init(&arena, 0);
    Onnx__TensorProto tensor = ONNX__TENSOR_PROTO__INIT;
    Onnx__StringStringEntryProto entries[3] = {ONNX__STRING_STRING_ENTRY_PROTO__INIT,
                                               ONNX__STRING_STRING_ENTRY_PROTO__INIT,
                                               ONNX__STRING_STRING_ENTRY_PROTO__INIT};
    Onnx__StringStringEntryProto *list[] = {&entries[0], &entries[1], &entries[2]};
    char digits[2][24];
    static const char *const keys[] = {"location", "offset", "length"};
    int64_t dims[TC_MAX_RANK];
    for (unsigned i = 0; i < item->rank; i++)
        dims[i] = (int64_t)item->shape[i];
    tensor.dims = dims;
    tensor.n_dims = item->rank;
    tensor.has_data_type = true;
    tensor.data_type = onnx_data_type(item->dtype);
    tensor.name = terminated(&arena, item->name, error);
    bool ok = tensor.name != NULL;
    if (ok && location) {
        snprintf(digits[0], sizeof digits[0], "%llu", (unsigned long long)offset);
        snprintf(digits[1], sizeof digits[1], "%llu", (unsigned long long)item->nbytes);
        const char *values[] = {location, digits[0], digits[1]};
        for (int i = 0; i < 3; i++)
            set_entry(&entries[i], tc_text_of(keys[i]), tc_text_of(values[i]));
        tensor.external_data = list;
        tensor.n_external_data = 3;
        tensor.has_data_location = true;
        tensor.data_location = 1;
    }
    if (ok)
        add_message(text, &tensor.base);
    tc_arena_release(&arena);
    return ok && tc_buffer_ok(text, error);
}

static bool add_output(struct tc_buffer *text, const struct tc_item *item, struct tc_error *error) {
    struct tc_arena arena;
    tc_arena_init(&arena, 0);
    Onnx__ValueInfoProto output = ONNX__VALUE_INFO_PROTO__INIT;
    Onnx__TypeProto type = ONNX__TYPE_PROTO__INIT;
    Onnx__TypeProto__Tensor tensor = ONNX__TYPE_PROTO__TENSOR__INIT;
    Onnx__TensorShapeProto shape = ONNX__TENSOR_SHAPE_PROTO__INIT;
    Onnx__TensorShapeProto__Dimension dims[TC_MAX_RANK];
    Onnx__TensorShapeProto__Dimension *list[TC_MAX_RANK];
    for (unsigned i = 0; i < item->rank; i++) {
        dims[i] = (Onnx__TensorShapeProto__Dimension)ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
        dims[i].has_dim_value = true;
        dims[i].dim_value = (int64_t)item->shape[i];
        list[i] = &dims[i];
    }
    shape.dim = list;
    shape.n_dim = item->rank;
    tensor.has_elem_type = true;
    tensor.elem_type = onnx_data_type(item->dtype);
    tensor.shape = &shape;
    type.tensor_type = &tensor;
    output.type = &type;
    output.name = terminated(&arena, item->name, error);
    if (output.name) {
        wire_add_varint(text, TAG_OUTPUT);
        wire_add_varint(text, protobuf_c_message_get_packed_size(&output.base));
        add_message(text, &output.base);
    }
    bool ok = output.name && tc_buffer_ok(text, error);
    tc_arena_release(&arena);
    return ok;
}

/* Appends all of a model but its graph. */
static bool add_model(struct tc_buffer *text, const struct tc_writer *writer,
                      struct tc_error *error) {
    const struct onnx_writer *onnx = writer->state;
    const struct tc_metadata *metadata = &onnx->metadata;
    struct tc_arena arena;
    tc_arena_init(&arena, 0);
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT;
    Onnx__OperatorSetIdProto *opsets[] = {&opset};
    char producer[] = "tconv";
    char domain[] = "";
    struct versions least = {LEAST_IR, LEAST_OPSET};
    for (size_t i = 0; i < writer->file->count; i++) {
        struct versions needed = versions[writer->plan->items[writer->file->first + i].dtype];
        if (onnx->sparse[i] && needed.ir < SPARSE_IR)
            needed = (struct versions){SPARSE_IR,
                                       needed.opset > SPARSE_OPSET ? needed.opset : SPARSE_OPSET};
        least.ir = needed.ir > least.ir ? needed.ir : least.ir;
        least.opset = needed.opset > least.opset ? needed.opset : least.opset;
    }
    model.has_ir_version = opset.has_version = true;
    model.ir_version = least.ir;
    opset.version = least.opset;
    opset.domain = domain;
    model.opset_import = opsets;
    model.n_opset_import = 1;
    model.producer_name = producer;
    Onnx__StringStringEntryProto *entries =
        tc_arena_array(&arena, metadata->count, sizeof *entries, error);
    model.metadata_props =
        tc_arena_array(&arena, metadata->count, sizeof *model.metadata_props, error);
    model.n_metadata_props = metadata->count;
    bool ok = entries && model.metadata_props;
    for (size_t i = 0; i < metadata->count && ok; i++) {
        entries[i] = (Onnx__StringStringEntryProto)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
        set_entry(&entries[i], metadata->pairs[i].key, metadata->pairs[i].value);
        model.metadata_props[i] = &entries[i];
    }
    if (ok)
        add_message(text, &model.base);
    tc_arena_release(&arena);
    return ok && tc_buffer_ok(text, error);
}

/* Where data goes */

/* Whether the user wants the data in a second file, whatever its size. */
static bool is_external(const struct tc_plan *plan) {
    const struct tc_write_options *write = &plan->options->write;
    return write->companion || tc_option_flag(&write->settings, &onnx_external_option);
}

/* The smallest size of a tensor that goes to the second file. It is lower where the
 * user asked for that file, or all smaller tensors together would not fit the model. */
static uint64_t external_least(const struct tc_plan *plan, const struct tc_output_file *file) {
    uint64_t inside = is_external(plan) ? LARGEST_MESSAGE : 0;
    for (size_t i = file->first; i < file->first + file->count; i++)
        if (plan->items[i].nbytes < EXTERNAL_ALIGNMENT)
            inside += plan->items[i].nbytes;
    return inside + HEADER_ROOM > LARGEST_MESSAGE ? EXTERNAL_LEAST : EXTERNAL_ALIGNMENT;
}

bool onnx_write_companion(const struct tc_plan *plan, const struct tc_output_file *file) {
    uint64_t total = HEADER_ROOM;
    uint64_t largest = 0;
    for (size_t i = file->first; i < file->first + file->count; i++) {
        const struct tc_item *item = &plan->items[i];
        /* This can't overflow: the plan has checked the sum of all bytes. Names and
         * shapes are written twice, for the initializer and for the output. */
        total += item->nbytes + 2 * (item->name.length + 12 * (uint64_t)item->rank + 64);
        largest = item->nbytes > largest ? item->nbytes : largest;
    }
    return (is_external(plan) || total > LARGEST_MESSAGE) && largest >= external_least(plan, file);
}

static bool place_data(struct tc_writer *writer, struct onnx_writer *onnx, struct tc_error *error) {
    uint64_t least = writer->companion ? external_least(writer->plan, writer->file) : UINT64_MAX;
    uint64_t end = 0;
    onnx->offsets =
        tc_arena_array(&writer->arena, writer->file->count, sizeof *onnx->offsets, error);
    for (size_t i = 0; onnx->offsets && i < writer->file->count; i++) {
        uint64_t nbytes = writer->plan->items[writer->file->first + i].nbytes;
        onnx->offsets[i] = UINT64_MAX;
        if (nbytes < least || onnx->sparse[i])
            continue;
        onnx->offsets[i] = (end + EXTERNAL_ALIGNMENT - 1) / EXTERNAL_ALIGNMENT * EXTERNAL_ALIGNMENT;
        end = onnx->offsets[i] + nbytes;
    }
    return onnx->offsets != NULL;
}

/* Appends a sparse initializer, with its data. */
static bool add_sparse(struct tc_buffer *text, const struct onnx_sparse *sparse,
                       struct tc_error *error) {
    struct tc_buffer message = {0};
    bool ok = onnx_add_sparse_tensor(&message, sparse, error);
    wire_add_varint(text, TAG_SPARSE);
    wire_add_varint(text, message.length);
    tc_buffer_add(text, message.bytes, ok ? message.length : 0);
    tc_buffer_release(&message);
    return ok && tc_buffer_ok(text, error);
}

/* Appends an initializer up to its data, which comes last. A sparse one stands at the place of
 * its first part; its other parts are nothing by themselves. */
static bool add_initializer(struct tc_buffer *text, struct tc_writer *writer, size_t index,
                            struct tc_error *error) {
    const struct onnx_writer *onnx = writer->state;
    const struct tc_item *item = &writer->plan->items[writer->file->first + index];
    bool external = onnx->offsets[index] != UINT64_MAX;
    struct tc_buffer header = {0};
    if (onnx->sparse[index])
        return onnx->sparse[index]->first != index || add_sparse(text, onnx->sparse[index], error);
    bool ok = onnx_write_head(&header, item, onnx->offsets[index],
                              external ? writer->file->companion : NULL, error);
    uint64_t data = external ? 0 : 1 + wire_varint_size(item->nbytes) + item->nbytes;
    wire_add_varint(text, TAG_INITIALIZER);
    wire_add_varint(text, header.length + data);
    tc_buffer_add(text, header.bytes, ok ? header.length : 0);
    if (!external) {
        wire_add_varint(text, TAG_RAW_DATA);
        wire_add_varint(text, item->nbytes);
    }
    tc_buffer_release(&header);
    return ok && tc_buffer_ok(text, error);
}

/* Appends all of the graph but its initializers. */
static bool add_graph(struct tc_buffer *text, const struct tc_writer *writer,
                      struct tc_error *error) {
    wire_add_varint(text, TAG_GRAPH_NAME);
    wire_add_varint(text, strlen(GRAPH_NAME));
    tc_buffer_add_string(text, GRAPH_NAME);
    const struct onnx_writer *onnx = writer->state;
    for (size_t i = 0; i < writer->file->count; i++) {
        struct tc_item item = writer->plan->items[writer->file->first + i];
        const struct onnx_sparse *sparse = onnx->sparse[i];
        if (sparse && sparse->first != i)
            continue;
        if (sparse) { /* for whoever uses it, it is a tensor as any other */
            item.name = sparse->parent;
            item.dtype = sparse->values->dtype;
            item.shape = sparse->dims;
            item.rank = (uint8_t)sparse->rank;
        }
        if (!add_output(text, &item, error))
            return false;
    }
    return tc_buffer_ok(text, error);
}

bool onnx_write_begin(struct tc_writer *writer, struct tc_error *error) {
    struct onnx_writer *onnx = writer->state;
    struct tc_buffer model = {0};
    struct tc_buffer graph = {0};
    struct tc_buffer initializer = {0};
    bool ok = onnx_find_sparse(writer, onnx, error) && onnx_leave_out_sparse(writer, onnx, error) &&
              place_data(writer, onnx, error) && add_model(&model, writer, error) &&
              add_graph(&graph, writer, error);
    uint64_t size = graph.length;
    for (size_t i = 0; i < writer->file->count && ok; i++) {
        initializer.length = 0;
        ok = add_initializer(&initializer, writer, i, error);
        size += initializer.length;
        if (onnx->offsets[i] == UINT64_MAX && !onnx->sparse[i])
            size += writer->plan->items[writer->file->first + i].nbytes;
    }
    if (ok && size + model.length > LARGEST_MESSAGE)
        ok = tc_fail(error, TC_UNSUPPORTED, "size", "names and shapes alone pass 2 GiB");
    if (ok) {
        wire_add_varint(&model, TAG_GRAPH);
        wire_add_varint(&model, size);
        ok = tc_buffer_ok(&model, error) &&
             tc_outfile_write(writer->out, model.bytes, model.length, error) &&
             tc_outfile_write(writer->out, graph.bytes, graph.length, error);
    }
    tc_buffer_release(&model);
    tc_buffer_release(&graph);
    tc_buffer_release(&initializer);
    return ok;
}

/* Writes zeros up to where a tensor's external data starts. */
static bool align_companion(struct tc_outfile *out, uint64_t offset, struct tc_error *error) {
    static const char zeros[4096];
    while (out->position < offset) {
        uint64_t left = offset - out->position;
        if (!tc_outfile_write(out, zeros, left < sizeof zeros ? left : sizeof zeros, error))
            return false;
    }
    return true;
}

/* Takes what was written already. */
static bool drain(struct tc_source *source, struct tc_error *error) {
    struct tc_chunk *chunk;
    enum tc_next next;
    while ((next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK)
        tc_chunk_release(chunk);
    return next == TC_NEXT_END;
}

bool onnx_write_put(struct tc_writer *writer, size_t index, struct tc_source *source,
                    struct tc_error *error) {
    const struct onnx_writer *onnx = writer->state;
    struct tc_buffer text = {0};
    bool ok = add_initializer(&text, writer, index, error) &&
              tc_outfile_write(writer->out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    if (ok && onnx->sparse[index])
        return drain(source, error);
    if (!ok || onnx->offsets[index] == UINT64_MAX)
        return ok && tc_source_write(source, writer->out, error);
    return align_companion(writer->companion, onnx->offsets[index], error) &&
           tc_source_write(source, writer->companion, error);
}

bool onnx_write_lone(struct tc_writer *writer, struct tc_source *source, struct tc_error *error) {
    const struct tc_item *item = &writer->plan->items[writer->file->first];
    struct tc_buffer text = {0};
    bool ok = onnx_write_head(&text, item, 0, NULL, error);
    wire_add_varint(&text, TAG_RAW_DATA);
    wire_add_varint(&text, item->nbytes);
    ok = ok && tc_buffer_ok(&text, error) &&
         tc_outfile_write(writer->out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    return ok && tc_source_write(source, writer->out, error);
}

bool onnx_write_check_lone(struct tc_plan *plan, struct tc_error *error) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        if (item->nbytes + item->name.length + 1024 <= LARGEST_MESSAGE)
            continue;
        tc_fail(error, TC_UNSUPPORTED, "size", "a tensor of %llu bytes passes 2 GiB",
                (unsigned long long)item->nbytes);
        tc_error_hint(error, "an .onnx model keeps such data in a file beside it");
        return tc_error_in_tensor(error, item->name.bytes, item->name.length);
    }
    return true;
}
