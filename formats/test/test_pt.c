/* What is in torch's files: views, ties, sparse and quantised tensors, metadata, and what is
 * refused. What they are packed in is in test_pt_containers.c, and writing them in test_pt_write.c.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/pickle/option.h"
#include "formats/registry.h"
#include "formats/test/make_pt.h"
#include "formats/test/make_zip.h"
#include "formats/test/support.h"

TestSuite(pt, .init = test_folder_make, .fini = test_folder_remove);

/* Views */

#define SHORT TENSOR(SHORTS, "\0", ONE("\1"), ONE("\1"))
#define VIEWS                                                                                                                           \
    DICT("Vt\n" TENSOR(SHORTS, "\0", TWO("\4", "\3"), TWO("\1", "\4")) "Vs\n" TENSOR(SHORTS, "\2", ONE("\3"), ONE("\2")) "Ve\n" TENSOR( \
        SHORTS, "\5", TWO("\2", "\2"),                                                                                                  \
        TWO("\0",                                                                                                                       \
            "\1")) "Vd\n" TENSOR(SHORTS, "\4", TWO("\2", "\4"),                                                                         \
                                 TWO("\4",                                                                                              \
                                     "\1")) "Vo\n" TENSOR(SHORTS, "\10", TWO("\1", "\4"),                                               \
                                                          TWO("\143",                                                                   \
                                                              "\1")) "Vn\n" TENSOR(SHORTS, "\143",                                      \
                                                                                   TWO("\0",                                            \
                                                                                       "\4"),                                           \
                                                                                   TWO("\4",                                            \
                                                                                       "\1")) "Vz"                                      \
                                                                                              "\n" TENSOR(                              \
                                                                                                  SHORTS,                               \
                                                                                                  "\13",                                \
                                                                                                  ")",                                  \
                                                                                                  ")") "Vw\n" SHORTS)

static void expect_views(struct tc_reader *reader) {
    EXPECT(reader, "t", TC_I16, "[4,3]", int16_t, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11);
    EXPECT(reader, "s", TC_I16, "[3]", int16_t, 2, 4, 6);
    EXPECT(reader, "e", TC_I16, "[2,2]", int16_t, 5, 6, 5, 6);
    EXPECT(reader, "d", TC_I16, "[2,4]", int16_t, 4, 5, 6, 7, 8, 9, 10, 11);
    EXPECT(reader, "o", TC_I16, "[1,4]", int16_t, 8, 9, 10, 11);
    test_expect(reader, "n", TC_I16, "[0,4]", NULL, 0);
    EXPECT(reader, "z", TC_I16, "[]", int16_t, 11);
    test_expect(reader, "w", TC_I16, "[12]", shorts, sizeof shorts);
}

Test(pt, strided_views_are_read) {
    struct tc_reader *reader = test_open(
        make(&(struct archive){P(VIEWS), .more = {{"x/data/0", shorts, sizeof shorts, false}}}));
    expect_views(reader);
    /* Only what lies in C order can be copied as it is. */
    static const struct {
        const char *name;
        bool raw;
    } cases[] = {{"t", false}, {"s", false}, {"e", false}, {"d", true},
                 {"o", true},  {"z", true},  {"w", true}};
    for (size_t i = 0; i < 7; i++) {
        cr_assert_eq(has_extent(reader, cases[i].name), cases[i].raw, "%s", cases[i].name);
        cr_assert_eq(test_find(reader, cases[i].name)->sequential, !cases[i].raw, "%s",
                     cases[i].name);
    }
    tc_reader_close(reader);
}

Test(pt, packed_storages_and_pickles) {
    char *expected = NULL;
    for (int packed = 0; packed < 4; packed++) {
        const char *path =
            make(&(struct archive){P(VIEWS), .packed = packed & 1,
                                   .more = {{"x/data/0", shorts, sizeof shorts, packed & 2}}});
        struct tc_reader *reader = test_open(path);
        expect_views(reader);
        cr_assert_eq(has_extent(reader, "w"), !(packed & 2));
        cr_assert_eq(test_find(reader, "w")->sequential, (packed & 2) != 0);
        tc_reader_close(reader);
        char *digest = test_digest(path);
        if (expected)
            cr_assert_str_eq(digest, expected);
        free(expected);
        expected = digest;
    }
    free(expected);
}

/* What is left out of a file does not hang on how it is packed. */
Test(pt, long_bytes_are_no_metadata) {
    struct tc_buffer pickle = {0};
    static const char zeros[5000];
    tc_buffer_add(&pickle, P("\200\2}Va\nB\210\23\0"));
    tc_buffer_add(&pickle, "", 1);
    tc_buffer_add(&pickle, zeros, sizeof zeros);
    tc_buffer_add(&pickle, P("s."));
    for (int packed = 0; packed < 2; packed++) {
        /* Alone in a file it leaves no tensor, but a tree has it. */
        struct tc_reader *alone =
            test_open(make(&(struct archive){pickle.bytes, pickle.length, .packed = packed}));
        cr_assert_eq(alone->table.count, 0);
        cr_assert(tc_notes_tell(&alone->tree_notes, TC_LOSS, "a long string of bytes"));
        tc_reader_close(alone);
    }
    pickle.length -= 2;
    tc_buffer_add(&pickle, P("sVw\n" SHORT "s."));
    struct tc_reader *reader = test_open(make(&(struct archive){
        pickle.bytes, pickle.length, .more = {{"x/data/0", shorts, sizeof shorts, false}}}));
    cr_assert_eq(reader->table.metadata.count, 0);
    cr_assert_eq(tc_notes_count(&reader->tree_notes, TC_LOSS, TC_KIND_SKIPPED), 1);
    cr_assert(tc_notes_tell(&reader->tree_notes, TC_LOSS, "a long string of bytes"));
    tc_reader_close(reader);
    tc_buffer_release(&pickle);
}

/* Without elements there is nothing that strides could say. */
Test(pt, an_empty_tensor_of_any_strides) {
    static const char pickle[] =
        DICT("Va\n" TENSOR(SHORTS, "\0", TWO("\0", "\4"), TWO("\4", "\2")) "Vb\n" TENSOR(
            SHORTS, "\0", TWO("\4", "\0"), TWO("\0", "\7")));
    struct tc_reader *reader = test_open(
        make(&(struct archive){P(pickle), .more = {{"x/data/0", shorts, sizeof shorts, false}}}));
    test_expect(reader, "a", TC_I16, "[0,4]", NULL, 0);
    test_expect(reader, "b", TC_I16, "[4,0]", NULL, 0);
    cr_assert(!test_find(reader, "a")->sequential && !test_find(reader, "b")->sequential);
    tc_reader_close(reader);
    cr_assert_eq(test_convert(test_path("x.pt"), test_path("out.safetensors"),
                              tc_registry_named("safetensors"), NULL, NULL),
                 TC_OK, "%s", test_error.message);
}

/* A packed storage's CRC is checked by reading it, a plain one's by check_sums. */
Test(pt, damage_is_found) {
    for (int packed = 0; packed < 2; packed++) {
        const char *path = make(
            &(struct archive){P(STATE), .more = {{"x/data/0", floats, sizeof floats, packed}}});
        size_t length;
        char *bytes = test_load(path, &length);
        char *data = memmem(bytes, length, "x/data/0", 8);
        data[8 + 3] ^= 0x10;
        cr_assert_eq(test_open_class("y.pt", bytes, length), TC_INVALID, "packed: %d", packed);
        free(bytes);
        /* And of the pickle: a name is changed. */
        path = make(&(struct archive){P(STATE), .packed = packed, .more = {FLOATS("x/data/0")}});
        bytes = test_load(path, &length);
        if (!packed) {
            char *name = memmem(bytes, length, "Va\n", 3);
            name[1] = 'q';
            cr_assert_eq(test_open_class("y.pt", bytes, length), TC_INVALID);
            cr_assert(strstr(test_error.message, "CRC"), "%s", test_error.message);
        }
        free(bytes);
    }
}

Test(pt, views_stay_in_their_storage) {
    static const struct {
        const char *pickle;
        size_t length;
    } bad[] = {
        {P(DICT("Va\n" TENSOR(SHORTS, "\1", ONE("\14"), ONE("\1"))))},
        {P(DICT("Va\n" TENSOR(SHORTS, "\14", ")", ")")))},
        {P(DICT("Va\n" TENSOR(SHORTS, "\0", TWO("\2", "\2"), TWO("\13", "\1"))))},
        {P(DICT("Va\n" TENSOR(SHORTS, "\0", TWO("\3", "\4"), TWO("\5", "\1"))))},
        {P(DICT("Va\n" TENSOR(SHORTS, "\0", ONE("\2"),
                              "\212\10\377\377\377\377\377\377\377\177"
                              "\205")))},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(make(&(struct archive){bad[i].pickle, bad[i].length,
                                       .more = {{"x/data/0", shorts, sizeof shorts, false}}}),
                TC_INVALID, "view");
}

/* Notes of signs: of every number, of imaginary parts, of both. */
#define COMPLEX STORE("ComplexFloatStorage", "0", "\2")
#define CONJ "}Vconj\n\210s"
#define NEG "}Vneg\n\210s"
#define BOTH "}(Vconj\n\210Vneg\n\210u"
#define SIGNS                                                                                      \
    DICT("Va\n" NOTED(COMPLEX, ONE("\2"), ONE("\1"), CONJ) "Vb\n" NOTED(                           \
        COMPLEX, ONE("\2"), ONE("\1"),                                                             \
        NEG) "Vc\n" NOTED(COMPLEX, ONE("\2"), ONE("\1"),                                           \
                          BOTH) "Vd\n" NOTED(COMPLEX, ONE("\2"), ONE("\1"),                        \
                                             "}Vconj\n\211s") "Ve\n" NOTED(STORE("FloatStorage",   \
                                                                                 "1", "\6"),       \
                                                                           ONE("\2"), ONE("\3"),   \
                                                                           NEG))

static void expect_signs(struct tc_reader *reader) {
    EXPECT(reader, "a", TC_C64, "[2]", float, 1, -2, -3, 4);
    EXPECT(reader, "b", TC_C64, "[2]", float, -1, -2, 3, 4);
    EXPECT(reader, "c", TC_C64, "[2]", float, -1, 2, 3, -4);
    EXPECT(reader, "d", TC_C64, "[2]", float, 1, 2, -3, -4);
    EXPECT(reader, "e", TC_F32, "[2]", float, -0.0f, -3);
    cr_assert(!has_extent(reader, "a") && !has_extent(reader, "b") && !has_extent(reader, "c"));
}

Test(pt, signs_are_turned) {
    static const float numbers[] = {1, 2, -3, -4};
    struct tc_reader *reader = test_open(make(&(struct archive){
        P(SIGNS), .more = {{"x/data/0", numbers, sizeof numbers, false}, FLOATS("x/data/1")}}));
    expect_signs(reader);
    cr_assert(has_extent(reader, "d"));
    tc_reader_close(reader);
    refused(make(&(struct archive){P(DICT("Va\n" NOTED(SHORTS, ONE("\2"), ONE("\1"), NEG))),
                                   .more = {{"x/data/0", shorts, sizeof shorts, false}}}),
            TC_INVALID, "view");
}

static void turn(const void *from, unsigned char *to, size_t length, size_t size) {
    for (size_t i = 0; i < length; i++)
        to[i] = ((const unsigned char *)from)[i / size * size + size - 1 - i % size];
}

Test(pt, big_endian_storages) {
    static const float numbers[] = {1, 2, -3, -4};
    unsigned char turned[sizeof shorts + sizeof numbers + sizeof floats];
    turn(shorts, turned, sizeof shorts, 2);
    struct tc_reader *reader = test_open(make(&(struct archive){
        P(VIEWS), .big = true, .more = {{"x/data/0", turned, sizeof shorts, false}}}));
    expect_views(reader);
    cr_assert(!has_extent(reader, "w"));
    tc_reader_close(reader);
    turn(numbers, turned, sizeof numbers, 4); /* parts of complex numbers, not whole ones */
    turn(floats, turned + sizeof numbers, sizeof floats, 4);
    reader = test_open(
        make(&(struct archive){P(SIGNS), .big = true,
                               .more = {{"x/data/0", turned, sizeof numbers, true},
                                        {"x/data/1", turned + sizeof numbers, sizeof floats}}}));
    expect_signs(reader);
    cr_assert(!has_extent(reader, "d"));
    tc_reader_close(reader);
    /* Old files say what machine wrote them, but not how: none is known. */
    static const char head[] = LEGACY("\211", STATE, "V0\na");
    char file[2000];
    size_t length = make_legacy(file, P(head), "\6\0\0\0\0\0\0", 8);
    length = make_legacy(file, file, length, floats, sizeof floats);
    cr_assert_eq(test_open_class("x.pt", file, length), TC_UNSUPPORTED, "%s", test_error.message);
    cr_assert_str_eq(test_error.code, "byte-order");
}

/* Ties */

Test(pt, the_same_view_of_a_storage_is_tied) {
    static const char pickle[] = DICT(
        "Va\n" TENSOR(SHORTS, "\0", ONE("\4"), ONE("\1")) "Vb\n" TENSOR(SHORTS, "\0", TWO("\2", "\2"), TWO("\2", "\1")) "Vc\n" TENSOR(SHORTS, "\0", ONE("\4"), ONE("\1")) "Vd\n" TENSOR(
            SHORTS, "\1", ONE("\4"),
            ONE("\1")) "Ve\n" TENSOR(SHORTS, "\0", ONE("\4"),
                                     ONE("\2")) "Vf\n" TENSOR(SHORTS, "\0", ONE("\0"),
                                                              ONE("\1")) "Vg\n" TENSOR(SHORTS, "\0",
                                                                                       ONE("\0"),
                                                                                       ONE("\1")) "Vh\n" TENSOR(STORE("ShortStorage",
                                                                                                                      "1",
                                                                                                                      "\14"),
                                                                                                                "\0",
                                                                                                                ONE("\4"),
                                                                                                                ONE("\1")) "Vi\n" TENSOR(SHORTS,
                                                                                                                                         "\0",
                                                                                                                                         ONE("\4"),
                                                                                                                                         ONE("\2")) "Vj\n" TENSOR(SHORTS,
                                                                                                                                                                  "\0",
                                                                                                                                                                  ONE("\4"),
                                                                                                                                                                  ONE("\1")));
    struct tc_reader *reader = test_open(
        make(&(struct archive){P(pickle), .more = {{"x/data/0", shorts, sizeof shorts, false},
                                                   {"x/data/1", shorts, sizeof shorts, false}}}));
    static const uint32_t ties[] = {1, 0, 1, 0, 5, 0, 0, 0, 5, 1};
    cr_assert_eq(reader->table.count, 10);
    for (size_t i = 0; i < 10; i++)
        cr_assert_eq(reader->table.tensors[i].tie, ties[i], "%c: %u", (int)('a' + i),
                     reader->table.tensors[i].tie);
    tc_reader_close(reader);
}

/* Sparse, quantised, metadata */

#define LONGS(key, count) STORE("LongStorage", key, count)
#define SPARSE(layout, parts)                                                                      \
    "ctorch._utils\n_rebuild_sparse_tensor\nctorch.serialization\n_get_layout\nVtorch."            \
    "sparse_" layout "\n\205R(" parts "t\206R"
#define COO                                                                                        \
    SPARSE("coo", TENSOR(LONGS("0", "\4"), "\0", TWO("\2", "\2"), TWO("\2", "\1"))                 \
                      TENSOR(STORE("FloatStorage", "1", "\6"), "\1", ONE("\2"), ONE("\1"))         \
                          TWO("\3", "\5") "\210")
static const int64_t indices[] = {0, 2, 1, 4};

static void expect_role(struct tc_reader *reader, const char *parent, const char *layout,
                        const char *role) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", parent, role);
    const struct tc_tensor *tensor = test_find(reader, name);
    test_expect_metadata(tensor->metadata, "sparse_parent", parent);
    test_expect_metadata(tensor->metadata, "sparse_layout", layout);
    test_expect_metadata(tensor->metadata, "sparse_role", role);
    cr_assert_eq(tensor->metadata->count, 3);
}

Test(pt, sparse_tensors_are_groups) {
    struct tc_reader *reader = test_open(make(&(struct archive){
        P(DICT("Vs\n" COO)),
        .more = {{"x/data/0", indices, sizeof indices, false}, FLOATS("x/data/1")}}));
    cr_assert_eq(reader->table.count, 3);
    EXPECT(reader, "s.indices", TC_I64, "[2,2]", int64_t, 0, 2, 1, 4);
    EXPECT(reader, "s.values", TC_F32, "[2]", float, 1, 2);
    EXPECT(reader, "s.shape", TC_I64, "[2]", int64_t, 3, 5);
    expect_role(reader, "s", "coo", "indices");
    expect_role(reader, "s", "coo", "values");
    expect_role(reader, "s", "coo", "shape");
    struct tc_sparse sparse;
    cr_assert(tc_sparse_of(&reader->table, test_find(reader, "s.values"), &sparse));
    cr_assert(tc_text_equal(sparse.parent, TC_TEXT("s")));
    tc_reader_close(reader);
    static const char csc[] =
        "\200\2" SPARSE("csc", TENSOR(LONGS("0", "\4"), "\0", ONE("\2"), ONE("\1"))
                                   TENSOR(LONGS("0", "\4"), "\2", ONE("\2"), ONE("\1"))
                                       TENSOR(STORE("FloatStorage", "1", "\6"), "\1", ONE("\2"),
                                              ONE("\1")) TWO("\3", "\1")) ".";
    reader = test_open(make(&(struct archive){
        P(csc), .more = {{"x/data/0", indices, sizeof indices, false}, FLOATS("x/data/1")}}));
    EXPECT(reader, "tensor.ccol_indices", TC_I64, "[2]", int64_t, 0, 2);
    EXPECT(reader, "tensor.row_indices", TC_I64, "[2]", int64_t, 1, 4);
    EXPECT(reader, "tensor.values", TC_F32, "[2]", float, 1, 2);
    EXPECT(reader, "tensor.shape", TC_I64, "[2]", int64_t, 3, 1);
    expect_role(reader, "tensor", "csc", "row_indices");
    tc_reader_close(reader);
    refused(
        make(&(struct archive){P(DICT("Vs\n" SPARSE("xyz", "NN)"))), .more = {FLOATS("x/data/1")}}),
        TC_INVALID, "tensor");
    refused(
        make(&(struct archive){P(DICT("Vs\n" SPARSE("coo", "NN)"))), .more = {FLOATS("x/data/1")}}),
        TC_INVALID, "tensor");
}

#define QUANTISED(how)                                                                             \
    "ctorch._utils\n_rebuild_qtensor\n(" STORE("QInt8Storage", "0", "\4") "K\0" TWO("\2", "\2")    \
        TWO("\2", "\1") "(" how "t\211}tR"

Test(pt, quantised_tensors_say_how) {
    static const double scales[] = {0.5, 0.25};
    static const int64_t zeros[] = {1, -2};
    static const char pickle[] =
        DICT("Vq\n" QUANTISED("ctorch\nper_tensor_affine\nG?\340\0\0\0\0\0\0K\3") "Vc\n" QUANTISED(
            "ctorch\nper_channel_affine\n" TENSOR(STORE("DoubleStorage", "1", "\2"), "\0",
                                                  ONE("\2"), ONE("\1"))
                TENSOR(LONGS("2", "\2"), "\0", ONE("\2"), ONE("\1")) "K\1"));
    struct tc_reader *reader = test_open(
        make(&(struct archive){P(pickle), .more = {{"x/data/0", "\1\2\375\4", 4, false},
                                                   {"x/data/1", scales, sizeof scales, false},
                                                   {"x/data/2", zeros, sizeof zeros, false}}}));
    cr_assert_eq(reader->table.count, 4);
    EXPECT(reader, "q", TC_I8, "[2,2]", int8_t, 1, 2, -3, 4);
    const struct tc_metadata *metadata = test_find(reader, "q")->metadata;
    test_expect_metadata(metadata, "quant.scheme", "per_tensor_affine");
    test_expect_metadata(metadata, "quant.scale", "0.5");
    test_expect_metadata(metadata, "quant.zero_point", "3");
    cr_assert_eq(metadata->count, 3);
    EXPECT(reader, "c", TC_I8, "[2,2]", int8_t, 1, 2, -3, 4);
    EXPECT(reader, "c.scales", TC_F64, "[2]", double, 0.5, 0.25);
    EXPECT(reader, "c.zero_points", TC_I64, "[2]", int64_t, 1, -2);
    metadata = test_find(reader, "c")->metadata;
    test_expect_metadata(metadata, "quant.scheme", "per_channel_affine");
    test_expect_metadata(metadata, "quant.axis", "1");
    cr_assert_eq(metadata->count, 2);
    tc_reader_close(reader);
}

Test(pt, what_is_no_tensor_is_metadata) {
    static const char pickle[] =
        DICT("Vepoch\nK\3Vlr\nG?\271\231\231\231\231\231\232Vname\nVa\"b\nVnone\nNVyes\n\210"
             "Vlist\n(K\1F2\nVx\n\210NlVempty\n}Vnan\nFnan\nVlong\n\212\11\0\0\0\0\0\0\0\0\1"
             "Vdeep\n](K\1}Va\nK\2seVz\ncbuiltins\ncomplex\nF1\nF-2.5\n\206R"
             "Vdevice\nctorch\ndevice\nVcuda\nK\1\206RVdtype\nctorch\nbfloat16\nVbytes\nC\2a\377"
             "Vbig\nF1e22\nK\7Vseven\n");
    struct tc_reader *reader = test_open(make(&(struct archive){P(pickle)}));
    const struct tc_metadata *metadata = &reader->table.metadata;
    static const char *const expected[][2] = {
        {"epoch", "3"},
        {"lr", "0.1"},
        {"name", "a\"b"},
        {"none", "null"},
        {"yes", "true"},
        {"list", "[1,2.0,\"x\",true,null]"},
        {"empty", "{}"},
        {"nan", "\"NaN\""},
        {"deep.0", "1"},
        {"deep.1.a", "2"},
        {"z", "[1.0,-2.5]"},
        {"device", "cuda:1"},
        {"dtype", "torch.bfloat16"},
        {"bytes", "\"\\u0061\\u00ff\""},
        {"big", "1e+22"},
        {"7", "seven"},
        {"long", "18446744073709551616"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        test_expect_metadata(metadata, expected[i][0], expected[i][1]);
    cr_assert_eq(metadata->count, sizeof expected / sizeof *expected);
    tc_reader_close(reader);
}

Test(pt, names_follow_the_way_to_a_tensor) {
    static const char pickle[] =
        "\200\2(}Va\n" SHORT "s]}K\5(" SHORT "Nlsac__builtin__\nset\n]" SHORT "a\205Rt.";
    struct tc_reader *reader = test_open(
        make(&(struct archive){P(pickle), .more = {{"x/data/0", shorts, sizeof shorts, false}}}));
    static const char *const names[] = {"0.a", "1.0.5.0", "2.0"};
    cr_assert_eq(reader->table.count, 3);
    for (size_t i = 0; i < 3; i++)
        cr_assert(tc_text_equal(reader->table.tensors[i].name, tc_text_of(names[i])), "%.*s",
                  (int)reader->table.tensors[i].name.length, reader->table.tensors[i].name.bytes);
    test_expect_metadata(&reader->table.metadata, "1.0.5.1", "null");
    tc_reader_close(reader);
    /* A key that comes again has its last value, as in Python. */
    reader =
        test_open(make(&(struct archive){P(DICT("Va\nK\1Vb\nK\2Va\n" SHORT)),
                                         .more = {{"x/data/0", shorts, sizeof shorts, false}}}));
    EXPECT(reader, "a", TC_I16, "[1]", int16_t, 0);
    test_expect_metadata(&reader->table.metadata, "b", "2");
    cr_assert_eq(reader->table.metadata.count, 1);
    tc_reader_close(reader);
}

/* Hostile files */

Test(pt, refusals) {
#define BOMB "](" SHORT "e"
    static const struct {
        const char *pickle;
        size_t length;
        enum tc_class class;
        const char *code;
    } cases[] = {
        {P("cos\nsystem\nVls\n\205R."), TC_UNSAFE, "pickle-global"},
        {P("\200\4\214\5posix\214\6system\223\214\2ls\205R."), TC_UNSAFE, "pickle-global"},
        {P("\200\2cbuiltins\neval\n."), TC_UNSAFE, "pickle-global"},
        {P("\200\2c__torch__\nModule\n)\201}b."), TC_UNSAFE, "pickle-global"},
        {P("\200\2\202\1."), TC_UNSAFE, "pickle-unsafe"},
        {P("\200\2(Vmodule\ncos\nsystem\nVf\nVs\ntQ."), TC_UNSAFE, "pickle-global"},
        {P("\200\2(Vmodule\ntQ."), TC_UNSAFE, "pickle-module"},
        {P("\200\2]q\0h\0a."), TC_UNSUPPORTED, "nothing-left"}, /* it holds itself */
        {P("\200\2]Nb."), TC_UNSAFE, "pickle-unsafe"},
        {P(DICT("Va\n" SHORT) "N."), TC_INVALID, "trailing"},
        {P("\200\6N."), TC_UNSUPPORTED, "pickle-protocol"},
        {P(DICT("Va\n" STORE("ShortStorage", "9", "\14"))), TC_INVALID, "storage"},
        {P(DICT("Va\n" STORE("ShortStorage", "0", "\13"))), TC_INVALID, "storage"},
        {P(DICT("Va\n" SHORTS "Vb\n" STORE("HalfStorage", "0", "\14"))), TC_INVALID, "storage"},
        {P("\200\2(Vstorage\nNV0\nVcpu\nK\1tQ."), TC_INVALID, "persistent-id"},
        {P("\200\2Vstorage\nQ."), TC_INVALID, "persistent-id"},
        {P("\200\2(Vother\ntQ."), TC_INVALID, "persistent-id"},
        {P("\200\2ctorch._utils\n_rebuild_tensor_v2\n(" SHORTS "J\377\377\377\377" ONE("\1")
               ONE("\1") "\211}tR."),
         TC_INVALID, "tensor"},
        {P("\200\2ctorch._utils\n_rebuild_tensor_v2\n(" SHORTS "K\0" ONE("\1") ")\211}tR."),
         TC_INVALID, "tensor"},
        {P("\200\2ctorch._utils\n_rebuild_tensor_v2\n(NK\0))\211}tR."), TC_INVALID, "tensor"},
        {P("\200\2ctorch._utils\n_rebuild_nested_tensor\n)R."), TC_UNSUPPORTED, "nothing-left"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int packed = 0; packed < 2; packed++) {
            const char *path =
                make(&(struct archive){cases[i].pickle, cases[i].length, .packed = packed,
                                       .more = {{"x/data/0", shorts, sizeof shorts, false}}});
            cr_assert_eq(test_file_class(path), cases[i].class, "case %zu: class %d: %s", i,
                         (int)test_error.class, test_error.message);
            cr_assert_str_eq(test_error.code, cases[i].code, "case %zu: %s", i, test_error.message);
            /* A place in the packed pickle is none in the file. */
            cr_assert(!packed || !test_error.has_offset, "case %zu: offset %llu", i,
                      (unsigned long long)test_error.offset);
        }
}

Test(pt, archives_that_are_not_whole) {
    static const struct {
        struct test_member members[3];
        size_t count;
        enum tc_class class;
    } cases[] = {
        {{{"x/data.pkl", "\200\2}.", 4, false}, {"x/version", "3\n", 2, false}}, 2, TC_OK},
        {{{"x/data.pkl", "\200\2}.", 4, false}, {"x/version", "10", 2, false}}, 2, TC_OK},
        {{{"x/data.pkl", "\200\2}.", 4, false}}, 1, TC_INVALID},
        {{{"x/data.pkl", "\200\2}.", 4, false}, {"x/version", "11", 2, false}}, 2, TC_UNSUPPORTED},
        {{{"x/data.pkl", "\200\2}.", 4, false}, {"x/version", "x", 1, false}}, 2, TC_INVALID},
        {{{"x/data.pkl", "\200\2}.", 4, false}, {"x/version", "", 0, false}}, 2, TC_INVALID},
        {{{"x/data.pkl", "\200\2}.", 4, false},
          {"x/version", "3\n", 2, false},
          {"y/data.pkl", "\200\2}.", 4, false}},
         3,
         TC_INVALID},
        {{{"x/data.pkl", "\200\2}.", 4, false},
          {"x/version", "3\n", 2, false},
          {"y/data/0", "", 0, false}},
         3,
         TC_INVALID},
        {{{"x/data.pkl", "\200\2}.", 4, false},
          {"x/version", "3\n", 2, false},
          {"x/byteorder", "middle", 6, false}},
         3,
         TC_INVALID},
        {{{"x/data.pkl", "\200\2}.", 4, false},
          {"x/version", "3\n", 2, false},
          {"x/version", "3\n", 2, false}},
         3,
         TC_INVALID},
        {{{"x/data.pkl", "\200\2}.", 4, false},
          {"x/version", "3\n", 2, false},
          {"x/tconv.json", "{\"metadata\":1}", 14, false}},
         3,
         TC_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = test_path("x.pt");
        test_write_zip(path, cases[i].members, cases[i].count);
        cr_assert_eq(test_file_class(path), cases[i].class, "case %zu: class %d: %s", i,
                     (int)test_error.class, test_error.message);
    }
}

/* A whole module is refused; on demand its tensors are taken out. */
Test(pt, inert_reading_of_a_module) {
    const char *path = TESTDATA "/pt/whole_module.pt";
    refused(path, TC_UNSAFE, "pickle-global");
    cr_assert(strstr(test_error.hint, "--pickle=inert"));
    struct tc_format_options options = test_options;
    struct tc_error error = {0};
    const struct tc_option_setting inert = {&pickle_mode_option, {.choice = PICKLE_OPTION_INERT}};
    options.settings = (struct tc_option_settings){&inert, 1};
    struct tc_reader *reader = tc_registry_open(path, NULL, &options, &error);
    cr_assert_not_null(reader, "%s", error.message);
    cr_assert_gt(reader->table.count, 0);
    cr_assert_gt(tc_notes_count(&reader->notes, TC_LOSS, TC_KINDS), 0);
    cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "torch.nn.modules"));
    tc_reader_close(reader);
    /* Parameters and buffers by their names, a module's own first. */
    static const char module[] =
        "\200\2cmy\nNet\n)\201}(Vtraining\n\210V_parameters\n}Vw\n" SHORT
        "sV_buffers\n}Vm\nNsV_modules\n}Vsub\ncmy\nNet\n)\201}V_parameters\n}Vw\n" SHORT "ssbsub.";
    path = make(&(struct archive){P(module), .more = {{"x/data/0", shorts, sizeof shorts, false}}});
    cr_assert_eq(test_file_class(path), TC_UNSAFE);
    reader = tc_registry_open(path, NULL, &options, &error);
    cr_assert_not_null(reader, "%s", error.message);
    cr_assert_eq(reader->table.count, 2);
    cr_assert(tc_text_equal(reader->table.tensors[0].name, TC_TEXT("w")));
    cr_assert(tc_text_equal(reader->table.tensors[1].name, TC_TEXT("sub.w")));
    cr_assert_eq(reader->table.metadata.count, 0, "what a module holds beside is left out");
    cr_assert(tc_notes_tell(&reader->notes, TC_LOSS, "my.Net"));
    tc_reader_close(reader);
}

Test(pt, a_few_bytes_do_not_make_a_terabyte) {
    /* A storage of one byte, shown 2^40 times over. */
    static const char pickle[] = DICT("Va\nctorch._utils\n_rebuild_tensor_v2\n(" STORE(
        "ByteStorage", "0", "\1") "K\0"
                                  "\212\6\0\0\0\0\0\1\205" ONE("\0") "\211}tR");
    refused(make(&(struct archive){P(pickle), .more = {{"x/data/0", "x", 1, false}}}), TC_UNSAFE,
            "size-limit");
    cr_assert(strstr(test_error.hint, "--max-size"));
    /* A list of two of the one before, thirty times: 2^30 leaves. */
    struct tc_buffer bomb = {0};
    tc_buffer_add(&bomb, P("\200\2]Na"));
    for (int i = 0; i < 30; i++)
        tc_buffer_add(&bomb, P("2\206"));
    tc_buffer_add(&bomb, ".", 1);
    refused(make(&(struct archive){bomb.bytes, bomb.length}), TC_UNSAFE, "pickle-limit");
    bomb.length = 2;
    for (int i = 0; i < 2000; i++)
        tc_buffer_add(&bomb, "]", 1);
    tc_buffer_add(&bomb, "N", 1);
    for (int i = 0; i < 2000; i++)
        tc_buffer_add(&bomb, "a", 1);
    tc_buffer_add(&bomb, ".", 1);
    refused(make(&(struct archive){bomb.bytes, bomb.length}), TC_UNSAFE, "pickle-limit");
    tc_buffer_release(&bomb);
}
