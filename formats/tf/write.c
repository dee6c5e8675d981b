/* Packs TensorFlow's messages with protobuf-c, except for the elements. */
#include <limits.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "formats/protobuf/wire.h"
#include "formats/tensorflow.pb-c.h"
#include "formats/tf/tensor.h"

/* Enough for 64 dimensions of 13 bytes each and the other fields. */
#define LONGEST_HEAD 1024u
#define TAG_CONTENT (4 << 3 | WIRE_BYTES)

bool tf_write_head(struct tc_buffer *head, const struct tc_item *item, struct tc_error *error) {
    Tensorflow__TensorProto tensor = TENSORFLOW__TENSOR_PROTO__INIT;
    Tensorflow__TensorShapeProto shape = TENSORFLOW__TENSOR_SHAPE_PROTO__INIT;
    Tensorflow__TensorShapeProto__Dim dims[TC_MAX_RANK];
    Tensorflow__TensorShapeProto__Dim *list[TC_MAX_RANK];
    unsigned char packed[LONGEST_HEAD];
    for (unsigned i = 0; i < item->rank; i++) {
        tensorflow__tensor_shape_proto__dim__init(&dims[i]);
        dims[i].size = (int64_t)item->shape[i];
        list[i] = &dims[i];
    }
    shape.n_dim = item->rank;
    shape.dim = list;
    tensor.dtype = (int32_t)tf_dtype_number(item->dtype);
    tensor.tensor_shape = &shape;
    if (tensorflow__tensor_proto__get_packed_size(&tensor) > sizeof packed)
        return tc_fail(error, TC_INTERNAL, "protobuf", "a message's head is longer than it can be");
    tc_buffer_add(head, packed, tensorflow__tensor_proto__pack(&tensor, packed));
    /* TensorFlow leaves an empty tensor_content out. */
    if (item->nbytes) {
        wire_add_varint(head, TAG_CONTENT);
        wire_add_varint(head, item->nbytes);
    }
    return tc_buffer_ok(head, error);
}

/* Sparse tensors: DT_STRING [3] of three tensors, as tf.io.serialize_sparse makes it. Each
 * string has its length before it, so that the parts are read before anything is written. */

#define TAG_DTYPE (1 << 3)
#define TAG_SHAPE (2 << 3 | WIRE_BYTES)
#define TAG_STRING (8 << 3 | WIRE_BYTES)
#define DT_STRING 7
#define LARGEST_SPARSE (UINT64_C(256) << 20)

/* indices, values, shape: how they follow each other. */
static unsigned place_of(const struct tc_item *item) {
    const struct tc_text *role = tc_metadata_find(item->metadata, TC_SPARSE_ROLE);
    const struct tc_sparse_layout *coo = &tc_sparse_layouts[TC_SPARSE_COO];
    unsigned i = 0;
    while (role && i < coo->parts && !tc_text_equal(*role, tc_text_of(coo->roles[i])))
        i++;
    return i;
}

int tf_compare(const struct tc_item *a, const struct tc_item *b) {
    unsigned x = place_of(a);
    unsigned y = place_of(b);
    return x != y ? (x < y ? -1 : 1) : (a->place > b->place) - (a->place < b->place);
}

/* Indices are [ndim, nnz] in the table, and [nnz, ndim] in TensorFlow. */
static void transpose(const unsigned char *from, unsigned char *to, uint64_t rows,
                      uint64_t columns) {
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            memcpy(to + (c * rows + r) * 8, from + (r * columns + c) * 8, 8);
}

/* Appends one of the three strings: a whole TensorProto. */
static bool add_string(struct tc_buffer *text, const struct tc_item *item, bool turned,
                       struct tc_error *error) {
    struct tc_item written = *item;
    uint64_t shape[2] = {0};
    struct tc_buffer head = {0};
    unsigned char *bytes = malloc(2 * item->nbytes + 1);
    bool ok = bytes ? tc_reader_read(item->reader, item->tensor, 0, bytes, item->nbytes, error)
                    : tc_fail_memory(error);
    unsigned char *content = bytes;
    if (ok && turned) {
        shape[0] = item->shape[1];
        shape[1] = item->shape[0];
        written.shape = shape;
        content = bytes + item->nbytes;
        transpose(bytes, content, item->shape[0], item->shape[1]);
    }
    ok = ok && tf_write_head(&head, &written, error);
    wire_add_varint(text, TAG_STRING);
    wire_add_varint(text, head.length + item->nbytes);
    tc_buffer_add(text, head.bytes, ok ? head.length : 0);
    tc_buffer_add(text, content, ok ? item->nbytes : 0);
    tc_buffer_release(&head);
    free(bytes);
    return ok && tc_buffer_ok(text, error);
}

bool tf_write_sparse(struct tc_writer *writer, struct tc_error *error) {
    static const unsigned char shape[] = {0x12, 2, 8, 3}; /* one dimension of 3 */
    const struct tc_item *items = writer->plan->items + writer->file->first;
    struct tc_buffer text = {0};
    writer->sees_bytes = true; /* and passes over them: they are written already */
    wire_add_varint(&text, TAG_DTYPE);
    wire_add_varint(&text, DT_STRING);
    wire_add_varint(&text, TAG_SHAPE);
    wire_add_varint(&text, sizeof shape);
    tc_buffer_add(&text, shape, sizeof shape);
    bool ok = true;
    for (unsigned place = 0; place < 3 && ok; place++)
        for (size_t i = 0; i < writer->file->count && ok; i++)
            if (place_of(&items[i]) == place) /* the user may want another order of the items */
                ok = add_string(&text, &items[i], place == 0, error);
    ok = ok && tc_outfile_write(writer->out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    return ok;
}

/* Refuses a sparse tensor that serialize_sparse would not make. */
static bool check_sparse(const struct tc_plan *plan, struct tc_error *error) {
    const struct tc_item *parts[3] = {NULL};
    for (size_t i = 0; i < plan->count && i < 3; i++)
        if (place_of(&plan->items[i]) < 3)
            parts[place_of(&plan->items[i])] = &plan->items[i];
    const struct tc_item *indices = parts[0];
    const struct tc_item *values = parts[1];
    const struct tc_item *shape = parts[2];
    if (!indices || !values || !shape || indices->dtype != TC_I64 || indices->rank != 2 ||
        values->rank != 1 || shape->dtype != TC_I64 || shape->rank != 1)
        return tc_fail(error, TC_UNSUPPORTED, "sparse",
                       "TensorFlow has sparse tensors of one value for each index alone");
    if (indices->nbytes + values->nbytes > LARGEST_SPARSE)
        return tc_fail(error, TC_UNSUPPORTED, "message-size",
                       "a sparse tensor of more than %llu bytes",
                       (unsigned long long)LARGEST_SPARSE);
    return true;
}

bool tf_check(struct tc_plan *plan, struct tc_error *error) {
    bool one = !(plan->target->caps & TC_CAN_HOLD_MANY) && !plan->options->folder;
    if (one && plan->count > 1 && !check_sparse(plan, error))
        return false;
    for (size_t i = 0; i < plan->count; i++) {
        const struct tc_item *item = &plan->items[i];
        struct tc_buffer head = {0};
        uint64_t size = 0;
        bool ok = tf_write_head(&head, item, error);
        if (ok && (!tc_add(item->nbytes, head.length, &size) || size > INT32_MAX)) {
            ok = tc_fail(error, TC_UNSUPPORTED, "message-size",
                         "%llu bytes; TensorFlow reads no message of 2 GiB or more",
                         (unsigned long long)item->nbytes);
            tc_error_hint(error, "take it in pieces with --rows, or write another format");
        }
        tc_buffer_release(&head);
        if (!ok)
            return tc_error_in_tensor(error, item->name.bytes, item->name.length);
    }
    return true;
}
