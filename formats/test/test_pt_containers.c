/* What torch's files are packed in: zip, the two legacy containers, plain pickles. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/select.h"
#include "formats/test/make_pt.h"
#include "formats/test/support.h"

static void expect_state(struct tc_reader *reader) {
    cr_assert_eq(reader->table.count, 2);
    EXPECT(reader, "a", TC_F32, "[2,3]", float, 0, 1, 2, 3, 4, 5);
    EXPECT(reader, "b", TC_F32, "[3]", float, 2, 3, 4);
    cr_assert_eq(reader->table.metadata.count, 0);
    cr_assert_str_eq(reader->backend->name, "pt");
}

Test(pt, a_zip) {
    struct tc_reader *reader =
        test_open(make(&(struct archive){P(STATE), .more = {FLOATS("x/data/0")}}));
    expect_state(reader);
    cr_assert(has_extent(reader, "a") && has_extent(reader, "b"));
    tc_reader_close(reader);
}

#define SIX(key) TENSOR(STORE("FloatStorage", key, "\6"), "\0", ONE("\6"), ONE("\1"))

/* The table refuses a name with a NUL. Where nobody selected that tensor the file opens, and
 * tensors behind it share data only with those that they share a storage with. */
Test(pt, a_refused_name_does_not_move_what_shares_data) {
    static const float others[] = {6, 7, 8, 9, 10, 11};
    struct tc_select select;
    struct tc_error error = {0};
    tc_select_init(&select);
    cr_assert(tc_select_exclude(&select, "^x", &error));
    const char *path = make(&(struct archive){
        P(DICT("Vx\\u0000y\n" SIX("0") "Va\n" SIX("1") "Vb\n" SIX("1") "Vc\n" SIX("2"))),
        .more = {
            FLOATS("x/data/0"), FLOATS("x/data/1"), {"x/data/2", others, sizeof others, false}}});
    refused(path, TC_INVALID, "name-nul");
    test_options.select = &select;
    struct tc_reader *reader = test_open(path);
    cr_assert_eq(reader->table.count, 3);
    cr_assert_eq(test_find(reader, "a")->tie, 1);
    cr_assert_eq(test_find(reader, "b")->tie, 1);
    cr_assert_eq(test_find(reader, "c")->tie, 0);
    EXPECT(reader, "c", TC_F32, "[6]", float, 6, 7, 8, 9, 10, 11);
    tc_reader_close(reader);
    tc_select_release(&select);
}

Test(pt, a_legacy_file) {
    static const char head[] = LEGACY("\210", STATE, "V0\na");
    char file[2000];
    size_t length = make_legacy(file, P(head), "\6\0\0\0\0\0\0", 8);
    length = make_legacy(file, file, length, floats, sizeof floats);
    test_write(test_path("x.pt"), file, length);
    struct tc_reader *reader = test_open(test_path("x.pt"));
    expect_state(reader);
    cr_assert(has_extent(reader, "a"));
    tc_reader_close(reader);
    for (size_t cut = 0; cut < length; cut++)
        cr_assert_eq(test_open_class("cut.pt", file, cut), TC_INVALID, "cut at %zu: %s", cut,
                     test_error.message);
    file[length] = 0;
    cr_assert_eq(test_open_class("x.pt", file, length + 1), TC_INVALID);
    cr_assert_str_eq(test_error.code, "trailing");
    file[sizeof head - 1] = 5; /* another count than the pickle's */
    cr_assert_eq(test_open_class("x.pt", file, length), TC_INVALID);
    cr_assert_str_eq(test_error.code, "storage");
}

/* Storages that are parts of others; two keys, the second first. */
#define PART(key, part) "(Vstorage\nctorch\nShortStorage\nV" key "\nVcpu\nK\4" part "tQ"

Test(pt, a_legacy_file_of_several_storages_and_parts) {
    static const char head[] = LEGACY(
        "\210",
        DICT("Va\n" TENSOR(PART("A", "(Vv\nK\1K\3t"), "\1", ONE("\2"), ONE("\1")) "Vb\n" TENSOR(
            PART("B", "N"), "\0", ONE("\4"), ONE("\1")) "Vc\n" PART("A", "(Vw\nK\2K\2t")),
        "VB\naVA\na");
    static const char data[] = "\4\0\0\0\0\0\0\0"
                               "\1\0\2\0\3\0\4\0"
                               "\4\0\0\0\0\0\0\0"
                               "\5\0\6\0\7\0\10\0";
    char file[2000];
    size_t length = make_legacy(file, P(head), P(data));
    test_write(test_path("x.pt"), file, length);
    struct tc_reader *reader = test_open(test_path("x.pt"));
    EXPECT(reader, "a", TC_I16, "[2]", int16_t, 7, 8);
    EXPECT(reader, "b", TC_I16, "[4]", int16_t, 1, 2, 3, 4);
    EXPECT(reader, "c", TC_I16, "[2]", int16_t, 7, 8);
    tc_reader_close(reader);
    static const char past[] =
        LEGACY("\210", DICT("Va\n" TENSOR(PART("A", "(Vv\nK\1K\2t"), "\1", ONE("\2"), ONE("\1"))),
               "VA\na");
    length = make_legacy(file, P(past), data, 16);
    cr_assert_eq(test_open_class("x.pt", file, length), TC_INVALID,
                 "past the part, not the storage");
    cr_assert_str_eq(test_error.code, "view");
}

static void add_tar(struct tc_buffer *tar, const char *name, const void *bytes, size_t length) {
    char header[512] = {0};
    unsigned sum = 0;
    snprintf(header, 100, "%s", name);
    snprintf(header + 100, 8, "0000644");
    snprintf(header + 124, 12, "%011zo", length);
    snprintf(header + 136, 12, "00000000000");
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (size_t i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    tc_buffer_add(tar, header, 512);
    tc_buffer_add(tar, bytes, length);
    static const char zeros[512];
    tc_buffer_add(tar, zeros, (512 - length % 512) % 512);
}

#define I64(n) n "\0\0\0\0\0\0\0"
#define TAR_STORAGES                                                                               \
    "K\1.(K\7Vcpu\nctorch\nFloatStorage\nt." I64(                                                  \
        "\6") "\0\0\0\0\0\0\200\77\0\0\0\100\0\0\100\100\0\0\200\100\0\0\240\100]("                \
              "K\11K\7K\2K\4ta."
#define TAR_TENSORS                                                                                \
    "K\2."                                                                                         \
    "(K\1K\7ctorch\nFloatTensor\nt.\2\0\0\0\0\0\0\0" I64("\2") I64("\3") I64("\3") I64("\1")       \
        I64("\0") "(K\2K\11ctorch\nFloatTensor\nt.\1\0\0\0\0\0\0\0" I64("\3") I64("\1") I64("\0")

static void make_tar(struct tc_buffer *tar) {
    static const char zeros[1024];
    add_tar(tar, "./sys_info", P("}Vlittle_endian\n\210s."));
    add_tar(tar, "./pickle", P("}Va\nK\1QsVb\nK\2Qs."));
    add_tar(tar, "./tensors", P(TAR_TENSORS));
    add_tar(tar, "./storages", P(TAR_STORAGES));
    tc_buffer_add(tar, zeros, 1024);
    cr_assert(!tar->failed);
}

Test(pt, a_tar) {
    struct tc_buffer tar = {0};
    make_tar(&tar);
    test_write(test_path("x.pt"), tar.bytes, tar.length);
    struct tc_reader *reader = test_open(test_path("x.pt"));
    expect_state(reader);
    cr_assert(has_extent(reader, "b"));
    tc_reader_close(reader);
    for (size_t cut = 0; cut <= tar.length - 1024; cut += cut < 512 ? 64 : 512)
        cr_assert_eq(test_open_class("cut.pt", tar.bytes, cut), TC_INVALID, "cut at %zu: %s", cut,
                     test_error.message);
    tar.bytes[0] ^= 1;
    cr_assert_eq(test_open_class("x.pt", tar.bytes, tar.length), TC_INVALID);
    cr_assert(strstr(test_error.message, "checksum"), "%s", test_error.message);
    tc_buffer_release(&tar);
}

/* A header's checksum, once it was changed. */
static void sum_tar(char *header) {
    unsigned sum = 0;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += (unsigned char)header[i];
    snprintf(header + 148, 8, "%06o", sum);
}

Test(pt, a_tar_that_is_none_of_torch) {
    struct tc_buffer tar = {0};
    static const char zeros[1024];
    add_tar(&tar, "readme", P("hello"));
    tc_buffer_add(&tar, zeros, 1024);
    cr_assert_eq(test_open_class("x.pt", tar.bytes, tar.length), TC_UNSUPPORTED, "%s",
                 test_error.message);
    cr_assert_str_eq(test_error.code, "wrong-file");
    tc_buffer_release(&tar);
    make_tar(&tar);
    tar.bytes[156] = '2'; /* a symbolic link */
    sum_tar(tar.bytes);
    cr_assert_eq(test_open_class("x.pt", tar.bytes, tar.length), TC_UNSAFE);
    tar.bytes[156] = '0';
    memcpy(tar.bytes, "../sys_info", 11);
    sum_tar(tar.bytes);
    cr_assert_eq(test_open_class("x.pt", tar.bytes, tar.length), TC_UNSAFE);
    memcpy(tar.bytes, "sys_inf\0\0\0\0", 11);
    sum_tar(tar.bytes);
    cr_assert_eq(test_open_class("x.pt", tar.bytes, tar.length), TC_INVALID);
    cr_assert(strstr(test_error.message, "no member sys_info"), "%s", test_error.message);
    tc_buffer_release(&tar);
}

#define ARRAY(shape, dtype, order, fortran, data)                                                  \
    "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\205C\1btR(K\1" shape              \
    "cnumpy\ndtype\nV" dtype "\n\211\210\207R(K\3V" order "\nNNNJ\377\377\377\377J\377\377\377"    \
    "\377K\0tb" fortran data "tb"

Test(pt, a_plain_pickle_of_arrays) {
    static const char pickle[] = DICT("Vc\n" ARRAY(
        TWO("\2", "\3"), "i2", "<", "\211",
        "C\14\1\0\2\0\3\0\4\0\5\0\6\0") "Vf\n" ARRAY(TWO("\2", "\3"), "i2", "<", "\210",
                                                     "C\14\1\0\2\0\3\0\4\0\5\0\6"
                                                     "\0") "Vb\n" ARRAY(ONE("\2"), "i2", ">",
                                                                        "\211",
                                                                        "C\4\1\2\3"
                                                                        "\4") "Vs"
                                                                              "\nc"
                                                                              "num"
                                                                              "py."
                                                                              "cor"
                                                                              "e."
                                                                              "mul"
                                                                              "tia"
                                                                              "rra"
                                                                              "y\n"
                                                                              "sca"
                                                                              "lar"
                                                                              "\nc"
                                                                              "num"
                                                                              "py"
                                                                              "\nd"
                                                                              "typ"
                                                                              "e\n"
                                                                              "Vu1"
                                                                              "\n"
                                                                              "\211\210\207RC\1\7"
                                                                              "\206R"
                                                                              "Ve"
                                                                              "\nK"
                                                                              "\3");
    const char *path = test_path("x.pkl");
    test_write(path, P(pickle));
    struct tc_reader *reader = test_open(path);
    EXPECT(reader, "c", TC_I16, "[2,3]", int16_t, 1, 2, 3, 4, 5, 6);
    EXPECT(reader, "f", TC_I16, "[2,3]", int16_t, 1, 3, 5, 2, 4, 6);
    EXPECT(reader, "b", TC_I16, "[2]", int16_t, 0x0102, 0x0304);
    EXPECT(reader, "s", TC_U8, "[]", uint8_t, 7);
    test_expect_metadata(&reader->table.metadata, "e", "3");
    cr_assert(!has_extent(reader, "c"), "bytes in memory lie in no file as they are");
    tc_reader_close(reader);
    for (size_t cut = 0; cut < sizeof pickle - 1; cut++)
        cr_assert_eq(test_open_class("cut.pkl", pickle, cut), TC_INVALID, "cut at %zu: %s", cut,
                     test_error.message);
    cr_assert_eq(test_open_class("x.pkl", pickle, sizeof pickle), TC_INVALID);
    cr_assert_str_eq(test_error.code, "trailing");
}

/* An array of more than 4 KiB is read where it lies. */
Test(pt, a_large_array_of_a_plain_pickle_lies_in_the_file) {
    static const char head[] = "\200\2}Va\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray"
                               "\nK\0\205C\1btR(K\1M\210\23\205cnumpy\ndtype\nVu1\n\211\210\207R"
                               "\211B\210\23\0";
    static char file[sizeof head + 5000 + 4];
    memcpy(file, head, sizeof head); /* its NUL is the length's last byte */
    for (size_t i = 0; i < 5000; i++)
        file[sizeof head + i] = (char)(i % 251);
    memcpy(file + sizeof head + 5000, "tbs.", 4);
    test_write(test_path("x.pkl"), file, sizeof file);
    struct tc_reader *reader = test_open(test_path("x.pkl"));
    test_expect(reader, "a", TC_U8, "[5000]", file + sizeof head, 5000);
    struct tc_extent extent;
    cr_assert(tc_reader_extent(reader, test_find(reader, "a"), &extent));
    cr_assert_eq(extent.offset, sizeof head);
    tc_reader_close(reader);
}

Test(pt, protocols_hold_the_same) {
    static const char *const files[][2] = {{"/pt/numpy_dict_p2.pkl", "/pt/numpy_dict_p4.pkl"},
                                           {"/pt/numpy_dict_p2.pkl", "/pt/numpy_dict_p5.pkl"},
                                           {"/pt/protocol2.pt", "/pt/protocol3.pt"},
                                           {"/pt/protocol2.pt", "/pt/protocol4.pt"},
                                           {"/pt/protocol2.pt", "/pt/protocol5.pt"},
                                           {"/pt/protocol2.pt", "/pt/legacy_protocol2.pt"},
                                           {"/pt/protocol2.pt", "/pt/legacy_protocol4.pt"},
                                           {"/pt/views.pt", "/pt/views_legacy.pt"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[2][256];
        char *digest[2];
        for (size_t f = 0; f < 2; f++) {
            snprintf(path[f], sizeof path[f], TESTDATA "%s", files[i][f]);
            digest[f] = test_digest(path[f]);
        }
        cr_assert_gt(strlen(digest[0]), 64);
        cr_assert_str_eq(digest[0], digest[1], "%s, %s", path[0], path[1]);
        free(digest[0]);
        free(digest[1]);
    }
}
