/* Packs TensorFlow's messages with protobuf-c, except for the elements. */
#include <limits.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/plan/plan.h"
#include "formats/protobuf/wire.h"
#include "formats/tf/tensor.h"

#include "formats/tensorflow.pb-c.h"

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

bool tf_check(struct tc_plan *plan, struct tc_error *error) {
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
