/* Numbers of ONNX models: in raw data, in typed fields, in other files. */
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "formats/registry.h"
#include "formats/test/make_onnx.h"
#include "formats/test/messages.h"
#include "formats/test/support.h"

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
