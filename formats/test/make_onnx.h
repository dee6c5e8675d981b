/* ONNX models for tests, made field by field, and what is expected of them. */
#ifndef TCONV_FORMATS_TEST_MAKE_ONNX_H
#define TCONV_FORMATS_TEST_MAKE_ONNX_H

#include <criterion/criterion.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "formats/test/messages.h"
#include "formats/test/support.h"

#define P(literal) (literal), sizeof(literal) - 1

static inline struct tc_reader *open_model(struct message model) {
    test_write(test_path("x.onnx"), model.bytes, model.length);
    struct tc_reader *reader = test_open(test_path("x.onnx"));
    cr_assert_str_eq(reader->backend->name, "onnx");
    return reader;
}

static inline void refused(struct message model, enum tc_class class, const char *code,
                           const char *message) {
    enum tc_class got = test_open_class("x.onnx", model.bytes, model.length);
    cr_assert_eq(got, class, "class %d: %s (expected: %s)", (int)got, test_error.message, message);
    cr_assert_str_eq(test_error.code, code, "%s", test_error.message);
    cr_assert(strstr(test_error.message, message), "%s (expected: %s)", test_error.message,
              message);
}

/* A model of one initializer, w, of this type, shape and data. */
#define ONE(...) MODEL(GRAPH(INITIALIZER(NAME("w"), __VA_ARGS__)))

static inline void expect_names(struct tc_reader *reader, const char *const *names) {
    size_t count = 0;
    for (; names[count]; count++) {
        cr_assert_lt(count, reader->table.count, "there is no %s", names[count]);
        struct tc_text name = reader->table.tensors[count].name;
        cr_assert(tc_text_equal(name, tc_text_of(names[count])), "%.*s (expected %s)",
                  (int)name.length, name.bytes, names[count]);
    }
    cr_assert_eq(reader->table.count, count);
}
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline bool has_extent(struct tc_reader *reader, const char *name,
                              struct tc_extent *extent) {
    return tc_reader_extent(reader, test_find(reader, name), extent);
}

/* ONNX's numbers, and the lowest versions that have them. */
static const struct kind {
    unsigned data_type;
    enum tc_dtype dtype;
    unsigned ir;
    unsigned opset;
} kinds[] = {
    {1, TC_F32, 4, 9},
    {2, TC_U8, 4, 9},
    {3, TC_I8, 4, 9},
    {4, TC_U16, 4, 9},
    {5, TC_I16, 4, 9},
    {6, TC_I32, 4, 9},
    {7, TC_I64, 4, 9},
    {9, TC_BOOL, 4, 9},
    {10, TC_F16, 4, 9},
    {11, TC_F64, 4, 9},
    {12, TC_U32, 4, 9},
    {13, TC_U64, 4, 9},
    {14, TC_C64, 4, 9},
    {15, TC_C128, 4, 9},
    {16, TC_BF16, 4, 13},
    {17, TC_F8_E4M3, 9, 19},
    {18, TC_F8_E4M3FNUZ, 9, 19},
    {19, TC_F8_E5M2, 9, 19},
    {20, TC_F8_E5M2FNUZ, 9, 19},
    {21, TC_U4, 10, 21},
    {22, TC_I4, 10, 21},
    {23, TC_F4, 11, 23},
    {24, TC_F8_E8M0, 12, 24},
    {27, TC_F6_E2M3, 14, 28},
    {28, TC_F6_E3M2, 14, 28},
};
#define KINDS (sizeof kinds / sizeof *kinds)

#define MINUS(value) ((uint64_t)(int64_t) - (value))

#define U8(value) DIM(1), TYPE(2), RAW(value)

#define I64S(...) bytes(9, (int64_t[]){__VA_ARGS__}, sizeof(int64_t[]){__VA_ARGS__})
#define VALUES INSIDE(1, NAME("s"), DIM(3), TYPE(1), bytes(9, (float[]){1, 2, 3}, 12))
#define COORDINATES INSIDE(2, DIM(3), DIM(2), TYPE(7), I64S(0, 1, 1, 0, 1, 2))
#define LINEAR INSIDE(2, DIM(3), TYPE(7), I64S(1, 3, 5))
#define SHAPE number(3, 2), number(3, 3)

#endif
