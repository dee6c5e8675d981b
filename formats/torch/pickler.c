#include "formats/torch/pickler.h"

#include <stdio.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/base/little_endian.h"
#include "core/format/reader.h"
#include "core/plan/ties.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/opcodes.h"

/* How torch names each dtype, as globals of a pickle: older dtypes have a class of
 * storage; newer ones have an untyped storage and a dtype. */
static const struct torch_type {
    const char *storage; /* NULL: untyped */
    const char *dtype;
} types[TC_DTYPES] = {
    [TC_BOOL] = {.storage = "torch\nBoolStorage"},
    [TC_U8] = {.storage = "torch\nByteStorage"},
    [TC_I8] = {.storage = "torch\nCharStorage"},
    [TC_I16] = {.storage = "torch\nShortStorage"},
    [TC_I32] = {.storage = "torch\nIntStorage"},
    [TC_I64] = {.storage = "torch\nLongStorage"},
    [TC_F16] = {.storage = "torch\nHalfStorage"},
    [TC_BF16] = {.storage = "torch\nBFloat16Storage"},
    [TC_F32] = {.storage = "torch\nFloatStorage"},
    [TC_F64] = {.storage = "torch\nDoubleStorage"},
    [TC_C64] = {.storage = "torch\nComplexFloatStorage"},
    [TC_C128] = {.storage = "torch\nComplexDoubleStorage"},
    [TC_U16] = {.dtype = "torch\nuint16"},
    [TC_U32] = {.dtype = "torch\nuint32"},
    [TC_U64] = {.dtype = "torch\nuint64"},
    [TC_C32] = {.dtype = "torch\ncomplex32"},
    [TC_F8_E4M3] = {.dtype = "torch\nfloat8_e4m3fn"},
    [TC_F8_E5M2] = {.dtype = "torch\nfloat8_e5m2"},
    [TC_F8_E4M3FNUZ] = {.dtype = "torch\nfloat8_e4m3fnuz"},
    [TC_F8_E5M2FNUZ] = {.dtype = "torch\nfloat8_e5m2fnuz"},
    [TC_F8_E8M0] = {.dtype = "torch\nfloat8_e8m0fnu"},
    [TC_F4] = {.dtype = "torch\nfloat4_e2m1fn_x2"},
};

void pickler_byte(struct torch_pickler *pickler, unsigned byte) {
    tc_buffer_add(&pickler->text, &(char){(char)byte}, 1);
}

void pickler_little(struct torch_pickler *pickler, uint64_t value, unsigned bytes) {
    unsigned char field[8];
    tc_store(field, value, bytes);
    tc_buffer_add(&pickler->text, field, bytes);
}

void pickler_integer(struct torch_pickler *pickler, uint64_t value) {
    if (value <= UINT8_MAX) {
        pickler_byte(pickler, OP_BININT1);
        pickler_little(pickler, value, 1);
    } else if (value <= UINT16_MAX) {
        pickler_byte(pickler, OP_BININT2);
        pickler_little(pickler, value, 2);
    } else if (value <= INT32_MAX) {
        pickler_byte(pickler, OP_BININT);
        pickler_little(pickler, value, 4);
    } else {
        /* libtorch accepts LONG1 only with eight bytes. */
        pickler_byte(pickler, OP_LONG1);
        pickler_byte(pickler, 8);
        pickler_little(pickler, value, 8);
    }
}

void pickler_signed(struct torch_pickler *pickler, int64_t value) {
    bool small = value >= INT32_MIN && value <= INT32_MAX;
    if (value >= 0) {
        pickler_integer(pickler, (uint64_t)value);
        return;
    }
    pickler_byte(pickler, small ? OP_BININT : OP_LONG1);
    if (!small)
        pickler_byte(pickler, 8);
    pickler_little(pickler, (uint64_t)value, small ? 4 : 8);
}

void pickler_long(struct torch_pickler *pickler, struct tc_text digits) {
    unsigned char bytes[255] = {0};
    bool negative = digits.length && digits.bytes[0] == '-';
    size_t used = 0;
    for (size_t i = negative; i < digits.length; i++) {
        unsigned carry = (unsigned)(digits.bytes[i] - '0');
        for (size_t b = 0; b < used || carry; b++) {
            carry += bytes[b] * 10u;
            bytes[b] = (unsigned char)carry;
            carry >>= 8;
            used = b + 1 > used ? b + 1 : used;
        }
    }
    /* In two's complement; one byte more where the highest bit is not the sign. */
    used += used < sizeof bytes && bytes[used - 1] & 0x80;
    for (size_t b = 0, borrow = 1; negative && b < used; b++) {
        borrow += (unsigned char)~bytes[b];
        bytes[b] = (unsigned char)borrow;
        borrow >>= 8;
    }
    pickler_byte(pickler, OP_LONG1);
    pickler_byte(pickler, (unsigned)used);
    tc_buffer_add(&pickler->text, bytes, used);
}

void pickler_real(struct torch_pickler *pickler, double value) {
    uint64_t bits;
    unsigned char field[8];
    memcpy(&bits, &value, sizeof bits);
    tc_store(field, __builtin_bswap64(bits), 8);
    pickler_byte(pickler, OP_BINFLOAT);
    tc_buffer_add(&pickler->text, field, sizeof field);
}

void pickler_boolean(struct torch_pickler *pickler, bool value) {
    pickler_byte(pickler, value ? OP_NEWTRUE : OP_NEWFALSE);
}

void pickler_latin1(struct torch_pickler *pickler, const void *bytes, size_t length,
                    const char *codec) {
    const unsigned char *from = bytes;
    uint64_t high = 0;
    for (size_t i = 0; i < length; i++)
        high += from[i] >> 7;
    pickler_byte(pickler, OP_BINUNICODE);
    pickler_little(pickler, length + high, 4);
    for (size_t i = 0; i < length; i++) {
        char two[2] = {(char)(0xC0 | from[i] >> 6), (char)(0x80 | (from[i] & 0x3F))};
        bool ascii = from[i] < 0x80;
        tc_buffer_add(&pickler->text, ascii ? (const char *)from + i : two, ascii ? 1 : 2);
    }
    pickler_shared(pickler, codec);
}

void pickler_bytes(struct torch_pickler *pickler, const void *bytes, size_t length) {
    pickler_shared(pickler, "_codecs\nencode");
    pickler_latin1(pickler, bytes, length, "latin1");
    pickler_byte(pickler, OP_TUPLE2);
    pickler_byte(pickler, OP_REDUCE);
}

void pickler_text(struct torch_pickler *pickler, struct tc_text text) {
    pickler_byte(pickler, OP_BINUNICODE);
    pickler_little(pickler, text.length, 4);
    tc_buffer_add_text(&pickler->text, text);
}

void pickler_global(struct torch_pickler *pickler, const char *global) {
    pickler_byte(pickler, OP_GLOBAL);
    tc_buffer_addf(&pickler->text, "%s\n", global);
}

void pickler_shared(struct torch_pickler *pickler, const char *text) {
    for (unsigned i = 0; i < pickler->memo_count; i++)
        if (strcmp(pickler->memo[i], text) == 0) {
            pickler_byte(pickler, OP_BINGET);
            pickler_byte(pickler, i);
            return;
        }
    if (strchr(text, '\n'))
        pickler_global(pickler, text);
    else
        pickler_text(pickler, tc_text_of(text));
    if (pickler->memo_count == PICKLER_MAX_MEMO)
        return;
    pickler_byte(pickler, OP_BINPUT);
    pickler_byte(pickler, pickler->memo_count);
    pickler->memo[pickler->memo_count++] = text;
}

void pickler_begin_tuple(struct torch_pickler *pickler, size_t count) {
    if (count > 3)
        pickler_byte(pickler, OP_MARK);
}

void pickler_end_tuple(struct torch_pickler *pickler, size_t count) {
    static const unsigned char short_ones[] = {OP_EMPTY_TUPLE, OP_TUPLE1, OP_TUPLE2, OP_TUPLE3};
    pickler_byte(pickler, count <= 3 ? short_ones[count] : OP_TUPLE);
}

void pickler_sizes(struct torch_pickler *pickler, const uint64_t *sizes, size_t count) {
    pickler_begin_tuple(pickler, count);
    for (size_t i = 0; i < count; i++)
        pickler_integer(pickler, sizes[i]);
    pickler_end_tuple(pickler, count);
}

/* Sizes and strides as torch has them, which counts pairs of F4 elements. */
static void sizes_in_torch(const struct tc_item *item, uint64_t *sizes, uint64_t *strides) {
    uint64_t stride = 1;
    for (unsigned i = item->rank; i > 0; i--) {
        sizes[i - 1] = item->shape[i - 1] / (item->dtype == TC_F4 && i == item->rank ? 2 : 1);
        strides[i - 1] = stride;
        stride *= sizes[i - 1] ? sizes[i - 1] : 1;
    }
}

/* Writes the persistent id of an item's storage: ("storage", class, key, "cpu", count). */
static void add_storage(struct torch_pickler *pickler, size_t index, const char *class) {
    const struct tc_item *item = &pickler->items[index];
    const struct tc_item *kept = item->tied ? tc_ties_kept(pickler->writer->plan, item) : item;
    const struct torch_type *type = &types[item->dtype];
    char key[24];
    snprintf(key, sizeof key, "%llu",
             (unsigned long long)pickler->slots[kept - pickler->items].number);
    if (!class)
        class = type->storage ? type->storage : "torch.storage\nUntypedStorage";
    pickler_byte(pickler, OP_MARK);
    pickler_shared(pickler, "storage");
    pickler_shared(pickler, class);
    pickler_text(pickler, tc_text_of(key));
    pickler_shared(pickler, "cpu");
    pickler_integer(pickler,
                    type->storage ? item->nbytes / (tc_dtype_bits(item->dtype) / 8) : item->nbytes);
    pickler_byte(pickler, OP_TUPLE);
    pickler_byte(pickler, OP_BINPERSID);
}

void pickler_empty_dict(struct torch_pickler *pickler) {
    pickler_shared(pickler, "collections\nOrderedDict");
    pickler_byte(pickler, OP_EMPTY_TUPLE);
    pickler_byte(pickler, OP_REDUCE);
}

void pickler_tensor_function(struct torch_pickler *pickler, size_t index) {
    pickler_shared(pickler, types[pickler->items[index].dtype].storage
                                ? "torch._utils\n_rebuild_tensor_v2"
                                : "torch._utils\n_rebuild_tensor_v3");
}

/* (storage, offset, size, stride, …), as every function that makes a tensor starts. */
static void add_place(struct torch_pickler *pickler, size_t index, const char *class) {
    const struct tc_item *item = &pickler->items[index];
    const struct torch_slot *slot = &pickler->slots[index];
    uint64_t sizes[TC_MAX_RANK] = {0};
    uint64_t strides[TC_MAX_RANK] = {0};
    sizes_in_torch(item, sizes, strides);
    add_storage(pickler, slot->view ? slot->base : index, class);
    pickler_integer(pickler, slot->view ? slot->view->offset : 0);
    pickler_sizes(pickler, sizes, item->rank);
    pickler_sizes(pickler,
                  slot->view      ? slot->view->stride
                  : slot->strided ? slot->strided->stride
                                  : strides,
                  item->rank);
}

void pickler_tensor_arguments(struct torch_pickler *pickler, size_t index, bool requires_grad) {
    const struct torch_type *type = &types[pickler->items[index].dtype];
    pickler_byte(pickler, OP_MARK);
    add_place(pickler, index, NULL);
    pickler_boolean(pickler, requires_grad);
    pickler_empty_dict(pickler); /* has no hooks */
    if (!type->storage)
        pickler_shared(pickler, type->dtype);
    pickler_byte(pickler, OP_TUPLE);
}

void pickler_dense(struct torch_pickler *pickler, size_t index) {
    pickler_tensor_function(pickler, index);
    pickler_tensor_arguments(pickler, index, false);
    pickler_byte(pickler, OP_REDUCE);
}

void pickler_quantised(struct torch_pickler *pickler, size_t index) {
    const struct torch_quantised *how = pickler->slots[index].quantised;
    unsigned dtype = pickler->items[index].dtype;
    pickler_shared(pickler, "torch._utils\n_rebuild_qtensor");
    pickler_byte(pickler, OP_MARK);
    add_place(pickler, index,
              dtype == TC_I8   ? "torch\nQInt8Storage"
              : dtype == TC_U8 ? "torch\nQUInt8Storage"
                               : "torch\nQInt32Storage");
    pickler_begin_tuple(pickler, how->channels ? 4 : 3);
    pickler_shared(pickler, how->scheme);
    if (how->channels) {
        pickler_dense(pickler, how->scales);
        pickler_dense(pickler, how->zero_points);
    } else
        pickler_real(pickler, how->scale);
    pickler_signed(pickler, how->zero_point);
    pickler_end_tuple(pickler, how->channels ? 4 : 3);
    pickler_boolean(pickler, false); /* requires no gradient */
    pickler_empty_dict(pickler);
    pickler_byte(pickler, OP_TUPLE);
    pickler_byte(pickler, OP_REDUCE);
}

/* The pickle has its shape, so that the shape's values are read
 * before any data is written. */
bool pickler_sparse(struct torch_pickler *pickler, const struct torch_group *group,
                    struct tc_error *error) {
    unsigned last = group->layout->parts - 1;
    const struct tc_item *item = &pickler->items[group->parts[last]];
    unsigned char bytes[TC_MAX_RANK * 8];
    uint64_t sizes[TC_MAX_RANK] = {0};
    if (!tc_reader_read(item->reader, item->tensor, item->skip, bytes, item->nbytes, error))
        return false;
    for (size_t i = 0; i < item->nbytes / 8; i++) {
        sizes[i] = tc_load(bytes + i * 8, 8);
        if (sizes[i] <= INT64_MAX)
            continue;
        tc_fail(error, TC_INVALID, "sparse", "a sparse tensor has a negative dimension");
        return tc_error_in_tensor(error, group->parent.bytes, group->parent.length);
    }
    struct tc_buffer layout = {0};
    tc_buffer_addf(&layout, "torch.sparse_%s", group->layout->name);
    const char *kept =
        tc_buffer_ok(&layout, error)
            ? tc_arena_copy(&pickler->writer->arena, layout.bytes, layout.length, error)
            : NULL;
    tc_buffer_release(&layout);
    if (!kept)
        return false;
    pickler_shared(pickler, "torch._utils\n_rebuild_sparse_tensor");
    pickler_shared(pickler, "torch.serialization\n_get_layout");
    pickler_shared(pickler, kept);
    pickler_byte(pickler, OP_TUPLE1);
    pickler_byte(pickler, OP_REDUCE);
    unsigned count = last + (group->coalesced ? 2 : 1);
    pickler_begin_tuple(pickler, count);
    for (unsigned i = 0; i < last; i++)
        pickler_dense(pickler, group->parts[i]);
    pickler_sizes(pickler, sizes, item->nbytes / 8);
    if (group->coalesced)
        pickler_boolean(pickler, *group->coalesced);
    pickler_end_tuple(pickler, count);
    pickler_byte(pickler, OP_TUPLE2);
    pickler_byte(pickler, OP_REDUCE);
    return true;
}
