/* ONNX models, made here field by field. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/onnx/options.h"
#include "formats/protobuf/wire.h"
#include "formats/registry.h"
#include "formats/test/messages.h"
#include "formats/test/support.h"

TestSuite(onnx, .init = test_folder_make, .fini = test_folder_remove, .timeout = 60);

#define P(literal) (literal), sizeof(literal) - 1

static struct tc_reader *open_model(struct message model) {
    test_write(test_path("x.onnx"), model.bytes, model.length);
    struct tc_reader *reader = test_open(test_path("x.onnx"));
    cr_assert_str_eq(reader->backend->name, "onnx");
    return reader;
}

static void refused(struct message model, enum tc_class class, const char *code,
                    const char *message) {
    enum tc_class got = test_open_class("x.onnx", model.bytes, model.length);
    cr_assert_eq(got, class, "class %d: %s (expected: %s)", (int)got, test_error.message, message);
    cr_assert_str_eq(test_error.code, code, "%s", test_error.message);
    cr_assert(strstr(test_error.message, message), "%s (expected: %s)", test_error.message,
              message);
}

/* A model of one initializer, w, of this type, shape and data. */
#define ONE(...) MODEL(GRAPH(INITIALIZER(NAME("w"), __VA_ARGS__)))

static void expect_names(struct tc_reader *reader, const char *const *names) {
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

static bool has_extent(struct tc_reader *reader, const char *name, struct tc_extent *extent) {
    return tc_reader_extent(reader, test_find(reader, name), extent);
}

/* Whether warnings or losses have these words. */
/* Values */

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

Test(onnx, every_dtype_in_raw_data) {
    unsigned char data[64];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(3 * i + 1);
    tc_dtype_set seen = 0;
    for (size_t i = 0; i < KINDS; i++) {
        size_t nbytes = tc_dtype_bits(kinds[i].dtype) * 4 / 8;
        struct tc_reader *reader =
            open_model(ONE(DIM(2), DIM(2), TYPE(kinds[i].data_type), bytes(9, data, nbytes)));
        test_expect(reader, "w", kinds[i].dtype, "[2,2]", data, nbytes);
        struct tc_extent extent;
        cr_assert(has_extent(reader, "w", &extent) && extent.input == reader->input);
        tc_reader_close(reader);
        seen |= TC_SET(kinds[i].dtype);
    }
    cr_assert_eq(seen, tc_registry_named("onnx")->dtypes, "the test lacks a dtype");
    cr_assert_eq(seen, tc_registry_named("pb")->dtypes);
}

Test(onnx, scalars_and_nothing) {
    struct tc_reader *reader =
        open_model(MODEL(GRAPH(INITIALIZER(TYPE(2), NAME("scalar"), RAW("\7")),
                               INITIALIZER(DIM(3), DIM(0), TYPE(1), NAME("none")),
                               INITIALIZER(DIM(0), TYPE(7), NAME("empty"), RAW("")),
                               INITIALIZER(DIM(0), TYPE(6), NAME("list"), bytes(5, "", 0)))));
    TEST_EXPECT(reader, "scalar", TC_U8, "[]", uint8_t, 7);
    test_expect(reader, "none", TC_F32, "[3,0]", "", 0);
    test_expect(reader, "empty", TC_I64, "[0]", "", 0);
    test_expect(reader, "list", TC_I32, "[0]", "", 0);
    tc_reader_close(reader);
    reader = open_model(MODEL(GRAPH(text(2, "empty"))));
    cr_assert_eq(reader->table.count, 0);
    tc_reader_close(reader);
}

/* Dimensions too may stand one by one, in a list, or both. */
Test(onnx, dims_packed_and_not) {
    struct tc_reader *reader = open_model(
        MODEL(GRAPH(INITIALIZER(PACKED(1, varint(2), varint(1)), TYPE(2), NAME("a"), RAW("\1\2")),
                    INITIALIZER(DIM(1), PACKED(1, varint(1), varint(2)), DIM(1), TYPE(2), NAME("b"),
                                RAW("\1\2")))));
    TEST_EXPECT(reader, "a", TC_U8, "[2,1]", uint8_t, 1, 2);
    TEST_EXPECT(reader, "b", TC_U8, "[1,1,2,1]", uint8_t, 1, 2);
    tc_reader_close(reader);
}

#define MINUS(value) ((uint64_t)(int64_t) - (value))

Test(onnx, typed_fields) {
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INITIALIZER(NAME("f32"), DIM(2), TYPE(1), FLOAT(4, 1.5f), FLOAT(4, -2)),
              INITIALIZER(NAME("f64"), DIM(2), TYPE(11), DOUBLE(10, 1.5), DOUBLE(10, -2)),
              INITIALIZER(NAME("i32"), DIM(2), TYPE(6), number(5, 7), number(5, MINUS(7))),
              INITIALIZER(NAME("i64"), DIM(1), TYPE(7), number(7, MINUS(1))),
              INITIALIZER(NAME("u32"), DIM(1), TYPE(12), number(11, UINT32_MAX)),
              INITIALIZER(NAME("u64"), DIM(1), TYPE(13), number(11, UINT64_MAX)),
              INITIALIZER(NAME("bool"), DIM(2), TYPE(9), PACKED(5, varint(1), varint(0))),
              INITIALIZER(NAME("i8"), DIM(2), TYPE(3), PACKED(5, varint(MINUS(128)), varint(127))),
              INITIALIZER(NAME("u8"), DIM(1), TYPE(2), number(5, 255)),
              INITIALIZER(NAME("i16"), DIM(1), TYPE(5), number(5, MINUS(300))),
              INITIALIZER(NAME("u16"), DIM(1), TYPE(4), number(5, 65535)),
              INITIALIZER(NAME("f16"), DIM(1), TYPE(10), number(5, 0x3C00)),
              INITIALIZER(NAME("bf16"), DIM(1), TYPE(16), number(5, 0xFF80)),
              INITIALIZER(NAME("f8"), DIM(2), TYPE(17), PACKED(5, varint(1), varint(255))),
              INITIALIZER(NAME("i4"), DIM(4), TYPE(22), PACKED(5, varint(0x21), varint(0xF7))),
              INITIALIZER(NAME("f4"), DIM(2), TYPE(23), number(5, 0x9A)),
              INITIALIZER(NAME("c64"), DIM(1), TYPE(14), FLOAT(4, 1), FLOAT(4, 2)),
              INITIALIZER(NAME("c128"), DIM(1), TYPE(15), DOUBLE(10, 3), DOUBLE(10, 4)))));
    TEST_EXPECT(reader, "f32", TC_F32, "[2]", float, 1.5f, -2);
    TEST_EXPECT(reader, "f64", TC_F64, "[2]", double, 1.5, -2);
    TEST_EXPECT(reader, "i32", TC_I32, "[2]", int32_t, 7, -7);
    TEST_EXPECT(reader, "i64", TC_I64, "[1]", int64_t, -1);
    TEST_EXPECT(reader, "u32", TC_U32, "[1]", uint32_t, UINT32_MAX);
    TEST_EXPECT(reader, "u64", TC_U64, "[1]", uint64_t, UINT64_MAX);
    TEST_EXPECT(reader, "bool", TC_BOOL, "[2]", uint8_t, 1, 0);
    TEST_EXPECT(reader, "i8", TC_I8, "[2]", int8_t, -128, 127);
    TEST_EXPECT(reader, "u8", TC_U8, "[1]", uint8_t, 255);
    TEST_EXPECT(reader, "i16", TC_I16, "[1]", int16_t, -300);
    TEST_EXPECT(reader, "u16", TC_U16, "[1]", uint16_t, 65535);
    TEST_EXPECT(reader, "f16", TC_F16, "[1]", uint16_t, 0x3C00);
    TEST_EXPECT(reader, "bf16", TC_BF16, "[1]", uint16_t, 0xFF80);
    TEST_EXPECT(reader, "f8", TC_F8_E4M3, "[2]", uint8_t, 1, 255);
    TEST_EXPECT(reader, "i4", TC_I4, "[4]", uint8_t, 0x21, 0xF7);
    TEST_EXPECT(reader, "f4", TC_F4, "[2]", uint8_t, 0x9A);
    TEST_EXPECT(reader, "c64", TC_C64, "[1]", float, 1, 2);
    TEST_EXPECT(reader, "c128", TC_C128, "[1]", double, 3, 4);
    tc_reader_close(reader);
}

Test(onnx, packed_unpacked_and_mixed_are_the_same) {
    static const float two[] = {2, 3};
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INITIALIZER(NAME("single"), DIM(3), TYPE(1), FLOAT(4, 1), FLOAT(4, 2), FLOAT(4, 3)),
              INITIALIZER(NAME("packed"), DIM(3), TYPE(1), bytes(4, (float[]){1, 2, 3}, 12)),
              INITIALIZER(NAME("mixed"), DIM(3), TYPE(1), FLOAT(4, 1), bytes(4, two, 8)),
              INITIALIZER(NAME("pieces"), FLOAT(4, 1), bytes(4, two, 4), DIM(3), bytes(4, "", 0),
                          TYPE(1), bytes(4, two + 1, 4), RAW("")))));
    static const char *const names[] = {"single", "packed", "mixed", "pieces"};
    struct tc_extent extent;
    for (size_t i = 0; i < 4; i++)
        TEST_EXPECT(reader, names[i], TC_F32, "[3]", float, 1, 2, 3);
    cr_assert(has_extent(reader, "packed", &extent), "as good as raw");
    cr_assert(!has_extent(reader, "mixed", &extent));
    tc_reader_close(reader);
}

Test(onnx, values_that_do_not_fit) {
    refused(ONE(DIM(1), TYPE(9), number(5, 256)), TC_INVALID, "protobuf", "range");
    refused(ONE(DIM(2), TYPE(7), number(7, 1)), TC_INVALID, "protobuf", "fewer");
    refused(ONE(DIM(1), TYPE(7), number(7, 1), number(7, 2)), TC_INVALID, "protobuf", "more");
    refused(ONE(DIM(1), TYPE(1), bytes(4, "\1\2\3", 3)), TC_INVALID, "protobuf", "inside a number");
}

Test(onnx, one_place_for_the_data) {
    refused(ONE(DIM(1), TYPE(1), RAW("\1\2\3")), TC_INVALID, "protobuf", "3 bytes");
    refused(ONE(DIM(1), TYPE(1), RAW("\1\2\3\4\5")), TC_INVALID, "protobuf", "5 bytes");
    refused(ONE(DIM(1), TYPE(1)), TC_INVALID, "protobuf", "0 bytes");
    refused(ONE(DIM(0), TYPE(1), RAW("\1")), TC_INVALID, "protobuf", "1 bytes");
    refused(ONE(DIM(1), TYPE(1), RAW("\1\2\3\4"), FLOAT(4, 1)), TC_INVALID, "protobuf",
            "two places");
    refused(ONE(DIM(1), TYPE(1), RAW("\1\2\3\4"), OUTSIDE, EXTERNAL("location", "x")), TC_INVALID,
            "protobuf", "two places");
    refused(ONE(DIM(1), TYPE(1), FLOAT(4, 1), number(5, 1)), TC_INVALID, "protobuf", "two fields");
    refused(ONE(DIM(1), TYPE(1), number(5, 1)), TC_INVALID, "protobuf", "another type");
    refused(ONE(DIM(1), TYPE(7), number(5, 1)), TC_INVALID, "protobuf", "another type");
    refused(ONE(DIM(1), TYPE(12), number(5, 1)), TC_INVALID, "protobuf", "another type");
    refused(ONE(DIM(1), TYPE(6), number(7, 1)), TC_INVALID, "protobuf", "another type");
    refused(ONE(DIM(1), TYPE(11), FLOAT(4, 1)), TC_INVALID, "protobuf", "another type");
    refused(ONE(DIM(1), TYPE(1), number(4, 1)), TC_INVALID, "protobuf", "wire type");
    refused(ONE(DIM(1), TYPE(1), EXTERNAL("location", "x"), RAW("\1\2\3\4")), TC_INVALID,
            "protobuf", "denies");
    refused(ONE(DIM(1), TYPE(2), RAW("\1"), RAW("\1")), TC_INVALID, "protobuf", "twice");
    refused(ONE(DIM(1), TYPE(2), TYPE(2), RAW("\1")), TC_INVALID, "protobuf", "twice");
    refused(ONE(NAME("w"), DIM(1), TYPE(2), RAW("\1")), TC_INVALID, "protobuf", "twice");
}

Test(onnx, shapes_that_are_none) {
    refused(ONE(DIM(MINUS(1)), TYPE(1), RAW("")), TC_INVALID, "protobuf", "negative");
    refused(ONE(PACKED(1, varint(1), varint(UINT64_MAX)), TYPE(1), RAW("")), TC_INVALID, "protobuf",
            "negative");
    refused(ONE(DIM(INT64_MAX), DIM(INT64_MAX), TYPE(1), RAW("")), TC_INVALID, "shape-overflow",
            "");
    refused(ONE(DIM(INT64_MAX), DIM(INT64_MAX), DIM(0), TYPE(1), RAW("")), TC_INVALID,
            "shape-overflow", "");
    refused(ONE(DIM(0), DIM(INT64_MAX), DIM(INT64_MAX), TYPE(1), RAW("")), TC_INVALID,
            "shape-overflow", "");
    struct message dims = {0};
    for (int i = 0; i < 64; i++)
        add_bytes(&dims, "\10\1", 2);
    struct tc_reader *reader = open_model(ONE(dims, TYPE(2), RAW("\7")));
    cr_assert_eq(test_find(reader, "w")->rank, 64);
    tc_reader_close(reader);
    refused(ONE(dims, DIM(1), TYPE(2), RAW("\7")), TC_UNSUPPORTED, "rank", "65");
}

/* ONNX fills up the last byte of packed elements; no other format can. */
Test(onnx, packed_elements_that_leave_bits) {
    refused(ONE(DIM(3), TYPE(22), RAW("\1\2")), TC_UNSUPPORTED, "packed-shape", "");
    refused(ONE(DIM(2), TYPE(27), RAW("\1\2")), TC_UNSUPPORTED, "packed-shape", "");
    refused(ONE(DIM(4), TYPE(27), number(5, 1)), TC_UNSUPPORTED, "dtype", "raw_data");
}

Test(onnx, types_that_are_not_read) {
    static const unsigned types[] = {0, 25, 26, 29, 99};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        refused(ONE(DIM(1), TYPE(types[i]), RAW("\1")), TC_UNSUPPORTED, "dtype", "data type");
    refused(ONE(DIM(1), TYPE(UINT64_MAX), RAW("\1")), TC_UNSUPPORTED, "dtype", "data type");
    refused(ONE(DIM(1), TYPE(8), text(6, "a")), TC_UNSUPPORTED, "dtype", "strings");
    refused(ONE(DIM(1), TYPE(1), INSIDE(3, number(1, 0), number(2, 1)), RAW("\0\0\0\0")),
            TC_UNSUPPORTED, "segment", "segments");
}

/* What says no type at all was cut short. */
Test(onnx, a_tensor_without_a_type) {
    refused(ONE(DIM(1), RAW("\1")), TC_INVALID, "protobuf", "data type");
}

/* External data */

Test(onnx, external_data) {
    test_write(test_path("x.data"), "0123456789", 10);
    cr_assert_eq(mkdir(test_path("sub"), 0700), 0);
    test_write(test_path("sub/y"), "abcd", 4);
    cr_assert_eq(symlink("sub/y", test_path("link")), 0);
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INITIALIZER(NAME("part"), DIM(3), TYPE(2), OUTSIDE, EXTERNAL("location", "x.data"),
                          EXTERNAL("offset", "4"), EXTERNAL("length", "3")),
              INITIALIZER(NAME("whole"), DIM(10), TYPE(3), EXTERNAL("location", "x.data"), OUTSIDE),
              INITIALIZER(NAME("end"), DIM(0), TYPE(2), EXTERNAL("location", "x.data"), OUTSIDE,
                          EXTERNAL("offset", "10")),
              INITIALIZER(NAME("below"), DIM(4), TYPE(2), EXTERNAL("location", "sub/y"), OUTSIDE,
                          EXTERNAL("checksum", "0123456789abcdef0123456789abcdef01234567")),
              INITIALIZER(NAME("linked"), DIM(2), TYPE(2), EXTERNAL("location", "link"), OUTSIDE,
                          EXTERNAL("offset", "2"), RAW("")),
              INITIALIZER(NAME("inside"), DIM(1), TYPE(2), RAW("\1"), number(14, 0)))));
    test_expect(reader, "part", TC_U8, "[3]", "456", 3);
    test_expect(reader, "whole", TC_I8, "[10]", "0123456789", 10);
    test_expect(reader, "end", TC_U8, "[0]", "", 0);
    test_expect(reader, "below", TC_U8, "[4]", "abcd", 4);
    test_expect(reader, "linked", TC_U8, "[2]", "cd", 2);
    TEST_EXPECT(reader, "inside", TC_U8, "[1]", uint8_t, 1);
    struct tc_extent extent;
    cr_assert(has_extent(reader, "part", &extent));
    cr_assert_neq(extent.input, reader->input);
    cr_assert_eq(extent.offset, 4);
    cr_assert_eq(reader->companion_count, 3, "each file is opened once");
    cr_assert_eq(reader->size, reader->input->size + 10 + 4 + 4);
    tc_reader_close(reader);
}

#define BESIDE(...) ONE(DIM(2), TYPE(2), OUTSIDE, __VA_ARGS__)

Test(onnx, external_data_in_other_places) {
    static const char *const names[] = {"",      "..",       "../y",   "a/../../y",     "a/..",
                                        "/y",    "/",        "a/../y", "C:\\y",         "C:y",
                                        "..\\y", "a\\..\\y", "//y",    "a/b/../../../y"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        refused(BESIDE(EXTERNAL("location", names[i])), TC_UNSAFE, "external-data", "outside");
    refused(BESIDE(INSIDE(13, text(1, "location"), bytes(2, "y\0z", 3))), TC_UNSAFE,
            "external-data", "outside");
    cr_assert_eq(mkdir(test_path("folder"), 0700), 0);
    cr_assert_eq(mkfifo(test_path("pipe"), 0600), 0);
    cr_assert_eq(symlink("/dev/zero", test_path("zero")), 0);
    refused(BESIDE(EXTERNAL("location", "folder")), TC_UNSAFE, "external-data", "no plain file");
    refused(BESIDE(EXTERNAL("location", ".")), TC_UNSAFE, "external-data", "no plain file");
    refused(BESIDE(EXTERNAL("location", "pipe")), TC_UNSAFE, "external-data", "no plain file");
    refused(BESIDE(EXTERNAL("location", "zero")), TC_UNSAFE, "external-data", "no plain file");
    struct message missing = BESIDE(EXTERNAL("location", "y"));
    cr_assert_eq(test_open_class("x.onnx", missing.bytes, missing.length), TC_IO);
    cr_assert(strstr(test_error.file, "/y"), "%s", test_error.file);
    /* Names that only look like a way up. */
    test_write(test_path("..."), "ab", 2);
    test_write(test_path("..y"), "ab", 2);
    test_write(test_path("y.."), "ab", 2);
    test_write(test_path("folder/z"), "ab", 2);
    static const char *const good[] = {"...", "..y", "y..", "./y..", "folder//z"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tc_reader *reader = open_model(BESIDE(EXTERNAL("location", good[i])));
        test_expect(reader, "w", TC_U8, "[2]", "ab", 2);
        tc_reader_close(reader);
    }
}

Test(onnx, external_data_that_is_not_there) {
    static const char *const numbers[] = {"-1",
                                          "1e3",
                                          "0x10",
                                          "",
                                          " 1",
                                          "1 ",
                                          "+1",
                                          "9223372036854775808",
                                          "18446744073709551616",
                                          "1.0",
                                          "00000000000000000001"};
    test_write(test_path("y"), "abcd", 4);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("offset", numbers[i])), TC_INVALID,
                "external-data", "no number");
        refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("length", numbers[i])), TC_INVALID,
                "external-data", "no number");
    }
    refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("offset", "3")), TC_INVALID, "external-data",
            "passes the end");
    refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("offset", "9223372036854775807")),
            TC_INVALID, "external-data", "passes the end");
    refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("length", "3")), TC_INVALID, "external-data",
            "3 bytes");
    refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("length", "1")), TC_INVALID, "external-data",
            "1 bytes");
    refused(BESIDE(EXTERNAL("offset", "0")), TC_INVALID, "external-data", "without a location");
    refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("location", "y")), TC_INVALID, "protobuf",
            "twice");
    refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("offset", "0"), EXTERNAL("offset", "1")),
            TC_INVALID, "protobuf", "twice");
    refused(BESIDE(EXTERNAL("location", "y"), EXTERNAL("basepath", "/etc")), TC_INVALID, "protobuf",
            "unknown key");
    refused(ONE(DIM(2), TYPE(2), number(14, 2), EXTERNAL("location", "y")), TC_INVALID, "protobuf",
            "data_location");
    refused(BESIDE(EXTERNAL("location", "y"), number(14, 1)), TC_INVALID, "protobuf", "twice");
}

/* Nodes */

Test(onnx, constants) {
    struct tc_reader *reader = open_model(MODEL(GRAPH(
        NODE(OUTPUT("t"), NODE_NAME("not this"), OPERATOR("Constant"),
             ATTRIBUTE("value", INSIDE(5, DIM(1), TYPE(2), NAME("nor this"), RAW("\7")))),
        NODE(OUTPUT("f"), OPERATOR("Constant"), ATTRIBUTE("value_float", FLOAT(2, 1.5f))),
        NODE(OUTPUT("fs"), OPERATOR("Constant"),
             ATTRIBUTE("value_floats", FLOAT(7, 1), FLOAT(7, 2))),
        NODE(OUTPUT("i"), OPERATOR("Constant"), ATTRIBUTE("value_int", number(3, MINUS(3)))),
        NODE(OUTPUT("is"), OPERATOR("Constant"),
             ATTRIBUTE("value_ints", number(8, 4), PACKED(8, varint(5), varint(MINUS(6))))),
        NODE(ATTRIBUTE("value_ints", PACKED(8, varint(1))), OPERATOR("Constant"), OUTPUT("late")),
        NODE(OUTPUT("x"), OPERATOR("Conv"), ATTRIBUTE("kernel_shape", number(8, 3)),
             ATTRIBUTE("alpha", FLOAT(2, 1))),
        INITIALIZER(DIM(1), TYPE(2), NAME("w"), RAW("\1")))));
    expect_names(reader, NAMES("t", "f", "fs", "i", "is", "late", "w"));
    TEST_EXPECT(reader, "t", TC_U8, "[1]", uint8_t, 7);
    TEST_EXPECT(reader, "f", TC_F32, "[]", float, 1.5f);
    TEST_EXPECT(reader, "fs", TC_F32, "[2]", float, 1, 2);
    TEST_EXPECT(reader, "i", TC_I64, "[]", int64_t, -3);
    TEST_EXPECT(reader, "is", TC_I64, "[3]", int64_t, 4, 5, -6);
    TEST_EXPECT(reader, "late", TC_I64, "[1]", int64_t, 1);
    cr_assert(tc_notes_tell(&reader->notes, TC_WARNING, "graph of 7 nodes"));
    tc_reader_close(reader);
}

/* As helper.make_node writes it: a list of no numbers has its type and no field. */
Test(onnx, an_empty_constant) {
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(NODE(OUTPUT("none"), OPERATOR("Constant"), ATTRIBUTE("value_ints", number(20, 7))),
              NODE(OUTPUT("no"), OPERATOR("Constant"), ATTRIBUTE("value_floats", number(20, 6))))));
    expect_names(reader, NAMES("none", "no"));
    test_expect(reader, "none", TC_I64, "[0]", "", 0);
    test_expect(reader, "no", TC_F32, "[0]", "", 0);
    tc_reader_close(reader);
}

/* As onnx.numpy_helper reads them. */
Test(onnx, values_outside_the_range_wrap) {
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INITIALIZER(DIM(1), TYPE(3), number(5, 300), NAME("i8")),
              INITIALIZER(DIM(1), TYPE(2), number(5, MINUS(1)), NAME("u8")),
              INITIALIZER(DIM(1), TYPE(10), number(5, 70000), NAME("f16")),
              INITIALIZER(DIM(1), TYPE(9), number(5, 2), NAME("bool")),
              INITIALIZER(DIM(1), TYPE(12), number(11, (UINT64_C(1) << 32) + 5), NAME("u32")),
              INITIALIZER(DIM(2), TYPE(21), number(5, 300), NAME("u4")),
              INITIALIZER(DIM(1), TYPE(6), number(5, (UINT64_C(1) << 32) + 5), NAME("i32")))));
    TEST_EXPECT(reader, "i8", TC_I8, "[1]", int8_t, 44);
    TEST_EXPECT(reader, "u8", TC_U8, "[1]", uint8_t, 255);
    TEST_EXPECT(reader, "f16", TC_F16, "[1]", uint16_t, 4464);
    TEST_EXPECT(reader, "bool", TC_BOOL, "[1]", uint8_t, 1);
    TEST_EXPECT(reader, "u32", TC_U32, "[1]", uint32_t, 5);
    TEST_EXPECT(reader, "u4", TC_U4, "[2]", uint8_t, 44);
    TEST_EXPECT(reader, "i32", TC_I32, "[1]", int32_t, 5);
    cr_assert(tc_notes_tell(&reader->notes, TC_WARNING, "7 tensors have values outside"));
    tc_reader_close(reader);
}

Test(onnx, constants_of_text_are_left_out_and_told) {
    struct tc_reader *reader = open_model(
        MODEL(GRAPH(INITIALIZER(TYPE(2), NAME("w"), RAW("\7")),
                    NODE(OUTPUT("t"), OPERATOR("Constant"),
                         ATTRIBUTE("value", INSIDE(5, DIM(1), TYPE(8), text(6, "text")))))));
    expect_names(reader, NAMES("w"));
    cr_assert_eq(tc_notes_count(&reader->notes, TC_LOSS, TC_KIND_SKIPPED), 1);
    cr_assert(tc_text_equal(reader->notes.groups[0].names[0], TC_TEXT("t")));
    /* Where nothing else was left it depends on what was. */
    for (int pickle = 0; pickle < 2; pickle++) {
        struct tc_error error = {0};
        reader->skipped_pickle = pickle;
        cr_assert_not(tc_reader_refuse_rest(reader, &error));
        cr_assert_eq(error.class, pickle ? TC_UNSAFE : TC_UNSUPPORTED);
        cr_assert_str_eq(error.code, "nothing-left");
        cr_assert_str_eq(error.tensor, "t");
    }
    tc_reader_close(reader);
}

#define TEXT(name) INITIALIZER(DIM(1), TYPE(8), text(6, "text"), NAME(name))

Test(onnx, text_is_left_out_and_told) {
    struct message kept = INITIALIZER(DIM(1), TYPE(2), RAW("\1"), NAME("kept"));
    const struct message odd[] = {
        NODE(OUTPUT("odd"), OPERATOR("Constant"),
             ATTRIBUTE("value", INSIDE(5, DIM(1), TYPE(8), text(6, "text")))),
        NODE(OUTPUT("odd"), OPERATOR("Constant"), ATTRIBUTE("value_string", text(4, "text"))),
        NODE(OUTPUT("odd"), OPERATOR("Constant"),
             ATTRIBUTE("value_strings", text(9, "a"), text(9, "b"))),
        TEXT("odd"),
        INITIALIZER(DIM(1), TYPE(99), NAME("odd")),
        INITIALIZER(DIM(1), TYPE(1), INSIDE(3, number(1, 0)), NAME("odd")),
        INITIALIZER(DIM(3), TYPE(21), RAW("\1\2"), NAME("odd")),
        INSIDE(15, INSIDE(1, DIM(1), TYPE(8), text(6, "t"), NAME("odd")), number(3, 1)),
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct tc_reader *reader = open_model(MODEL(GRAPH(odd[i], kept)));
        cr_assert_eq(reader->table.count, 1, "case %zu", i);
        cr_assert_eq(tc_notes_count(&reader->notes, TC_LOSS, TC_KIND_SKIPPED), 1, "case %zu", i);
        cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "odd"), "case %zu", i);
        tc_reader_close(reader);
        cr_assert_eq(
            test_open_class("x.onnx", MODEL(GRAPH(odd[i])).bytes, MODEL(GRAPH(odd[i])).length),
            TC_UNSUPPORTED, "case %zu: %s", i, test_error.message);
    }
}

#define U8(value) DIM(1), TYPE(2), RAW(value)

Test(onnx, tensors_in_other_attributes) {
    struct tc_reader *reader = open_model(
        MODEL(GRAPH(NODE(OUTPUT("out"), NODE_NAME("scale"), OPERATOR("X"),
                         ATTRIBUTE("table", INSIDE(5, U8("\1"), NAME("inner")))),
                    NODE(OUTPUT("out2"), OPERATOR("Y"), ATTRIBUTE("table", INSIDE(5, U8("\2")))),
                    NODE(NODE_NAME("list"), OPERATOR("Z"),
                         ATTRIBUTE("tensors", INSIDE(10, U8("\3")), INSIDE(10, U8("\4")))))));
    expect_names(reader, NAMES("scale.table", "out2.table", "list.tensors.0", "list.tensors.1"));
    TEST_EXPECT(reader, "scale.table", TC_U8, "[1]", uint8_t, 1);
    TEST_EXPECT(reader, "list.tensors.1", TC_U8, "[1]", uint8_t, 4);
    tc_reader_close(reader);
}

Test(onnx, what_is_in_a_subgraph_has_its_path) {
    struct message constant =
        NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("value_int", number(3, 5)));
    struct message inner = JOIN(INITIALIZER(U8("\2"), NAME("w")), constant);
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INITIALIZER(U8("\1"), NAME("w")), constant,
              NODE(NODE_NAME("if"), OPERATOR("If"), OUTPUT("y"),
                   ATTRIBUTE("then_branch", INSIDE(6, inner)),
                   ATTRIBUTE("else_branch", INSIDE(6, INITIALIZER(U8("\3"), NAME("w")),
                                                   NODE(OPERATOR("Loop"), OUTPUT("z"),
                                                        ATTRIBUTE("body", INSIDE(6, inner)))))),
              NODE(NODE_NAME("many"), ATTRIBUTE("graphs", INSIDE(11, inner), INSIDE(11, inner))),
              INITIALIZER(U8("\4"), NAME("last")))));
    expect_names(reader,
                 NAMES("w", "c", "if.then_branch.w", "if.then_branch.c", "if.else_branch.w",
                       "if.else_branch.z.body.w", "if.else_branch.z.body.c", "many.graphs.0.w",
                       "many.graphs.0.c", "many.graphs.1.w", "many.graphs.1.c", "last"));
    TEST_EXPECT(reader, "if.else_branch.w", TC_U8, "[1]", uint8_t, 3);
    TEST_EXPECT(reader, "if.else_branch.z.body.c", TC_I64, "[]", int64_t, 5);
    tc_reader_close(reader);
}

Test(onnx, functions) {
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(text(2, "g"), INITIALIZER(U8("\1"), NAME("w"))),
        INSIDE(25, text(1, "Gelu"), text(10, "local"),
               INSIDE(7, OUTPUT("half"), OPERATOR("Constant"),
                      ATTRIBUTE("value_float", FLOAT(2, 0.5f))),
               INSIDE(7, OUTPUT("o"), NODE_NAME("if"),
                      ATTRIBUTE("then_branch", INSIDE(6, INITIALIZER(U8("\2"), NAME("w"))))))));
    expect_names(reader, NAMES("w", "Gelu.half", "Gelu.if.then_branch.w"));
    TEST_EXPECT(reader, "Gelu.half", TC_F32, "[]", float, 0.5f);
    tc_reader_close(reader);
}

Test(onnx, training_is_left_out_and_told) {
    struct tc_reader *reader =
        open_model(MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"))),
                         INSIDE(20, INSIDE(1, INITIALIZER(U8("\1"), NAME("other"))))));
    expect_names(reader, NAMES("w"));
    cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "training"));
    tc_reader_close(reader);
}

Test(onnx, names_twice_or_none) {
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w")), INITIALIZER(U8("\2"), NAME("w")))),
            TC_INVALID, "duplicate-name", "");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1")))), TC_INVALID, "protobuf", "no name");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("")))), TC_INVALID, "protobuf", "no name");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), bytes(8, "\xFF", 1)))), TC_INVALID, "protobuf",
            "UTF-8");
    refused(MODEL(GRAPH(INITIALIZER(U8("\1"), bytes(8, "a\0b", 3)))), TC_INVALID, "name-nul", "");
    refused(
        MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("c")),
                    NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("value_int", number(3, 5))))),
        TC_INVALID, "duplicate-name", "");
}

/* Sparse tensors */

#define I64S(...) bytes(9, (int64_t[]){__VA_ARGS__}, sizeof(int64_t[]){__VA_ARGS__})
#define VALUES INSIDE(1, NAME("s"), DIM(3), TYPE(1), bytes(9, (float[]){1, 2, 3}, 12))
#define COORDINATES INSIDE(2, DIM(3), DIM(2), TYPE(7), I64S(0, 1, 1, 0, 1, 2))
#define LINEAR INSIDE(2, DIM(3), TYPE(7), I64S(1, 3, 5))
#define SHAPE number(3, 2), number(3, 3)

static void expect_sparse(struct tc_reader *reader, const char *parent) {
    char name[64];
    const struct {
        const char *role;
        enum tc_dtype dtype;
        const char *shape;
        const void *bytes;
        size_t nbytes;
    } parts[] = {{"indices", TC_I64, "[2,3]", (int64_t[]){0, 1, 1, 1, 0, 2}, 48},
                 {"values", TC_F32, "[3]", (float[]){1, 2, 3}, 12},
                 {"shape", TC_I64, "[2]", (int64_t[]){2, 3}, 16}};
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", parent, parts[i].role);
        test_expect(reader, name, parts[i].dtype, parts[i].shape, parts[i].bytes, parts[i].nbytes);
        const struct tc_tensor *tensor = test_find(reader, name);
        test_expect_metadata(tensor->metadata, "sparse_role", parts[i].role);
        test_expect_metadata(tensor->metadata, "sparse_parent", parent);
        test_expect_metadata(tensor->metadata, "sparse_layout", "coo");
        struct tc_sparse sparse;
        cr_assert(tc_sparse_of(&reader->table, tensor, &sparse));
    }
}

Test(onnx, sparse_initializers) {
    struct tc_reader *reader = open_model(
        MODEL(GRAPH(INSIDE(15, VALUES, COORDINATES, SHAPE), INITIALIZER(U8("\1"), NAME("w")))));
    expect_names(reader, NAMES("s.indices", "s.values", "s.shape", "w"));
    expect_sparse(reader, "s");
    tc_reader_close(reader);
    reader = open_model(MODEL(GRAPH(INSIDE(15, PACKED(3, varint(2), varint(3)), LINEAR, VALUES))));
    expect_sparse(reader, "s");
    tc_reader_close(reader);
}

Test(onnx, sparse_constants_and_attributes) {
    struct message sparse = JOIN(VALUES, LINEAR, SHAPE);
    struct tc_reader *reader = open_model(MODEL(GRAPH(
        NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("sparse_value", INSIDE(22, sparse))),
        NODE(NODE_NAME("n"), ATTRIBUTE("a", INSIDE(23, sparse), INSIDE(23, sparse)),
             ATTRIBUTE("g", INSIDE(6, INSIDE(15, sparse)))))));
    cr_assert_eq(reader->table.count, 12);
    expect_sparse(reader, "c");
    expect_sparse(reader, "n.a.0");
    expect_sparse(reader, "n.a.1");
    expect_sparse(reader, "n.g.s");
    tc_reader_close(reader);
}

/* Indices in a typed list, several sparse tensors read in turn. */
Test(onnx, sparse_indices_in_a_list) {
    struct message indices = INSIDE(2, DIM(3), TYPE(7), PACKED(7, varint(1), varint(3), varint(5)));
    struct message graph =
        INSIDE(6, INSIDE(15, VALUES, indices, SHAPE), INSIDE(1, text(1, "unused")));
    struct tc_reader *reader = open_model(MODEL(
        GRAPH(INSIDE(15, VALUES, indices, SHAPE), NODE(NODE_NAME("n"), ATTRIBUTE("g", graph)))));
    for (int round = 0; round < 2; round++) {
        expect_sparse(reader, "s");
        expect_sparse(reader, "n.g.s");
    }
    tc_reader_close(reader);
}

Test(onnx, sparse_with_nothing_in_it) {
    struct tc_reader *reader =
        open_model(MODEL(GRAPH(INSIDE(15, INSIDE(1, NAME("s"), DIM(0), TYPE(1), RAW("")),
                                      INSIDE(2, DIM(0), DIM(2), TYPE(7), RAW("")), SHAPE))));
    test_expect(reader, "s.indices", TC_I64, "[2,0]", "", 0);
    test_expect(reader, "s.values", TC_F32, "[0]", "", 0);
    tc_reader_close(reader);
}

Test(onnx, sparse_that_does_not_fit) {
    static const char *const fit = "do not fit";
#define SPARSE(...) MODEL(GRAPH(INSIDE(15, __VA_ARGS__)))
    refused(SPARSE(VALUES, SHAPE), TC_INVALID, "protobuf", "lacks");
    refused(SPARSE(LINEAR, SHAPE), TC_INVALID, "protobuf", "lacks");
    refused(SPARSE(VALUES, VALUES, LINEAR, SHAPE), TC_INVALID, "protobuf", "twice");
    refused(SPARSE(VALUES, LINEAR, COORDINATES, SHAPE), TC_INVALID, "protobuf", "twice");
    refused(SPARSE(VALUES, COORDINATES, number(3, 2)), TC_INVALID, "protobuf", fit);
    refused(SPARSE(VALUES, INSIDE(2, DIM(2), TYPE(7), I64S(1, 3)), SHAPE), TC_INVALID, "protobuf",
            fit);
    refused(SPARSE(VALUES, INSIDE(2, DIM(3), TYPE(6), RAW("\1\0\0\0\2\0\0\0\3\0\0\0")), SHAPE),
            TC_INVALID, "protobuf", fit);
    refused(SPARSE(INSIDE(1, NAME("s"), DIM(3), DIM(1), TYPE(2), RAW("\1\2\3")), LINEAR, SHAPE),
            TC_INVALID, "protobuf", fit);
    refused(SPARSE(VALUES, LINEAR, number(3, MINUS(1))), TC_INVALID, "protobuf", "dimension");
    refused(SPARSE(INSIDE(1, DIM(3), TYPE(2), RAW("\1\2\3")), LINEAR, SHAPE), TC_INVALID,
            "protobuf", "no name");
}

/* An index that lies outside is told when the tensor is made dense, and stays so. */
Test(onnx, sparse_indices_outside) {
    static const int64_t outside[][3] = {{1, 3, 6}, {1, 3, -1}, {1, 3, INT64_MAX}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        struct tc_plan_options options = {.densify = true};
        struct message model =
            SPARSE(VALUES, INSIDE(2, DIM(3), TYPE(7), bytes(9, outside[i], 24)), SHAPE);
        test_write(test_path("x.onnx"), model.bytes, model.length);
        cr_assert_eq(test_convert(test_path("x.onnx"), test_path("out.npz"),
                                  tc_registry_named("npz"), &options, NULL),
                     TC_INVALID, "case %zu: %s", i, test_error.message);
    }
}

/* Metadata */

Test(onnx, metadata_of_the_model_and_of_tensors) {
    struct tc_reader *reader = open_model(
        MODEL(PAIR(14, "k", "v"), GRAPH(INITIALIZER(U8("\1"), NAME("w"), PAIR(16, "unit", "m"))),
              PAIR(14, "", "empty"), PAIR(14, "b", "")));
    cr_assert_eq(reader->table.metadata.count, 3);
    test_expect_metadata(&reader->table.metadata, "k", "v");
    test_expect_metadata(&reader->table.metadata, "", "empty");
    test_expect_metadata(&reader->table.metadata, "b", "");
    test_expect_metadata(test_find(reader, "w")->metadata, "unit", "m");
    tc_reader_close(reader);
    struct message graph = GRAPH(INITIALIZER(U8("\1"), NAME("w")));
    struct message twice = MODEL(graph, PAIR(14, "k", "v"), PAIR(14, "k", "w"));
    cr_assert_eq(test_open_class("x.onnx", twice.bytes, twice.length), TC_INVALID);
    twice = ONE(U8("\1"), PAIR(16, "k", "v"), PAIR(16, "k", "v"));
    cr_assert_eq(test_open_class("x.onnx", twice.bytes, twice.length), TC_INVALID);
    refused(MODEL(graph, PAIR(14, "k", "\xFF")), TC_INVALID, "protobuf", "UTF-8");
}

/* Per-tensor metadata goes under one key and comes back. */
Test(onnx, metadata_comes_back) {
    struct message model =
        MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"), PAIR(16, "unit", "m"))), PAIR(14, "k", "v"));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    const char *out = test_path("out.onnx");
    cr_assert_eq(test_convert(test_path("x.onnx"), out, tc_registry_named("onnx"), NULL, NULL),
                 TC_OK, "%s", test_error.message);
    struct tc_reader *reader = test_open(out);
    cr_assert_eq(reader->table.metadata.count, 1);
    test_expect_metadata(&reader->table.metadata, "k", "v");
    test_expect_metadata(test_find(reader, "w")->metadata, "unit", "m");
    tc_reader_close(reader);
}

/* A text of protobuf may hold any character. */
Test(onnx, metadata_with_a_nul) {
    struct message model = MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"))),
                                 INSIDE(14, bytes(1, "a\0b", 3), bytes(2, "c\0d", 3)));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    for (int round = 0; round < 2; round++) {
        struct tc_reader *reader = test_open(test_path(round ? "out.onnx" : "x.onnx"));
        const struct tc_metadata *metadata = &reader->table.metadata;
        cr_assert_eq(metadata->count, 1);
        cr_assert(tc_text_equal(metadata->pairs[0].key, TC_TEXT("a\0b")), "round %d", round);
        cr_assert(tc_text_equal(metadata->pairs[0].value, TC_TEXT("c\0d")), "round %d", round);
        tc_reader_close(reader);
        cr_assert_eq(test_convert(test_path("x.onnx"), test_path("out.onnx"),
                                  tc_registry_named("onnx"), NULL, NULL),
                     TC_OK, "%s", test_error.message);
    }
}

/* Hostile models */

/* As ONNX's own serializer orders them: versions, graph, opset. */
Test(onnx, a_model_cut_anywhere_is_invalid) {
    struct message model =
        MODEL(text(2, "maker"),
              GRAPH(NODE(OUTPUT("c"), OPERATOR("Constant"), ATTRIBUTE("value_ints", number(8, 1))),
                    text(2, "graph"), INITIALIZER(DIM(1), TYPE(1), FLOAT(4, 1), NAME("w")),
                    INSIDE(15, VALUES, LINEAR, SHAPE)));
    struct tc_reader *reader = open_model(model);
    cr_assert_eq(reader->table.count, 5);
    tc_reader_close(reader);
    for (size_t cut = 0; cut < model.length; cut++)
        cr_assert_eq(test_open_class("cut.onnx", model.bytes, cut), TC_INVALID, "cut at %zu: %s",
                     cut, test_error.message);
}

/* What lacks its opset was cut short. */
Test(onnx, an_opset_is_there) {
    struct message bare = JOIN(number(1, 3), GRAPH(INITIALIZER(U8("\1"), NAME("w"))));
    struct message whole = JOIN(bare, OPSET);
    cr_assert_eq(test_open_class("x.onnx", bare.bytes, bare.length), TC_INVALID);
    cr_assert_eq(test_open_class("x.onnx", whole.bytes, whole.length), TC_OK);
}

Test(onnx, two_models_in_a_row) {
    struct message model = ONE(U8("\1"));
    refused(JOIN(model, model), TC_INVALID, "protobuf", "two graphs");
    refused(JOIN(model, ONE(U8("\1"), PAIR(16, "k", "v"))), TC_INVALID, "protobuf", "two graphs");
    refused(JOIN(model, OPSET, number(1, 8), model), TC_INVALID, "protobuf", "");
}

Test(onnx, a_model_without_a_graph) {
    struct message model = JOIN(number(1, 8), OPSET, text(2, "maker"));
    cr_assert_eq(test_open_class("x.onnx", model.bytes, model.length), TC_INVALID);
    refused(JOIN(number(1, 8), OPSET, number(7, 1)), TC_INVALID, "protobuf", "");
}

static struct message nested(int depth) {
    struct message graph = INITIALIZER(U8("\1"), NAME("w"));
    for (int i = 0; i < depth; i++)
        graph = NODE(INSIDE(5, INSIDE(6, graph)));
    return MODEL(GRAPH(graph));
}

Test(onnx, graphs_in_graphs) {
    struct tc_reader *reader = open_model(nested(100));
    cr_assert_eq(reader->table.count, 1);
    tc_reader_close(reader);
    refused(nested(101), TC_UNSAFE, "depth-limit", "100 deep");
}

Test(onnx, damage_at_any_depth) {
    static const struct {
        const char *bytes;
        size_t length;
    } damages[] = {
        {P("\0\1")},
        {P("\13")},
        {P("\14")},
        {P("\16")},
        {P("\17")},
        {P("\12\144a")},
        {P("\12\377\377\377\377\377\377\377\377\377\1")},
        {P("\10\200\200\200\200\200\200\200\200\200\200\1")},
        {P("\11\1\2\3")},
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct message bad = plain(damages[i].bytes, damages[i].length);
        struct message tensor = INITIALIZER(U8("\1"), NAME("w"));
        const struct message models[] = {
            JOIN(number(1, 8), OPSET, GRAPH(tensor), bad),
            MODEL(GRAPH(tensor, bad)),
            MODEL(GRAPH(INITIALIZER(U8("\1"), NAME("w"), bad))),
            MODEL(GRAPH(tensor, NODE(bad))),
            MODEL(GRAPH(tensor, NODE(ATTRIBUTE("a", bad)))),
            MODEL(GRAPH(tensor, NODE(ATTRIBUTE("a", INSIDE(6, bad))))),
            MODEL(GRAPH(tensor, NODE(ATTRIBUTE("a", INSIDE(5, U8("\1"), bad))))),
            MODEL(GRAPH(INSIDE(15, VALUES, LINEAR, SHAPE, bad))),
            MODEL(GRAPH(tensor), INSIDE(14, bad)),
            MODEL(GRAPH(tensor), INSIDE(25, bad)),
        };
        for (size_t m = 0; m < sizeof models / sizeof *models; m++)
            cr_assert_eq(test_open_class("x.onnx", models[m].bytes, models[m].length), TC_INVALID,
                         "damage %zu in model %zu: %s", i, m, test_error.message);
    }
}

Test(onnx, fields_of_another_type) {
    struct message tensor = INITIALIZER(U8("\1"), NAME("w"));
    const struct message models[] = {
        JOIN(number(1, 8), OPSET, GRAPH(tensor), number(7, 1)),
        MODEL(GRAPH(number(5, 1))),
        MODEL(GRAPH(number(1, 1))),
        MODEL(GRAPH(number(15, 1))),
        MODEL(GRAPH(NODE(number(5, 1)))),
        MODEL(GRAPH(NODE(number(2, 1)))),
        MODEL(GRAPH(NODE(number(4, 1)))),
        MODEL(GRAPH(NODE(ATTRIBUTE("a", number(5, 1))))),
        MODEL(GRAPH(NODE(ATTRIBUTE("a", number(6, 1))))),
        MODEL(
            GRAPH(NODE(OPERATOR("Constant"), OUTPUT("c"), ATTRIBUTE("value_float", number(2, 1))))),
        MODEL(GRAPH(NODE(OPERATOR("Constant"), OUTPUT("c"), ATTRIBUTE("value_int", FLOAT(3, 1))))),
        MODEL(GRAPH(INSIDE(15, VALUES, number(2, 1), SHAPE))),
        MODEL(GRAPH(INSIDE(15, VALUES, LINEAR, FLOAT(3, 1)))),
        MODEL(GRAPH(tensor), number(14, 1)),
        MODEL(GRAPH(tensor), INSIDE(14, number(1, 1))),
        MODEL(GRAPH(tensor), number(25, 1)),
        ONE(U8("\1"), number(8, 1)),
        ONE(DIM(1), TYPE(2), number(9, 1)),
        ONE(DIM(1), text(2, "\2"), RAW("\1")),
        ONE(FLOAT(1, 1), TYPE(2), RAW("\1")),
        ONE(U8("\1"), number(13, 1)),
        ONE(U8("\1"), text(14, "")),
        ONE(U8("\1"), number(16, 1)),
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        cr_assert_eq(test_open_class("x.onnx", models[i].bytes, models[i].length), TC_INVALID,
                     "case %zu: %s", i, test_error.message);
}

/* Every byte changed in turn: it opens or is refused, and nothing breaks. */
Test(onnx, flipped_bytes) {
    struct message model =
        MODEL(PAIR(14, "k", "v"),
              GRAPH(NODE(OUTPUT("c"), OPERATOR("Constant"),
                         ATTRIBUTE("value_ints", number(8, 1), number(8, 2))),
                    INITIALIZER(DIM(2), TYPE(6), number(5, 1), number(5, 2), NAME("w")),
                    INITIALIZER(DIM(2), TYPE(2), OUTSIDE, EXTERNAL("location", "y"), NAME("e")),
                    INSIDE(15, VALUES, COORDINATES, SHAPE)));
    test_write(test_path("y"), "ab", 2);
    for (size_t at = 0; at < model.length; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            struct message changed = model;
            changed.bytes[at] ^= (unsigned char)(1u << bit);
            enum tc_class class = test_open_class("x.onnx", changed.bytes, changed.length);
            cr_assert(class <= TC_IO && class != TC_DIFFERENT && class != TC_USAGE,
                      "byte %zu: class %d", at, (int)class);
            cr_assert(class != TC_IO || strstr(test_error.file, "x.onnx") == NULL, "byte %zu: %s",
                      at, test_error.message);
        }
}

/* Told from other files */

Test(onnx, told_by_content) {
    struct message model = ONE(U8("\7"));
    static const char *const names[] = {"x", "x.pb", "x.bin", "x.ot", "x.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_write(test_path(names[i]), model.bytes, model.length);
        struct tc_reader *reader = test_open(test_path(names[i]));
        cr_assert_str_eq(reader->backend->name, i == 3 ? "ot" : "onnx", "%s", names[i]);
        TEST_EXPECT(reader, "w", TC_U8, "[1]", uint8_t, 7);
        tc_reader_close(reader);
    }
    /* With fields in any order, and with ones that are not known. */
    struct message late = JOIN(GRAPH(INITIALIZER(U8("\7"), NAME("w"))), text(60, "new"), OPSET,
                               number(62, 1), number(1, 14));
    test_write(test_path("x"), late.bytes, late.length);
    struct tc_reader *reader = test_open(test_path("x"));
    cr_assert_str_eq(reader->backend->name, "onnx");
    tc_reader_close(reader);
}

/* Writing */

/* A lone tensor w of these dimensions, each byte its offset. */
static const char *make_tensor(unsigned data_type, const unsigned char *dims, size_t nbytes) {
    unsigned char data[1024];
    struct message tensor = {0};
    for (size_t i = 0; i < nbytes; i++)
        data[i] = (unsigned char)i;
    while (*dims)
        tensor = JOIN(tensor, DIM(*dims++));
    tensor = JOIN(tensor, TYPE(data_type), NAME("w"), bytes(9, data, nbytes));
    test_write(test_path("w.pb"), tensor.bytes, tensor.length);
    return test_path("w.pb");
}

static const char *convert(const char *from, const char *to, bool external) {
    const struct tc_option_setting setting = {&onnx_external_option, {.flag = external}};
    struct tc_plan_options options = {.write = {.settings = {&setting, 1}}};
    const char *out = test_path(to);
    cr_assert_eq(test_convert(from, out, tc_registry_named("onnx"), &options, NULL), TC_OK, "%s",
                 test_error.message);
    return out;
}

static const char *make_safetensors(const char *header, const void *data, size_t nbytes) {
    struct tc_buffer file = {0};
    uint64_t length = strlen(header);
    tc_buffer_add(&file, &length, 8);
    tc_buffer_add_string(&file, header);
    tc_buffer_add(&file, data, nbytes);
    test_write(test_path("x.safetensors"), file.bytes, file.length);
    tc_buffer_release(&file);
    return test_path("x.safetensors");
}
#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

Test(onnx, bytes_of_a_written_model) {
    const char *source =
        make_safetensors("{\"__metadata__\":{\"k\":\"v\"}," ENTRY(
                             "w", "F32", "[2]", "[0,8]") "," ENTRY("n", "U8", "[]", "[8,9]") "}",
                         P("\0\0\200\77\0\0\0\100\7"));
    const struct message expected = JOIN(
        number(1, 4), text(2, "tconv"), INSIDE(8, text(1, ""), number(2, 9)), PAIR(14, "k", "v"),
        GRAPH(text(2, "tensors"),
              INSIDE(12, text(1, "w"),
                     INSIDE(2, INSIDE(1, number(1, 1), INSIDE(2, INSIDE(1, number(1, 2)))))),
              INSIDE(12, text(1, "n"), INSIDE(2, INSIDE(1, number(1, 2), bytes(2, "", 0)))),
              INITIALIZER(DIM(2), TYPE(1), NAME("w"), RAW("\0\0\200\77\0\0\0\100")),
              INITIALIZER(TYPE(2), NAME("n"), RAW("\7"))));
    size_t length;
    char *written = test_load(convert(source, "out.onnx", false), &length);
    cr_assert_eq(length, expected.length);
    cr_assert_arr_eq(written, expected.bytes, length);
    free(written);
    /* The same with data beside it, of which there is none that is large enough. */
    cr_assert(test_same_bytes(convert(source, "beside.onnx", true), test_path("out.onnx")));
    cr_assert_neq(access(test_path("beside.onnx.data"), F_OK), 0);
}

/* Fields of a message that tconv wrote; those that repeat, by their turn. */
static struct wire_source written_source;
static struct tc_input *written_input;

static struct wire open_written(const char *path) {
    struct tc_error error = {0};
    if (written_input) {
        wire_source_release(&written_source);
        tc_input_close(written_input);
    }
    written_input = tc_input_open(path, NULL, &error);
    cr_assert_not_null(written_input);
    wire_source_init(&written_source, written_input);
    return wire_open(&written_source, 0, written_input->size);
}

static struct wire_field get(struct wire wire, uint32_t number_of_field, size_t turn) {
    struct tc_error error = {0};
    struct wire_field field;
    while (wire_next(&wire, &field, &error))
        if (field.number == number_of_field && turn-- == 0)
            return field;
    cr_assert_fail("there is no field %u", number_of_field);
    return field;
}

static struct wire get_inside(struct wire wire, uint32_t number_of_field, size_t turn) {
    struct wire_field field = get(wire, number_of_field, turn);
    return wire_inside(&wire, &field);
}

static void expect_text(struct wire wire, uint32_t number_of_field, const char *expected) {
    struct wire_field field = get(wire, number_of_field, 0);
    struct tc_error error = {0};
    char got[64] = {0};
    cr_assert_lt(field.length, sizeof got);
    cr_assert(tc_input_read(wire.source->input, field.offset, got, field.length, &error));
    cr_assert_str_eq(got, expected);
}

Test(onnx, the_lowest_versions_that_hold_the_dtypes) {
    for (size_t i = 0; i < KINDS; i++) {
        size_t nbytes = tc_dtype_bits(kinds[i].dtype) * 4 / 8;
        const char *out =
            convert(make_tensor(kinds[i].data_type, (const unsigned char[]){2, 2, 0}, nbytes),
                    "w.onnx", false);
        struct wire model = open_written(out);
        cr_assert_eq(get(model, 1, 0).value, kinds[i].ir, "%s", tc_dtype_name(kinds[i].dtype));
        cr_assert_eq(get(get_inside(model, 8, 0), 2, 0).value, kinds[i].opset, "%s",
                     tc_dtype_name(kinds[i].dtype));
        struct wire graph = get_inside(model, 7, 0);
        cr_assert_eq(get(get_inside(graph, 5, 0), 2, 0).value, kinds[i].data_type);
        struct wire output = get_inside(graph, 12, 0);
        expect_text(output, 1, "w");
        struct wire type = get_inside(get_inside(output, 2, 0), 1, 0);
        cr_assert_eq(get(type, 1, 0).value, kinds[i].data_type);
        for (size_t axis = 0; axis < 2; axis++)
            cr_assert_eq(get(get_inside(get_inside(type, 2, 0), 1, axis), 1, 0).value, 2);
        struct tc_reader *reader = test_open(out);
        cr_assert_eq(reader->table.tensors[0].dtype, kinds[i].dtype);
        tc_reader_close(reader);
    }
}

/* The highest of several counts. */
Test(onnx, versions_of_several_dtypes) {
    struct message mixed = MODEL(GRAPH(INITIALIZER(NAME("a"), DIM(2), TYPE(23), RAW("\1")),
                                       INITIALIZER(NAME("b"), DIM(1), TYPE(17), RAW("\1")),
                                       INITIALIZER(NAME("c"), DIM(1), TYPE(2), RAW("\1"))));
    test_write(test_path("x.onnx"), mixed.bytes, mixed.length);
    struct wire model = open_written(convert(test_path("x.onnx"), "out.onnx", false));
    cr_assert_eq(get(model, 1, 0).value, 11);
    cr_assert_eq(get(get_inside(model, 8, 0), 2, 0).value, 23);
}

static void expect_external(struct wire graph, size_t turn, const char *name, const char *offset,
                            const char *length) {
    struct wire tensor = get_inside(graph, 5, turn);
    expect_text(tensor, 8, name);
    cr_assert_eq(get(tensor, 14, 0).value, 1);
    const char *const pairs[][2] = {
        {"location", "out.onnx.data"}, {"offset", offset}, {"length", length}};
    for (size_t i = 0; i < 3; i++) {
        expect_text(get_inside(tensor, 13, i), 1, pairs[i][0]);
        expect_text(get_inside(tensor, 13, i), 2, pairs[i][1]);
    }
    struct tc_error error = {0};
    struct wire_field field;
    while (wire_next(&tensor, &field, &error))
        cr_assert_neq(field.number, 9, "no raw_data beside it");
}

/* From 1 KiB on data is beside the model, each tensor at a multiple of 64 KiB. */
Test(onnx, external_data_is_aligned) {
    enum { SMALL = 1023, LEAST = 1024, LARGE = 70000, LAST = 2000 };
    size_t total = SMALL + LEAST + LARGE + LAST;
    unsigned char *data = malloc(total);
    for (size_t i = 0; i < total; i++)
        data[i] = (unsigned char)(i % 251 + 1);
    const char *source = make_safetensors(
        "{" ENTRY("small", "U8", "[1023]", "[0,1023]") "," ENTRY(
            "least", "U8", "[1024]",
            "[1023,2047]") "," ENTRY("large", "U8", "[70000]",
                                     "[2047,72047]") "," ENTRY("last", "U8", "[2000]",
                                                               "[72047,74047]") "}",
        data, total);
    struct wire graph = get_inside(open_written(convert(source, "out.onnx", true)), 7, 0);
    cr_assert_eq(get(get_inside(graph, 5, 0), 9, 0).length, SMALL);
    expect_external(graph, 1, "least", "0", "1024");
    expect_external(graph, 2, "large", "65536", "70000");
    expect_external(graph, 3, "last", "196608", "2000");
    size_t length;
    char *beside = test_load(test_path("out.onnx.data"), &length);
    cr_assert_eq(length, 196608 + LAST);
    cr_assert_arr_eq(beside, data + SMALL, LEAST);
    cr_assert_arr_eq(beside + 65536, data + SMALL + LEAST, LARGE);
    cr_assert_arr_eq(beside + 196608, data + SMALL + LEAST + LARGE, LAST);
    for (size_t i = LEAST; i < 65536; i++)
        cr_assert_eq(beside[i], 0, "byte %zu", i);
    free(beside);
    free(data);
    char *first = test_digest(source);
    char *second = test_digest(test_path("out.onnx"));
    cr_assert_str_eq(first, second);
    free(first);
    free(second);
    /* And back into one file, the same as from the source. */
    cr_assert(test_same_bytes(convert(test_path("out.onnx"), "back.onnx", false),
                              convert(source, "plain.onnx", false)));
}

/* What would be written over is what is read. */
Test(onnx, the_inputs_own_data_is_not_written_over) {
    char data[2048] = "data";
    test_write(test_path("out.onnx.data"), data, sizeof data);
    struct message model = ONE(DIM(2048), TYPE(2), OUTSIDE, EXTERNAL("location", "out.onnx.data"));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    struct tc_plan_options options = {.write = {.companion = true}};
    cr_assert_eq(test_convert(test_path("x.onnx"), test_path("out.onnx"), tc_registry_named("onnx"),
                              &options, NULL),
                 TC_USAGE, "%s", test_error.message);
    size_t length;
    char *left = test_load(test_path("out.onnx.data"), &length);
    cr_assert_eq(length, sizeof data);
    cr_assert_arr_eq(left, data, sizeof data);
    free(left);
}

Test(onnx, names_of_any_kind) {
    static const char *const names[] = {"a b", "\303\274.\346\227\245", "../x", "a/b:0", "\n",
                                        "\""};
    struct message model = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        model = JOIN(model, INITIALIZER(U8("\1"), NAME(names[i])));
    model = MODEL(inside(7, model));
    test_write(test_path("x.onnx"), model.bytes, model.length);
    struct tc_reader *reader = test_open(convert(test_path("x.onnx"), "out.onnx", false));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_assert(tc_text_equal(reader->table.tensors[i].name, tc_text_of(names[i])));
    tc_reader_close(reader);
}
