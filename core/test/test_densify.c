/* Sparse tensors made dense. The expected sums are those of torch 2. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/format/densify.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "core/test/made_reader.h"

TestSuite(densify, .init = made_setup, .fini = made_teardown);

struct part {
    const char *role;
    enum tc_dtype dtype;
    unsigned rank;
    uint64_t shape[6];
    const void *bytes;
};

static void add_part(const char *layout, const struct part *part, uint32_t cookie) {
    struct tc_buffer name = {0};
    tc_buffer_addf(&name, "s.%s", part->role);
    struct tc_metadata *metadata = tc_arena_alloc(&arena, sizeof *metadata, &error);
    uint64_t *shape = tc_arena_array(&arena, 6, sizeof *shape, &error);
    memcpy(shape, part->shape, sizeof part->shape);
    struct tc_tensor tensor = {
        .name = {tc_arena_copy(&arena, name.bytes, name.length, &error), name.length},
        .shape = shape,
        .rank = (uint8_t)part->rank,
        .dtype = (uint8_t)part->dtype,
        .metadata = metadata,
        .cookie = cookie};
    uint64_t count;
    tc_buffer_release(&name);
    cr_assert(tc_shape_measure(part->dtype, shape, part->rank, &count, &tensor.nbytes, &error));
    tc_metadata_set(metadata, &arena, TC_TEXT("sparse_parent"), TC_TEXT("s"), &error);
    tc_metadata_set(metadata, &arena, TC_TEXT("sparse_role"), tc_text_of(part->role), &error);
    tc_metadata_set(metadata, &arena, TC_TEXT("sparse_layout"), tc_text_of(layout), &error);
    made_data[cookie] = part->bytes;
    cr_assert(tc_table_add(&reader->table, &tensor, &error), "%s", error.message);
}

/* A group, as the table would have it. NULL where it is refused. */
static struct tc_densify *make(const char *layout, const struct part *parts) {
    struct tc_sparse sparse;
    error = (struct tc_error){0};
    tc_table_release(&reader->table);
    tc_table_init(&reader->table, &reader->arena, 100);
    for (uint32_t i = 0; i < MADE_TENSORS && parts[i].role; i++)
        add_part(layout, &parts[i], i);
    cr_assert(tc_sparse_of(&reader->table, &reader->table.tensors[0], &sparse));
    return tc_densify_make(reader, &sparse, &arena, &error);
}

/* The dense bytes, read in windows of every size. */
static void expect_dense(const char *layout, const struct part *parts, const void *expected,
                         size_t length) {
    struct tc_densify *densify = make(layout, parts);
    cr_assert_not_null(densify, "%s: %s", layout, error.message);
    cr_assert_eq(densify->tensor.nbytes, length);
    cr_assert(tc_text_equal(densify->tensor.name, TC_TEXT("s")));
    size_t element = tc_dtype_bits(densify->tensor.dtype) / 8;
    unsigned char *bytes = malloc(length);
    for (size_t step = element; step <= length; step += element) {
        memset(bytes, 0xAA, length);
        for (size_t at = 0; at < length; at += step)
            cr_assert(tc_densify_read(densify, at, bytes + at,
                                      length - at < step ? length - at : step, &error),
                      "%s: %s", layout, error.message);
        cr_assert_arr_eq(bytes, expected, length, "%s in steps of %zu", layout, step);
    }
    tc_densify_unload(densify);
    free(bytes);
}

static void expect_refused(const char *layout, const struct part *parts, enum tc_class class,
                           const char *tensor) {
    struct tc_densify *densify = make(layout, parts);
    unsigned char bytes[256];
    if (densify) {
        cr_assert_leq(densify->tensor.nbytes, sizeof bytes);
        cr_assert_not(tc_densify_read(densify, 0, bytes, densify->tensor.nbytes, &error));
        cr_assert_null(densify->bytes);
        cr_assert_null(densify->segments);
    }
    cr_assert_eq(error.class, class, "%s: %s", layout, error.message);
    cr_assert_str_eq(error.tensor, tensor, "%s", error.message);
}

#define I64(...) ((const int64_t[]){__VA_ARGS__})
#define I32(...) ((const int32_t[]){__VA_ARGS__})
#define F32(...) ((const float[]){__VA_ARGS__})
#define U16(...) ((const uint16_t[]){__VA_ARGS__})
#define U8(...) ((const uint8_t[]){__VA_ARGS__})

Test(densify, coo_in_any_order_with_either_index) {
    const struct part parts[] = {{"indices", TC_I64, 2, {2, 3}, I64(2, 0, 1, 0, 1, 1)},
                                 {"values", TC_F32, 1, {3}, F32(1, 2, 3)},
                                 {"shape", TC_I64, 1, {2}, I64(3, 2)},
                                 {0}};
    expect_dense("coo", parts, F32(0, 2, 0, 3, 1, 0), 24);
    const struct part narrow[] = {{"indices", TC_I32, 2, {2, 3}, I32(2, 0, 1, 0, 1, 1)},
                                  {"values", TC_F32, 1, {3}, F32(1, 2, 3)},
                                  {"shape", TC_I32, 1, {2}, I32(3, 2)},
                                  {0}};
    expect_dense("coo", narrow, F32(0, 2, 0, 3, 1, 0), 24);
}

Test(densify, hybrid_coo_and_none_at_all) {
    const struct part parts[] = {{"indices", TC_I64, 2, {1, 3}, I64(1, 1, 0)},
                                 {"values", TC_F32, 2, {3, 2}, F32(1, 2, 3, 4, 5, 6)},
                                 {"shape", TC_I64, 1, {2}, I64(3, 2)},
                                 {0}};
    expect_dense("coo", parts, F32(5, 6, 4, 6, 0, 0), 24);
    const struct part empty[] = {{"indices", TC_I64, 2, {2, 0}, ""},
                                 {"values", TC_F32, 1, {0}, ""},
                                 {"shape", TC_I64, 1, {2}, I64(1, 2)},
                                 {0}};
    expect_dense("coo", empty, F32(0, 0), 8);
    const struct part scalar[] = {{"indices", TC_I64, 2, {0, 2}, ""},
                                  {"values", TC_F32, 1, {2}, F32(1, 2)},
                                  {"shape", TC_I64, 1, {0}, ""},
                                  {0}};
    expect_dense("coo", scalar, F32(3), 4);
}

/* One place, several values. */
static void expect_sum(enum tc_dtype dtype, uint64_t count, const void *values,
                       const void *expected) {
    const struct part parts[] = {{"indices", TC_I64, 2, {1, count}, I64(1, 1, 1, 1)},
                                 {"values", dtype, 1, {count}, values},
                                 {"shape", TC_I64, 1, {1}, I64(2)},
                                 {0}};
    unsigned char dense[32] = {0};
    size_t size = tc_dtype_bits(dtype) / 8;
    memcpy(dense + size, expected, size);
    expect_dense("coo", parts, dense, 2 * size);
}

Test(densify, sums_as_torch_does) {
    expect_sum(TC_U8, 3, U8(100, 100, 100), U8(44));
    expect_sum(TC_I8, 2, U8(0x7F, 1), U8(0x80));
    expect_sum(TC_I32, 2, I32(INT32_MAX, 1), I32(INT32_MIN));
    expect_sum(TC_I64, 2, I64(INT64_MAX, 1), I64(INT64_MIN));
    expect_sum(TC_BOOL, 2, U8(1, 1), U8(1));
    expect_sum(TC_BOOL, 2, U8(0, 0), U8(0));
    /* 2048 + 1 is 2048 in F16, 256 + 1 is 256 in BF16: rounded at each step. */
    expect_sum(TC_F16, 3, U16(0x6800, 0x3C00, 0x3C00), U16(0x6800));
    expect_sum(TC_F16, 3, U16(0x3C00, 0x3C00, 0x6800), U16(0x6801));
    expect_sum(TC_BF16, 3, U16(0x4380, 0x3F80, 0x3F80), U16(0x4380));
    expect_sum(TC_BF16, 3, U16(0x3F80, 0x3F80, 0x4380), U16(0x4381));
    expect_sum(TC_F16, 2, U16(0x7BFF, 0x7BFF), U16(0x7C00));
    expect_sum(TC_F32, 3, F32(16777216, 1, 1), F32(16777216));
    expect_sum(TC_F32, 3, F32(1, 1, 16777216), F32(16777218));
    expect_sum(TC_F32, 2, F32(-0.0F, -0.0F), F32(0));
    expect_sum(TC_F64, 2, ((const double[]){1, 0x1p-52}), ((const double[]){1 + 0x1p-52}));
    expect_sum(TC_C64, 2, F32(1, 2, 2, 1), F32(3, 3));
    expect_sum(TC_C32, 2, U16(0x3C00, 0x4000, 0x4000, 0x3C00), U16(0x4200, 0x4200));
}

/* Bits that arithmetic would change stay: −0.0 and a signalling NaN. */
Test(densify, a_value_that_is_alone_keeps_its_bits) {
    expect_sum(TC_F32, 1, F32(-0.0F), F32(-0.0F));
    expect_sum(TC_F32, 1, I32(0x7FA12345), I32(0x7FA12345));
    expect_sum(TC_F16, 1, U16(0x7D01), U16(0x7D01));
    expect_sum(TC_F8_E4M3, 1, U8(0x42), U8(0x42));
}

#define CSR(first, plain, nnz)                                                                     \
    {                                                                                              \
        {"crow_indices", TC_I64, 1, {3}, first}, {"col_indices", TC_I64, 1, {nnz}, plain},         \
            {"values", TC_F32, 1, {nnz}, F32(1, 2, 3)}, {                                          \
            "shape", TC_I64, 1, {2}, I64(2, 3)                                                     \
        }                                                                                          \
    }

Test(densify, compressed_rows_and_columns) {
    const struct part csr[] = CSR(I64(0, 2, 3), I64(2, 0, 1), 3);
    expect_dense("csr", csr, F32(2, 0, 1, 0, 3, 0), 24);
    const struct part twice[] = CSR(I64(0, 3, 3), I64(1, 1, 0), 3);
    expect_dense("csr", twice, F32(3, 3, 0, 0, 0, 0), 24);
    const struct part csc[] = {{"ccol_indices", TC_I32, 1, {4}, I32(0, 1, 1, 3)},
                               {"row_indices", TC_I32, 1, {3}, I32(1, 0, 1)},
                               {"values", TC_F32, 1, {3}, F32(1, 2, 3)},
                               {"shape", TC_I64, 1, {2}, I64(2, 3)}};
    expect_dense("csc", csc, F32(0, 0, 2, 1, 0, 3), 24);
    const struct part hybrid[] = {{"crow_indices", TC_I64, 1, {3}, I64(0, 1, 1)},
                                  {"col_indices", TC_I64, 1, {1}, I64(1)},
                                  {"values", TC_F32, 2, {1, 2}, F32(7, 8)},
                                  {"shape", TC_I64, 1, {3}, I64(2, 2, 2)}};
    expect_dense("csr", hybrid, F32(0, 0, 7, 8, 0, 0, 0, 0), 32);
    const struct part batched[] = {{"crow_indices", TC_I64, 2, {2, 3}, I64(0, 1, 1, 0, 0, 1)},
                                   {"col_indices", TC_I64, 2, {2, 1}, I64(1, 0)},
                                   {"values", TC_F32, 2, {2, 1}, F32(7, 8)},
                                   {"shape", TC_I64, 1, {3}, I64(2, 2, 2)}};
    expect_dense("csr", batched, F32(0, 7, 0, 0, 0, 0, 8, 0), 32);
}

#define TWELVE F32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)

Test(densify, blocks) {
    const struct part bsr[] = {{"crow_indices", TC_I64, 1, {3}, I64(0, 1, 2)},
                               {"col_indices", TC_I64, 1, {2}, I64(1, 0)},
                               {"values", TC_F32, 3, {2, 2, 3}, TWELVE},
                               {"shape", TC_I64, 1, {2}, I64(4, 6)}};
    expect_dense("bsr", bsr,
                 F32(0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 10, 11, 0, 0, 0), 96);
    const struct part bsc[] = {{"ccol_indices", TC_I64, 1, {3}, I64(0, 1, 2)},
                               {"row_indices", TC_I64, 1, {2}, I64(1, 0)},
                               {"values", TC_F32, 3, {2, 2, 3}, TWELVE},
                               {"shape", TC_I64, 1, {2}, I64(4, 6)}};
    expect_dense("bsc", bsc,
                 F32(0, 0, 0, 6, 7, 8, 0, 0, 0, 9, 10, 11, 0, 1, 2, 0, 0, 0, 3, 4, 5, 0, 0, 0), 96);
}

static void expect_bad_coo(struct part indices, struct part values, struct part shape,
                           const char *tensor) {
    const struct part parts[] = {indices, values, shape, {0}};
    expect_refused("coo", parts, TC_INVALID, tensor);
}

Test(densify, coo_that_lies_is_refused) {
    const struct part indices = {"indices", TC_I64, 2, {2, 2}, I64(0, 1, 0, 1)};
    const struct part values = {"values", TC_F32, 1, {2}, F32(1, 2)};
    const struct part shape = {"shape", TC_I64, 1, {2}, I64(2, 2)};
    const int64_t *const lies[] = {I64(0, 2, 0, 1), I64(0, 1, 0, -1), I64(0, INT64_MIN, 0, 1),
                                   I64(INT64_MAX, 1, 0, 1)};
    struct part bad = indices;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        bad.bytes = lies[i];
        expect_bad_coo(bad, values, shape, "s.indices");
    }
    bad = (struct part){"indices", TC_F32, 2, {2, 2}, F32(0, 1, 0, 1)};
    expect_bad_coo(bad, values, shape, "s.indices");
    bad = (struct part){"indices", TC_I64, 1, {4}, indices.bytes};
    expect_bad_coo(bad, values, shape, "s.indices");
    bad = (struct part){"indices", TC_I64, 2, {3, 2}, I64(0, 0, 0, 0, 0, 0)};
    expect_bad_coo(bad, values, shape, "s.indices");
    bad = (struct part){"values", TC_F32, 1, {3}, F32(1, 2, 3)};
    expect_bad_coo(indices, bad, shape, "s.values");
    bad = (struct part){"values", TC_F32, 2, {2, 1}, F32(1, 2)};
    expect_bad_coo(indices, bad, shape, "s.values");
    bad = (struct part){"shape", TC_I64, 1, {2}, I64(2, -1)};
    expect_bad_coo(indices, values, bad, "s.shape");
    bad = (struct part){"shape", TC_I64, 1, {2}, I64(INT64_MAX, INT64_MAX)};
    expect_bad_coo(indices, values, bad, "s.shape");
    bad = (struct part){"shape", TC_I64, 2, {1, 2}, I64(2, 2)};
    expect_bad_coo(indices, values, bad, "s.shape");
    bad = (struct part){"shape", TC_I64, 1, {2}, I64(2, 0)};
    expect_bad_coo(indices, values, bad, "s.values");
}

Test(densify, compressed_that_lies_is_refused) {
    const struct part late[] = CSR(I64(1, 2, 3), I64(2, 0, 1), 3);
    const struct part falling[] = CSR(I64(0, 3, 2), I64(2, 0, 1), 3);
    const struct part behind[] = CSR(I64(0, 4, 3), I64(2, 0, 1), 3);
    const struct part few[] = CSR(I64(0, 1, 2), I64(2, 0, 1), 3);
    const struct part negative[] = CSR(I64(0, -1, 3), I64(2, 0, 1), 3);
    expect_refused("csr", late, TC_INVALID, "s.crow_indices");
    expect_refused("csr", falling, TC_INVALID, "s.crow_indices");
    expect_refused("csr", behind, TC_INVALID, "s.crow_indices");
    expect_refused("csr", few, TC_INVALID, "s.crow_indices");
    expect_refused("csr", negative, TC_INVALID, "s.crow_indices");
    const struct part outside[] = CSR(I64(0, 2, 3), I64(2, 3, 1), 3);
    const struct part below[] = CSR(I64(0, 2, 3), I64(2, -1, 1), 3);
    expect_refused("csr", outside, TC_INVALID, "s.col_indices");
    expect_refused("csr", below, TC_INVALID, "s.col_indices");
    struct part lines[] = CSR(I64(0, 3), I64(2, 0, 1), 3);
    lines[0].shape[0] = 2;
    expect_refused("csr", lines, TC_INVALID, "s.crow_indices");
    struct part flat[] = CSR(I64(0, 2, 3), I64(2, 0, 1), 3);
    expect_refused("bsr", flat, TC_INVALID, "s.values");
    const struct part uneven[] = {{"crow_indices", TC_I64, 1, {3}, I64(0, 1, 2)},
                                  {"col_indices", TC_I64, 1, {2}, I64(1, 0)},
                                  {"values", TC_F32, 3, {2, 2, 3}, TWELVE},
                                  {"shape", TC_I64, 1, {2}, I64(4, 7)}};
    expect_refused("bsr", uneven, TC_INVALID, "s.values");
    const struct part nothing[] = {{"crow_indices", TC_I64, 1, {3}, I64(0, 1, 2)},
                                   {"col_indices", TC_I64, 1, {2}, I64(1, 0)},
                                   {"values", TC_F32, 3, {2, 0, 3}, ""},
                                   {"shape", TC_I64, 1, {2}, I64(4, 6)}};
    expect_refused("bsr", nothing, TC_INVALID, "s.values");
}

Test(densify, dtypes_without_a_zero_or_a_sum) {
    struct part parts[] = {{"indices", TC_I64, 2, {1, 2}, I64(1, 1)},
                           {"values", TC_F8_E4M3, 1, {2}, U8(1, 2)},
                           {"shape", TC_I64, 1, {1}, I64(2)},
                           {0}};
    expect_refused("coo", parts, TC_UNSUPPORTED, "s.values");
    parts[0].bytes = I64(0, 1);
    expect_dense("coo", parts, U8(1, 2), 2);
    parts[1].dtype = TC_F8_E8M0;
    expect_refused("coo", parts, TC_UNSUPPORTED, "s.values");
    parts[1].dtype = TC_F4;
    expect_refused("coo", parts, TC_UNSUPPORTED, "s.values");
}

/* The first parts were found while there was memory for their names. */
Test(densify, without_memory_to_find_a_part) {
    const struct part parts[] = {{"indices", TC_I64, 2, {1, 1}, I64(1)},
                                 {"values", TC_F32, 1, {1}, F32(1)},
                                 {"shape", TC_I64, 1, {1}, I64(2)},
                                 {0}};
    struct tc_sparse sparse;
    void **taken = NULL;
    cr_assert(make("coo", parts));
    cr_assert(tc_sparse_of(&reader->table, &reader->table.tensors[0], &sparse));
    tc_memory_limit(1);
    for (size_t size = TC_MEMORY_BUFFERS; size >= sizeof *taken; size /= 2)
        for (void **piece; (piece = malloc(size)); taken = piece)
            *piece = taken;
    cr_assert_null(tc_densify_make(reader, &sparse, &arena, &error));
    cr_assert_str_eq(error.code, "memory-limit", "%s", error.message);
    while (taken) {
        void **next = *taken;
        free(taken);
        taken = next;
    }
}
