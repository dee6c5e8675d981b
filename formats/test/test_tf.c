#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(tf, .init = test_folder_make, .fini = test_folder_remove);

/* Bytes written as pairs of digits; blanks don't count. */
static size_t unhex(const char *text, unsigned char *bytes) {
    size_t length = 0;
    unsigned value;
    for (int used; sscanf(text, " %2x%n", &value, &used) == 1; text += used)
        bytes[length++] = (unsigned char)value;
    return length;
}

static enum tc_class open_hex(const char *hex) {
    unsigned char bytes[1024];
    return test_open_class("x.tensor", bytes, unhex(hex, bytes));
}

/* The file holds one tensor of this dtype and these bytes. */
static void expect_values(const char *file, enum tc_dtype dtype, const char *values) {
    unsigned char want[1024];
    size_t length = unhex(values, want);
    cr_assert_eq(open_hex(file), TC_OK, "%s: %s", file, test_error.message);
    struct tc_reader *reader = test_open(test_path("x.tensor"));
    const struct tc_tensor *tensor = &reader->table.tensors[0];
    cr_assert_eq(reader->table.count, 1);
    cr_assert_eq(tensor->dtype, dtype, "%s", file);
    cr_assert_eq(tensor->nbytes, length, "%s", file);
    unsigned char *got = test_read(reader, tensor);
    cr_assert_arr_eq(got, want, length, "%s", file);
    free(got);
    tc_reader_close(reader);
}

#define SHAPE(n) "12041202080" #n " "

Test(tf, lists_of_every_dtype) {
    expect_values("0801" SHAPE(2) "2a08 0000803f 00000040", TC_F32, "0000803f 00000040");
    expect_values("0801" SHAPE(2) "2d 0000803f 2d 00000040", TC_F32, "0000803f 00000040");
    expect_values("0802" SHAPE(1) "3208 000000000000f03f", TC_F64, "000000000000f03f");
    expect_values("0803" SHAPE(2) "3a0b 01 feffffffffffffffff01", TC_I32, "01000000 feffffff");
    expect_values("0804" SHAPE(2) "38ff01 3807", TC_U8, "ff 07");
    expect_values("0805" SHAPE(1) "3a0a 8080feffffffffffff01", TC_I16, "0080");
    expect_values("0806" SHAPE(1) "3a01 7f", TC_I8, "7f");
    expect_values("0808" SHAPE(1) "4a08 0000803f 00000040", TC_C64, "0000803f 00000040");
    expect_values("0809" SHAPE(1) "520a ffffffffffffffffff01", TC_I64, "ffffffffffffffff");
    expect_values("080a" SHAPE(2) "5a02 0100", TC_BOOL, "01 00");
    expect_values("080e" SHAPE(1) "6a03 80ff02", TC_BF16, "80bf");
    expect_values("0811" SHAPE(1) "3a03 ffff03", TC_U16, "ffff");
    expect_values("0812" SHAPE(1) "6210 000000000000f03f 0000000000000040", TC_C128,
                  "000000000000f03f 0000000000000040");
    expect_values("0813" SHAPE(2) "6a05 8078 808003", TC_F16, "003c 00c0");
    expect_values("0816" SHAPE(1) "820105 ffffffff0f", TC_U32, "ffffffff");
    expect_values("0817" SHAPE(1) "8a010a ffffffffffffffffff01", TC_U64, "ffffffffffffffff");
    expect_values("0818" SHAPE(2) "920102 3c40", TC_F8_E5M2, "3c 40");
    expect_values("0819" SHAPE(2) "920102 3840", TC_F8_E4M3, "38 40");
    expect_values("081a" SHAPE(1) "920101 38", TC_F8_E4M3FNUZ, "38");
    expect_values("081c" SHAPE(1) "220138", TC_F8_E5M2FNUZ, "38");
}

Test(tf, the_last_value_repeats) {
    expect_values("0801" SHAPE(3) "2a04 0000803f", TC_F32, "0000803f 0000803f 0000803f");
    expect_values("0803" SHAPE(3) "3a02 0102", TC_I32, "01000000 02000000 02000000");
    expect_values("0808" SHAPE(2) "4a08 0000803f 00000040", TC_C64,
                  "0000803f 00000040 0000803f 00000040");
    expect_values("0819" SHAPE(3) "920102 3840", TC_F8_E4M3, "38 40 40");
    expect_values("0801" SHAPE(2), TC_F32, "00000000 00000000");
    expect_values("0801" SHAPE(2) "2a00", TC_F32, "00000000 00000000");
    expect_values("0801 1200", TC_F32, "00000000");
    expect_values("0801 12021200 ", TC_F32, "");
}

Test(tf, a_splat_is_within_a_limit) {
    cr_assert_eq(open_hex("0801 1205120308e807 2a040000803f"), TC_OK);
    cr_assert_eq(open_hex("0801 12091207088080808080 20 2a040000803f"), TC_UNSAFE);
    cr_assert_str_eq(test_error.code, "size-limit");
    /* 2^34 elements of an I8 are as many bytes as are allowed, and two more. */
    cr_assert_eq(open_hex("0806 12081206088280808040 3a0101"), TC_UNSAFE);
    struct tc_format_options options = test_options;
    struct tc_error error = {0};
    options.limits.made = 3995;
    open_hex("0801 1205120308e807 2a040000803f");
    cr_assert_null(tc_registry_open(test_path("x.tensor"), NULL, &options, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    options.limits.made++;
    error = (struct tc_error){0};
    struct tc_reader *reader = tc_registry_open(test_path("x.tensor"), NULL, &options, &error);
    cr_assert_not_null(reader);
    tc_reader_close(reader);
}

Test(tf, what_is_wrong_is_refused) {
    static const struct {
        const char *hex;
        enum tc_class class;
    } cases[] = {
        {"1200", TC_INVALID},                                  /* no dtype */
        {"0801", TC_INVALID},                                  /* no shape */
        {"0800 1204120208 00", TC_INVALID},                    /* DT_INVALID, no elements */
        {"0864 1200", TC_INVALID},                             /* a reference to it */
        {"08c801 1200", TC_INVALID},                           /* 200 */
        {"08ffffffffffffffffff01 1200", TC_INVALID},           /* -1 */
        {"0801 0801 1200", TC_INVALID},                        /* two dtypes */
        {"0801 1200 1200 2204 00000000", TC_INVALID},          /* two shapes */
        {"0801 12021801", TC_INVALID},                         /* unknown rank */
        {"0801 120d120b08ffffffffffffffffff01", TC_INVALID},   /* dimension -1 */
        {"0801 1206120408010802 2204 00000000", TC_INVALID},   /* a dimension of two sizes */
        {"0801" SHAPE(2) "2204 00000000", TC_INVALID},         /* content is short */
        {"0801" SHAPE(1) "2208 0000000000000000", TC_INVALID}, /* content is long */
        {"0801" SHAPE(1) "2200", TC_INVALID},
        {"0801" SHAPE(1) "2204 00000000 2204 00000000", TC_INVALID},
        {"0801" SHAPE(1) "2204 00000000 2a04 00000000", TC_INVALID},
        {"0801" SHAPE(1) "2a08 0000000000000000", TC_INVALID}, /* more values */
        {"0803" SHAPE(2) "3a03 010203", TC_INVALID},
        {"0801 1204120208 00 2a04 00000000", TC_INVALID},
        {"0803 1204120208 00 3a01 01", TC_INVALID},
        {"0801" SHAPE(2) "2a03 000000", TC_INVALID},   /* ends inside a value */
        {"0808" SHAPE(2) "4a04 0000803f", TC_INVALID}, /* half a complex number */
        {"0801" SHAPE(1) "3a01 01", TC_INVALID},       /* values of another dtype */
        {"0801" SHAPE(2) "2a04 00000000 3a01 01", TC_INVALID},
        {"0801" SHAPE(1) "2801", TC_INVALID},                /* a varint for a float */
        {"0819" SHAPE(2) "920101 38 920101 38", TC_INVALID}, /* float8_val twice */
        {"0813" SHAPE(1) "6a03 f0a204", TC_INVALID},         /* half_val 70000 */
        {"080a" SHAPE(1) "5a01 02", TC_INVALID},             /* bool_val 2 */
        {"0806" SHAPE(1) "3a02 8001", TC_INVALID},           /* 128 as I8 */
        {"0804" SHAPE(1) "3a0a ffffffffffffffffff01", TC_INVALID},
        {"0801" SHAPE(1) "2204 00000000 2a", TC_INVALID}, /* something behind it */
        {"0801 1210 120708ffffffffff3f 120708ffffffffff3f", TC_INVALID},
        {"0814 1200", TC_UNSUPPORTED}, /* DT_RESOURCE */
        {"0814" SHAPE(1) "720101", TC_UNSUPPORTED},
        {"0815 1200", TC_UNSUPPORTED}, /* DT_VARIANT */
        {"0815" SHAPE(1) "7a021a00", TC_UNSUPPORTED},
        {"080b" SHAPE(1) "220100", TC_UNSUPPORTED},       /* DT_QINT8 */
        {"081d" SHAPE(1) "220100", TC_UNSUPPORTED},       /* DT_INT4 */
        {"0828" SHAPE(1) "220100", TC_UNSUPPORTED},       /* 40 */
        {"0865" SHAPE(1) "220400000000", TC_UNSUPPORTED}, /* DT_FLOAT_REF */
        {"0807 1200 420161", TC_UNSUPPORTED},             /* DT_STRING */
        {"0807" SHAPE(1) "420161", TC_UNSUPPORTED},
        {"0807" SHAPE(1) "22020161", TC_UNSUPPORTED}, /* strings in tensor_content */
        {"0807" SHAPE(2) "420161", TC_INVALID},       /* one string of two */
        {"0807" SHAPE(1) "420161 420161", TC_INVALID},
        {"0801" SHAPE(1) "220400000000 9a0100", TC_UNSUPPORTED}, /* field 19 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(open_hex(cases[i].hex), cases[i].class, "%s: class %d (%s)", cases[i].hex,
                     (int)test_error.class, test_error.message);
}

Test(tf, rank_64_and_no_more) {
    for (unsigned rank = 64; rank <= 65; rank++) {
        unsigned char file[512] = {0x08, 0x04, 0x12, (unsigned char)(0x80 | rank * 4 % 128),
                                   (unsigned char)(rank * 4 / 128)};
        size_t length = 5;
        for (unsigned i = 0; i < rank; i++, length += 4)
            memcpy(file + length, "\x12\x02\x08\x01", 4);
        memcpy(file + length, "\x22\x01\x07", 3);
        cr_assert_eq(test_open_class("x.tensor", file, length + 3),
                     rank <= 64 ? TC_OK : TC_UNSUPPORTED, "%s", test_error.message);
    }
}

#define INDICES "421e 0809 1208 12020801 12020802 2210 0500000000000000 0700000000000000 "
#define VALUES "420e 0801 1204 12020801 2204 0000803f "
#define SIZES "421a 0809 1204 12020802 2210 0900000000000000 0900000000000000 "
#define MATRIX                                                                                     \
    "422e 0809 1208 12020802 12020802 2220 0100000000000000 0200000000000000 "                     \
    "0300000000000000 0400000000000000 "

static void expect_names(const char *hex, const char *names) {
    struct tc_buffer list = {0};
    cr_assert_eq(open_hex(hex), TC_OK, "%s: %s", hex, test_error.message);
    struct tc_reader *reader = test_open(test_path("x.tensor"));
    for (size_t i = 0; i < reader->table.count; i++) {
        tc_buffer_add_text(&list, reader->table.tensors[i].name);
        tc_shape_print(&list, reader->table.tensors[i].shape, reader->table.tensors[i].rank);
    }
    tc_buffer_add(&list, "", 1);
    cr_assert_str_eq(list.bytes, names);
    tc_buffer_release(&list);
    tc_reader_close(reader);
}

Test(tf, strings_that_are_tensors) {
    expect_names("0807" SHAPE(3) INDICES VALUES SIZES, "x.indices[2,1]x.values[1]x.shape[2]");
    expect_names("0807 1208 12020802 12020803" INDICES VALUES SIZES INDICES VALUES SIZES,
                 "x.0.indices[2,1]x.0.values[1]x.0.shape[2]"
                 "x.1.indices[2,1]x.1.values[1]x.1.shape[2]");
    expect_names("0807" SHAPE(2) VALUES INDICES, "0[1]1[1,2]");
    expect_names("0807" SHAPE(3) VALUES VALUES VALUES, "0[1]1[1]2[1]");
    /* Two indices for one value. */
    cr_assert_eq(open_hex("0807 1208 12020801 12020803" MATRIX VALUES SIZES), TC_UNSUPPORTED);
    /* Not all of them tensors; a tensor of strings; a broken tensor. */
    cr_assert_eq(open_hex("0807" SHAPE(2) VALUES "420161"), TC_UNSUPPORTED);
    cr_assert_eq(open_hex("0807" SHAPE(1) "420b 0807" SHAPE(1) "420161"), TC_UNSUPPORTED);
    cr_assert_eq(open_hex("0807" SHAPE(1) "420a 0801" SHAPE(1) "220100"), TC_INVALID);
}

Test(tf, a_sparse_tensors_indices_are_transposed) {
    struct tc_reader *reader = test_open(TESTDATA "/tf/sparse.tensor");
    const struct tc_tensor *indices = &reader->table.tensors[0];
    struct tc_sparse sparse;
    cr_assert(tc_sparse_of(&reader->table, indices, &sparse));
    cr_assert(tc_text_equal(sparse.parent, TC_TEXT("sparse")));
    cr_assert(tc_text_equal(sparse.layout, TC_TEXT("coo")));
    uint64_t want[] = {0, 1, 0, 2}; /* stored as (0,0), (1,2) */
    unsigned char *got = test_read(reader, indices);
    cr_assert_arr_eq(got, want, sizeof want);
    free(got);
    tc_reader_close(reader);
    /* The same from a list. */
    cr_assert_eq(open_hex("0807" SHAPE(3) "4212 0809 1208 12020802 12020802 5204 00000102"
                                          "420e 0801" SHAPE(2) "2a04 0000803f"
                                                               "420c 0809" SHAPE(2) "5202 0203"),
                 TC_OK, "%s", test_error.message);
    reader = test_open(test_path("x.tensor"));
    got = test_read(reader, &reader->table.tensors[0]);
    cr_assert_arr_eq(got, want, sizeof want);
    free(got);
    tc_reader_close(reader);
}

/* The bytes become a field of that tag. */
static void wrap(struct tc_buffer *inner, unsigned char tag) {
    struct tc_buffer outer = {0};
    size_t length = inner->length;
    tc_buffer_add(&outer, &tag, 1);
    for (; length >= 0x80; length >>= 7)
        tc_buffer_add(&outer, &(char){(char)(length | 0x80)}, 1);
    tc_buffer_add(&outer, &(char){(char)length}, 1);
    tc_buffer_add(&outer, inner->bytes, inner->length);
    tc_buffer_release(inner);
    *inner = outer;
}

/* A node with an attribute whose value calls a function that has such an
 * attribute, and so on. */
static enum tc_class open_graph(unsigned depth) {
    struct tc_buffer value = {0};
    struct tc_buffer node = {0};
    for (unsigned i = 0; i < depth; i++) {
        wrap(&value, 2 << 3 | 2);  /* value of */
        wrap(&value, 2 << 3 | 2);  /* an attribute of */
        wrap(&value, 10 << 3 | 2); /* a function */
    }
    wrap(&value, 2 << 3 | 2);
    wrap(&value, 5 << 3 | 2);
    tc_buffer_add_string(&node, "\x0a\x01n\x12\x01o");
    tc_buffer_add(&node, value.bytes, value.length);
    wrap(&node, 1 << 3 | 2);
    cr_assert(!node.failed);
    enum tc_class class = test_open_class("graph.pb", node.bytes, node.length);
    tc_buffer_release(&value);
    tc_buffer_release(&node);
    return class;
}

Test(tf, graphs_are_told_and_not_walked_without_end) {
    cr_assert_eq(open_graph(20), TC_UNSUPPORTED, "%s", test_error.message);
    cr_assert_str_eq(test_error.code, "tf-graph");
    cr_assert_eq(open_graph(300), TC_UNSAFE, "%s", test_error.message);
    cr_assert_str_eq(test_error.code, "depth-limit");
    /* A saved model: version, meta graph {info, graph {node}}. */
    cr_assert_eq(open_hex("0801 120e 0a02 0a00 1208 0a06 0a016e 12016f"), TC_UNSUPPORTED);
    cr_assert_str_eq(test_error.code, "tf-graph");
}

/* Models of ONNX have numbers and bytes in the same fields. */
Test(tf, is_told_from_onnx) {
    static const struct {
        const char *hex;
        const char *format;
    } cases[] = {
        {"0803" SHAPE(2) "3a02 0102", "tf"},           /* int_val [1, 2] */
        {"0803 1200 3a01 07", "tf"},                   /* a scalar */
        {"0803 1200 3a0a ffffffffffffffffff01", "tf"}, /* -1 */
        {"0808 1200 3a00", "onnx"},                    /* no producer, an empty graph */
        {"0808 1200 3a03 120167 4202 1011", "onnx"},   /* graph "g", opset 17 */
        {"0808 1203 616263 3a03 120167 4202 1011", "onnx"},
        {"0802 1001 2a04 0000803f", "pb"}, /* dims [2], F32 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[64];
        struct tc_error error = {0};
        test_write(test_path("x"), bytes, unhex(cases[i].hex, bytes));
        struct tc_input *input = tc_input_open(test_path("x"), NULL, &error);
        const struct tc_backend *backend = tc_registry_probe(input, &error);
        cr_assert(backend && strcmp(backend->name, cases[i].format) == 0, "%s: %s", cases[i].hex,
                  backend ? backend->name : "none");
        tc_input_close(input);
    }
}

Test(tf, zeros_that_may_be_a_cut_file_are_told) {
    cr_assert_eq(open_hex("0801" SHAPE(2)), TC_OK);
    struct tc_reader *reader = test_open(test_path("x.tensor"));
    cr_assert(tc_notes_tell(&reader->notes, TC_WARNING, "no values"));
    tc_reader_close(reader);
    reader = test_open(TESTDATA "/tf/short_list.tensor");
    cr_assert_eq(tc_notes_count(&reader->notes, TC_WARNING, TC_KINDS), 0);
    tc_reader_close(reader);
}

static void rewrite(const char *path, void *context) {
    size_t *same = context;
    const char *name = strrchr(path, '/') + 1;
    if (strncmp(name, "serialize_", 10) != 0 && strcmp(name, "scalar.tensor") != 0)
        return;
    const char *out = test_path("out.tensor");
    cr_assert_eq(test_convert(path, out, tc_registry_named("tf"), NULL, NULL), TC_OK);
    cr_assert(test_same_bytes(path, out), "%s", path);
    (*same)++;
}

Test(tf, writes_what_serialize_tensor_writes) {
    size_t same = 0;
    test_each_file("tf", rewrite, &same);
    cr_assert_geq(same, 15);
}

Test(tf, an_empty_tensor_has_no_content) {
    unsigned char want[64];
    size_t length = unhex("0801 1206 1200 12020803", want);
    cr_assert_eq(test_open_class("e.tensor", want, length), TC_OK);
    const char *out = test_path("out.tensor");
    cr_assert_eq(test_convert(test_path("e.tensor"), out, tc_registry_named("tf"), NULL, NULL),
                 TC_OK);
    cr_assert(test_same_bytes(test_path("e.tensor"), out));
}

Test(tf, messages_beyond_2_gib_are_refused) {
    /* 2^29 elements of F32, made from nothing. */
    const char *out = test_path("out.tensor");
    unsigned char bytes[64];
    test_write(test_path("x.tensor"), bytes, unhex("0801 12081206088080808002", bytes));
    test_options.limits.made = UINT64_C(4) << 30;
    cr_assert_eq(test_convert(test_path("x.tensor"), out, tc_registry_named("tf"), NULL, NULL),
                 TC_UNSUPPORTED);
    cr_assert_str_eq(test_error.code, "message-size");
}
