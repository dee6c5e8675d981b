/* Tensors by themselves, and lists of them, as ONNX's backend tests have them. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "formats/registry.h"
#include "formats/test/messages.h"
#include "formats/test/support.h"

TestSuite(pb, .init = test_folder_make, .fini = test_folder_remove, .timeout = 600);

#define P(literal) (literal), sizeof(literal) - 1

static struct tc_reader *open_named(const char *name, struct message message) {
    test_write(test_path(name), message.bytes, message.length);
    struct tc_reader *reader = test_open(test_path(name));
    cr_assert_str_eq(reader->backend->name, "pb", "%s", reader->backend->name);
    return reader;
}

static void refused(struct message message, enum tc_class class, const char *code) {
    enum tc_class got = test_open_class("x.pb", message.bytes, message.length);
    cr_assert_eq(got, class, "class %d: %s", (int)got, test_error.message);
    cr_assert_str_eq(test_error.code, code, "%s", test_error.message);
}

Test(pb, a_lone_tensor) {
    struct tc_reader *reader = open_named(
        "input_0.pb", JOIN(DIM(2), DIM(1), TYPE(1), NAME("x"), bytes(9, (float[]){1, 2}, 8)));
    cr_assert_eq(reader->table.count, 1);
    TEST_EXPECT(reader, "x", TC_F32, "[2,1]", float, 1, 2);
    tc_reader_close(reader);
    reader = open_named("list.pb", JOIN(DIM(2), TYPE(7), NAME("x"), number(7, 1), number(7, 2)));
    TEST_EXPECT(reader, "x", TC_I64, "[2]", int64_t, 1, 2);
    tc_reader_close(reader);
}

Test(pb, without_a_name_it_has_its_files) {
    struct tc_reader *reader = open_named("input_0.pb", JOIN(DIM(1), TYPE(2), RAW("\7")));
    TEST_EXPECT(reader, "input_0", TC_U8, "[1]", uint8_t, 7);
    tc_reader_close(reader);
    reader = open_named("bare", JOIN(TYPE(2), NAME(""), RAW("\7")));
    TEST_EXPECT(reader, "bare", TC_U8, "[]", uint8_t, 7);
    tc_reader_close(reader);
}

/* dims are where a model has its IR version, and int64_data where it has its graph. */
Test(pb, told_from_a_model) {
    struct tc_reader *reader =
        open_named("x.pb", JOIN(DIM(2), TYPE(7), PACKED(7, varint(1), varint(300)), NAME("x")));
    TEST_EXPECT(reader, "x", TC_I64, "[2]", int64_t, 1, 300);
    tc_reader_close(reader);
    reader = open_named("x.bin", JOIN(DIM(2), TYPE(7), PACKED(7, varint(1), varint(2))));
    TEST_EXPECT(reader, "x", TC_I64, "[2]", int64_t, 1, 2);
    tc_reader_close(reader);
}

/* elem_type 2, tensor_values 3, name 1: a list. */
#define ITEM(...) INSIDE(3, __VA_ARGS__)

Test(pb, a_sequence) {
    struct tc_reader *reader =
        open_named("x.pb", JOIN(number(2, 1), ITEM(DIM(1), TYPE(2), RAW("\1")),
                                ITEM(DIM(2), TYPE(6), number(5, 2), number(5, 3)),
                                ITEM(TYPE(2), NAME("named"), RAW("\4"))));
    cr_assert_eq(reader->table.count, 3);
    TEST_EXPECT(reader, "0", TC_U8, "[1]", uint8_t, 1);
    TEST_EXPECT(reader, "1", TC_I32, "[2]", int32_t, 2, 3);
    TEST_EXPECT(reader, "named", TC_U8, "[]", uint8_t, 4);
    tc_reader_close(reader);
    reader =
        open_named("x.pb", JOIN(text(1, "list"), number(2, 1), ITEM(DIM(0), TYPE(1), RAW(""))));
    test_expect(reader, "0", TC_F32, "[0]", "", 0);
    tc_reader_close(reader);
    refused(JOIN(number(2, 1), ITEM(DIM(1), TYPE(8), text(6, "text"))), TC_UNSUPPORTED, "dtype");
    refused(JOIN(number(2, 1), ITEM(DIM(1), TYPE(2), NAME("a"), RAW("\1")),
                 ITEM(DIM(1), TYPE(2), NAME("a"), RAW("\1"))),
            TC_INVALID, "duplicate-name");
    refused(JOIN(number(2, 1), ITEM(DIM(1), TYPE(2), RAW("\1")),
                 ITEM(DIM(1), TYPE(2), NAME("0"), RAW("\1"))),
            TC_INVALID, "duplicate-name");
    refused(JOIN(number(2, 1), ITEM(DIM(2), TYPE(2), RAW("\1"))), TC_INVALID, "protobuf");
}

/* An item so small that it could be a segment's two numbers. */
Test(pb, a_sequence_of_a_tensor_without_data) {
    struct tc_reader *reader = open_named("x.pb", JOIN(number(2, 1), ITEM(DIM(0), TYPE(1))));
    test_expect(reader, "0", TC_F32, "[0]", "", 0);
    tc_reader_close(reader);
}

/* Lists of lists, of sparse tensors, of maps: nothing that is read. */
Test(pb, sequences_of_other_things) {
    struct message item = ITEM(DIM(1), TYPE(2), RAW("\1"));
    refused(JOIN(number(2, 3), INSIDE(5, number(2, 1), item)), TC_UNSUPPORTED, "sequence");
    refused(JOIN(number(2, 2), INSIDE(4, number(3, 1))), TC_UNSUPPORTED, "sequence");
    refused(JOIN(number(2, 4), INSIDE(6, number(2, 1))), TC_UNSUPPORTED, "sequence");
}

Test(pb, what_is_not_read) {
    refused(JOIN(DIM(1), TYPE(8), text(6, "text")), TC_UNSUPPORTED, "dtype");
    refused(JOIN(DIM(1), TYPE(99), RAW("\1")), TC_UNSUPPORTED, "dtype");
    refused(JOIN(DIM(1), TYPE(1), INSIDE(3, number(1, 0), number(2, 1)), RAW("\0\0\0\0")),
            TC_UNSUPPORTED, "segment");
    refused(JOIN(DIM(3), TYPE(22), RAW("\1\2")), TC_UNSUPPORTED, "packed-shape");
}

Test(pb, damaged) {
    struct message tensor = JOIN(DIM(2), TYPE(1), NAME("x"), bytes(9, (float[]){1, 2}, 8));
    for (size_t cut = 0; cut < tensor.length; cut++)
        cr_assert_eq(test_open_class("cut.pb", tensor.bytes, cut), TC_INVALID, "cut at %zu: %s",
                     cut, test_error.message);
    refused(JOIN(tensor, tensor), TC_INVALID, "protobuf");
    refused(JOIN(DIM(3), TYPE(1), bytes(9, (float[]){1, 2}, 8)), TC_INVALID, "protobuf");
    cr_assert_eq(test_open_class("x.pb", "", 0), TC_INVALID);
}

Test(pb, external_data) {
    test_write(test_path("y"), "abcd", 4);
    struct tc_reader *reader =
        open_named("x.pb", JOIN(DIM(2), TYPE(2), NAME("x"), OUTSIDE, EXTERNAL("location", "y"),
                                EXTERNAL("offset", "1")));
    test_expect(reader, "x", TC_U8, "[2]", "bc", 2);
    tc_reader_close(reader);
    refused(JOIN(DIM(2), TYPE(2), OUTSIDE, EXTERNAL("location", "../y")), TC_UNSAFE,
            "external-data");
}

Test(pb, flipped_bytes) {
    struct message sequence = JOIN(number(2, 1), ITEM(DIM(1), TYPE(2), RAW("\1")),
                                   ITEM(DIM(2), TYPE(6), number(5, 2), number(5, 3)));
    for (size_t at = 0; at < sequence.length; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            struct message changed = sequence;
            changed.bytes[at] ^= (unsigned char)(1u << bit);
            enum tc_class class = test_open_class("x.pb", changed.bytes, changed.length);
            cr_assert(class == TC_OK || (class >= TC_INVALID && class <= TC_UNSAFE),
                      "byte %zu: class %d", at, (int)class);
        }
}

/* Written: dims, data_type, name, raw_data, and nothing else. */
Test(pb, bytes_of_a_written_tensor) {
    struct message tensor = JOIN(DIM(2), DIM(1), TYPE(1), NAME("x"), bytes(9, (float[]){1, -2}, 8));
    test_write(test_path("in.pb"), tensor.bytes, tensor.length);
    const char *out = test_path("out.pb");
    cr_assert_eq(test_convert(test_path("in.pb"), out, tc_registry_named("pb"), NULL, NULL), TC_OK,
                 "%s", test_error.message);
    cr_assert(test_same_bytes(test_path("in.pb"), out));
    struct message list = JOIN(FLOAT(4, 1), DIM(2), FLOAT(4, -2), NAME("x"), TYPE(1), DIM(1));
    test_write(test_path("in.pb"), list.bytes, list.length);
    cr_assert_eq(test_convert(test_path("in.pb"), out, tc_registry_named("pb"), NULL, NULL), TC_OK,
                 "%s", test_error.message);
    test_write(test_path("in.pb"), tensor.bytes, tensor.length);
    cr_assert(test_same_bytes(test_path("in.pb"), out));
}

Test(pb, one_tensor_only) {
    struct message sequence =
        JOIN(number(2, 1), ITEM(DIM(1), TYPE(2), RAW("\1")), ITEM(DIM(1), TYPE(2), RAW("\1")));
    test_write(test_path("in.pb"), sequence.bytes, sequence.length);
    cr_assert_eq(
        test_convert(test_path("in.pb"), test_path("out.pb"), tc_registry_named("pb"), NULL, NULL),
        TC_UNSUPPORTED);
}
