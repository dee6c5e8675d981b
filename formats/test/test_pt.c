/*
 * Torch's files, made here opcode by opcode and byte by byte. Text in these
 * pickles is protocol 0's (V…\n), which needs no length.
 */
#include <criterion/criterion.h>
#include <stdio.h>
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
#include "core/tensor/select.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/pickle/option.h"
#include "formats/registry.h"
#include "formats/test/make_zip.h"
#include "formats/test/support.h"

TestSuite(pt, .init = test_folder_make, .fini = test_folder_remove);

#define P(literal) (literal), sizeof(literal) - 1

/* A storage, a tensor of it, and a dict; counts are opcodes' bytes. */
#define STORE(class, key, count) "(Vstorage\nctorch\n" class "\nV" key "\nVcpu\nK" count "tQ"
#define TENSOR(store, offset, sizes, strides)                                                      \
    "ctorch._utils\n_rebuild_tensor_v2\n(" store "K" offset sizes strides "\211}tR"
#define NOTED(store, sizes, strides, notes)                                                        \
    "ctorch._utils\n_rebuild_tensor_v2\n(" store "K\0" sizes strides "\211}" notes "tR"
#define DICT(items) "\200\2}(" items "u."
#define ONE(n) "K" n "\205"
#define TWO(a, b) "K" a "K" b "\206"

/* x.pt: the pickle and up to four more members. */
struct archive {
    const void *pickle;
    size_t length;
    struct test_member more[4];
    bool packed;
    bool big;
};

static const char *make(const struct archive *archive) {
    struct test_member members[7] = {
        {"x/data.pkl", archive->pickle, archive->length, archive->packed},
        {"x/version", "3\n", 2, false},
        {"x/byteorder", archive->big ? "big" : "little", archive->big ? 3 : 6, false}};
    size_t count = 3;
    for (size_t i = 0; i < 4 && archive->more[i].name; i++)
        members[count++] = archive->more[i];
    const char *path = test_path("x.pt");
    test_write_zip(path, members, count);
    return path;
}

#define EXPECT(reader, name, dtype, shape, type, ...)                                              \
    test_expect(reader, name, dtype, shape, (const type[]){__VA_ARGS__},                           \
                sizeof(type[]){__VA_ARGS__})

static bool has_extent(struct tc_reader *reader, const char *name) {
    struct tc_extent extent;
    return tc_reader_extent(reader, test_find(reader, name), &extent);
}

static void refused(const char *path, enum tc_class class, const char *code) {
    cr_assert_eq(test_file_class(path), class, "class %d: %s", (int)test_error.class,
                 test_error.message);
    cr_assert_str_eq(test_error.code, code, "%s", test_error.message);
}

static const float floats[] = {0, 1, 2, 3, 4, 5};
#define FLOATS(name)                                                                               \
    { name, floats, sizeof floats, false }

/* Containers */

#define STATE                                                                                      \
    DICT("Va\n" TENSOR(STORE("FloatStorage", "0", "\6"), "\0", TWO("\2", "\3"),                    \
                       TWO("\3", "\1")) "Vb\n" TENSOR(STORE("FloatStorage", "0", "\6"), "\2",      \
                                                      ONE("\3"), ONE("\1")))

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

/* The five pickles before an old file's storages. */
#define LEGACY(order, object, keys)                                                                \
    "\200\2\212\12\154\374\234\106\371\40\152\250\120\31."                                         \
    "\200\2M\351\3."                                                                               \
    "\200\2}(Vprotocol_version\nM\351\3Vlittle_endian\n" order                                     \
    "Vtype_sizes\n}(Vshort\nK\2Vint\nK\4Vlong\nK\4uu." object "\200\2]" keys "."

static size_t make_legacy(char *file, const void *head, size_t length, const void *data,
                          size_t nbytes) {
    memcpy(file, head, length);
    memcpy(file + length, data, nbytes);
    return length + nbytes;
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

/* Views */

#define SHORTS STORE("ShortStorage", "0", "\14")
static const int16_t shorts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
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

/* Writing */

/* Writes out.pt, and loads it. */
static char *write_pt(const char *source, size_t *length) {
    const char *out = test_path("out.pt");
    cr_assert_eq(test_convert(source, out, tc_registry_named("pt"), NULL, NULL), TC_OK, "%s",
                 test_error.message);
    return test_load(out, length);
}

static void expect_member(const char *zip, size_t length, const char *name, const void *bytes,
                          size_t expected) {
    size_t size;
    const char *member = test_zip_find(zip, length, name, &size);
    cr_assert_not_null(member, "there is no %s", name);
    cr_assert_eq(size, expected, "%s has %zu bytes", name, size);
    cr_assert_arr_eq(member, bytes, size, "%s", name);
}

#define WRITTEN_STORE(class, key, count)                                                           \
    "(X\7\0\0\0storageq\2ctorch\n" class "\nq\3X\1\0\0\0" key "X\3\0\0\0cpuq\4K" count "tQ"

Test(pt, a_file_of_one_tensor) {
    static const char pickle[] =
        "\200\2ccollections\nOrderedDict\nq\0)R(X\1\0\0\0w"
        "ctorch._utils\n_rebuild_tensor_v2\nq\1(" WRITTEN_STORE(
            "FloatStorage", "0", "\6") "K\0K\2K\3\206K\3K\1\206\211h\0)RtRu.";
    size_t length;
    char *zip = write_pt(
        test_make_safetensors("{" TEST_ENTRY("w", "F32", "[2,3]", "[0,24]") "}", floats, 24),
        &length);
    expect_member(zip, length, "archive/data.pkl", P(pickle));
    expect_member(zip, length, "archive/byteorder", P("little"));
    expect_member(zip, length, "archive/version", P("3\n"));
    expect_member(zip, length, "archive/data/0", floats, 24);
    /* Nothing else: no .format_version, no .storage_alignment, no metadata. */
    cr_assert_eq(test_zip_count(zip, length, ""), 4);
    free(zip);
}

/* A dtype that has no class of storage: untyped bytes, and its name. */
Test(pt, a_file_of_a_new_dtype) {
    static const char pickle[] =
        "\200\2ccollections\nOrderedDict\nq\0)R(X\1\0\0\0w"
        "ctorch._utils\n_rebuild_tensor_v3\nq\1((X\7\0\0\0storageq\2ctorch.storage\nUntypedStorage"
        "\nq\3X\1\0\0\0"
        "0X\3\0\0\0cpuq\4K\10tQK\0K\4\205K\1\205\211h\0)Rctorch\nuint16\nq\5tRu.";
    size_t length;
    char *zip = write_pt(
        test_make_safetensors("{" TEST_ENTRY("w", "U16", "[4]", "[0,8]") "}", shorts, 8), &length);
    expect_member(zip, length, "archive/data.pkl", P(pickle));
    free(zip);
    struct tc_reader *reader = test_open(test_path("out.pt"));
    EXPECT(reader, "w", TC_U16, "[4]", uint16_t, 0, 1, 2, 3);
    tc_reader_close(reader);
}

Test(pt, every_dtype_comes_back) {
    static const enum tc_dtype dtypes[] = {
        TC_BOOL,    TC_U8,      TC_I8,      TC_U16,         TC_I16,         TC_U32, TC_I32,
        TC_U64,     TC_I64,     TC_F16,     TC_BF16,        TC_F32,         TC_F64, TC_C64,
        TC_F8_E4M3, TC_F8_E5M2, TC_F8_E8M0, TC_F8_E4M3FNUZ, TC_F8_E5M2FNUZ, TC_F4};
    static const unsigned char data[16] = {1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 1, 0};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char header[200];
        size_t length;
        unsigned count = 128 / tc_dtype_bits(dtypes[i]);
        snprintf(header, sizeof header, "{" TEST_ENTRY("w", "%s", "[%u]", "[0,16]") "}",
                 tc_dtype_name(dtypes[i]), count);
        free(write_pt(test_make_safetensors(header, data, 16), &length));
        struct tc_reader *reader = test_open(test_path("out.pt"));
        snprintf(header, sizeof header, "[%u]", count);
        test_expect(reader, "w", dtypes[i], header, data, 16);
        cr_assert(has_extent(reader, "w"));
        tc_reader_close(reader);
    }
}

Test(pt, data_is_aligned) {
    size_t length;
    char *zip = write_pt(TESTDATA "/npz/stored.npz", &length);
    size_t count = test_zip_count(zip, length, "archive/data/");
    struct tc_reader *reader = test_open(test_path("out.pt"));
    cr_assert_eq(count, reader->table.count);
    cr_assert_gt(count, 3);
    tc_reader_close(reader);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        size_t size;
        snprintf(name, sizeof name, "archive/data/%zu", i);
        const char *data = test_zip_find(zip, length, name, &size);
        cr_assert_not_null(data, "%s", name);
        cr_assert_eq((data - zip) % 64, 0, "%s", name);
    }
    size_t size;
    cr_assert_null(test_zip_find(zip, length, "archive/.format_version", &size));
    cr_assert_null(test_zip_find(zip, length, "archive/.storage_alignment", &size));
    const char *pickle = test_zip_find(zip, length, "archive/data.pkl", &size);
    cr_assert(pickle && memcmp(pickle, "\200\2", 2) == 0, "not protocol 2");
    free(zip);
}

/* Sizes of every width, as an empty tensor may have them. Beyond 32 bits it is
 * LONG1 of eight bytes, the only form that libtorch takes. */
Test(pt, numbers_of_every_width) {
    static const struct {
        const char *shape;
        const char *sizes;
        size_t length;
    } cases[] = {
        {"[0,255]", P("K\0K\377\206K\377K\1\206")},
        {"[0,256]", P("K\0M\0\1\206M\0\1K\1\206")},
        {"[0,65535]", P("K\0M\377\377\206")},
        {"[0,65536]", P("K\0J\0\0\1\0\206J\0\0\1\0K\1\206")},
        {"[0,2147483647]", P("K\0J\377\377\377\177\206")},
        {"[0,2147483648]", P("K\0\212\10\0\0\0\200\0\0\0\0\206\212\10\0\0\0\200\0\0\0\0K\1\206")},
        {"[0,549755813888]", P("K\0\212\10\0\0\0\0\200\0\0\0\206")},
        {"[0,4611686018427387904]", P("K\0\212\10\0\0\0\0\0\0\0\100\206")},
        {"[0,9223372036854775807]", P("K\0\212\10\377\377\377\377\377\377\377\177\206")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[200];
        size_t length;
        size_t size;
        snprintf(header, sizeof header, "{" TEST_ENTRY("w", "U8", "%s", "[0,0]") "}",
                 cases[i].shape);
        char *zip = write_pt(test_make_safetensors(header, NULL, 0), &length);
        const char *pickle = test_zip_find(zip, length, "archive/data.pkl", &size);
        cr_assert(pickle && memmem(pickle, size, cases[i].sizes, cases[i].length), "%s",
                  cases[i].shape);
        free(zip);
        struct tc_reader *reader = test_open(test_path("out.pt"));
        test_expect(reader, "w", TC_U8, cases[i].shape, NULL, 0);
        tc_reader_close(reader);
    }
}

Test(pt, tied_tensors_share_a_storage) {
    static const char pickle[] =
        DICT("Va\n" TENSOR(SHORTS, "\0", ONE("\4"), ONE("\1")) "Vb\n" TENSOR(
            SHORTS, "\4", ONE("\4"), ONE("\1")) "Vc\n" TENSOR(SHORTS, "\0", ONE("\4"), ONE("\1")));
    size_t length;
    char *zip = write_pt(
        make(&(struct archive){P(pickle), .more = {{"x/data/0", shorts, sizeof shorts, false}}}),
        &length);
    cr_assert_eq(test_zip_count(zip, length, "archive/data/"), 2);
    expect_member(zip, length, "archive/data/0", shorts, 8);
    expect_member(zip, length, "archive/data/1", shorts + 4, 8);
    free(zip);
    struct tc_reader *reader = test_open(test_path("out.pt"));
    EXPECT(reader, "a", TC_I16, "[4]", int16_t, 0, 1, 2, 3);
    EXPECT(reader, "b", TC_I16, "[4]", int16_t, 4, 5, 6, 7);
    EXPECT(reader, "c", TC_I16, "[4]", int16_t, 0, 1, 2, 3);
    cr_assert_eq(test_find(reader, "a")->tie, 1);
    cr_assert_eq(test_find(reader, "b")->tie, 0);
    cr_assert_eq(test_find(reader, "c")->tie, 1);
    tc_reader_close(reader);
}

static void expect_same(const char *a, const char *b) {
    char *first = test_digest(a);
    char *second = test_digest(b);
    cr_assert_str_eq(first, second, "%s, %s", a, b);
    free(first);
    free(second);
}

Test(pt, sparse_tensors_are_written_as_such) {
    static const char *const files[] = {"/deathtensors/sparse.deathtensors", "/pt/sparse_coo.pt",
                                        "/pt/sparse_csr.pt"};
    for (size_t i = 0; i < 3; i++) {
        char source[256];
        size_t length;
        size_t size;
        snprintf(source, sizeof source, TESTDATA "%s", files[i]);
        struct tc_reader *before = test_open(source);
        char *zip = write_pt(source, &length);
        const char *pickle = test_zip_find(zip, length, "archive/data.pkl", &size);
        cr_assert(pickle && memmem(pickle, size, P("_rebuild_sparse_tensor\n")), "%s", source);
        cr_assert(memmem(pickle, size, "torch.sparse_c", 14));
        struct tc_reader *after = test_open(test_path("out.pt"));
        size_t groups = 0;
        for (size_t t = 0; t < before->table.count; t++) {
            struct tc_text name = before->table.tensors[t].name;
            groups += tc_text_ends(name, TC_TEXT(".shape"));
            const struct tc_tensor *tensor = tc_table_find(&after->table, name);
            cr_assert_not_null(tensor);
            struct tc_sparse sparse;
            cr_assert_eq(tc_sparse_of(&after->table, tensor, &sparse),
                         tc_sparse_of(&before->table, &before->table.tensors[t], &sparse));
        }
        cr_assert_gt(groups, 0);
        cr_assert_eq(after->table.count, before->table.count);
        /* A shape is in the pickle, and nowhere else. */
        cr_assert_eq(test_zip_count(zip, length, "archive/data/"), before->table.count - groups);
        cr_assert_null(test_zip_find(zip, length, "archive/tconv.json", &size));
        tc_reader_close(before);
        tc_reader_close(after);
        free(zip);
        expect_same(source, test_path("out.pt"));
    }
}

/* A tensor may share its data with a part of a sparse one: also with the
 * shape, which has no storage in the file. */
Test(pt, a_tensor_tied_to_a_part_of_a_sparse_one) {
    static const struct {
        int64_t indices[1];
        int64_t shape[1];
        float values[1];
    } data = {{1}, {7}, {10}};
    static const char header[] =
        "{\"__metadata__\":{\"x.t\":\"s.shape\",\"y.t\":\"s.values\",\"tconv.tensor_metadata\":\"{"
        "\\\"s.indices\\\":{\\\"sparse_parent\\\":\\\"s\\\",\\\"sparse_role\\\":\\\"indices\\\"},"
        "\\\"s.shape\\\":{\\\"sparse_parent\\\":\\\"s\\\",\\\"sparse_role\\\":\\\"shape\\\"},"
        "\\\"s.values\\\":{\\\"sparse_parent\\\":\\\"s\\\",\\\"sparse_role\\\":\\\"values\\\"}}\"}"
        "," TEST_ENTRY("s.indices", "I64", "[1,1]", "[0,8]") "," TEST_ENTRY(
            "s.shape", "I64", "[1]", "[8,16]") "," TEST_ENTRY("s.values", "F32", "[1]",
                                                              "[16,20]") "}";
    size_t length;
    const char *source = test_make_safetensors(header, &data, 20);
    struct tc_reader *reader = test_open(source);
    cr_assert_eq(reader->table.count, 5);
    cr_assert_neq(test_find(reader, "x.t")->tie, 0);
    tc_reader_close(reader);
    free(write_pt(source, &length));
    reader = test_open(test_path("out.pt"));
    cr_assert_eq(reader->table.count, 5);
    EXPECT(reader, "s.indices", TC_I64, "[1,1]", int64_t, 1);
    EXPECT(reader, "s.values", TC_F32, "[1]", float, 10);
    EXPECT(reader, "s.shape", TC_I64, "[1]", int64_t, 7);
    EXPECT(reader, "y.t", TC_F32, "[1]", float, 10);
    EXPECT(reader, "x.t", TC_I64, "[1]", int64_t, 7);
    cr_assert_eq(test_find(reader, "y.t")->tie, test_find(reader, "s.values")->tie);
    tc_reader_close(reader);
}

/* A group whose name is empty keeps the names of its parts. */
Test(pt, a_sparse_tensor_without_a_name) {
    static const char header[] =
        "{\"__metadata__\":{\"tconv.tensor_metadata\":\"{"
        "\\\".indices\\\":{\\\"sparse_parent\\\":\\\"\\\",\\\"sparse_role\\\":\\\"indices\\\"},"
        "\\\".shape\\\":{\\\"sparse_parent\\\":\\\"\\\",\\\"sparse_role\\\":\\\"shape\\\"},"
        "\\\".values\\\":{\\\"sparse_parent\\\":\\\"\\\",\\\"sparse_role\\\":\\\"values\\\"}}\"}"
        "," TEST_ENTRY(".indices", "I64", "[1,1]", "[0,8]") "," TEST_ENTRY(
            ".shape", "I64", "[1]", "[8,16]") "," TEST_ENTRY(".values", "F32", "[1]",
                                                             "[16,20]") "}";
    static const char zeros[20];
    size_t length;
    free(write_pt(test_make_safetensors(header, zeros, 20), &length));
    struct tc_reader *reader = test_open(test_path("out.pt"));
    cr_assert_eq(reader->table.count, 3);
    EXPECT(reader, ".values", TC_F32, "[1]", float, 0);
    test_expect_metadata(test_find(reader, ".shape")->metadata, "sparse_role", "shape");
    tc_reader_close(reader);
}

/* Torch counts pairs of F4 elements along the last dimension. */
Test(pt, pairs_of_f4) {
    size_t length;
    size_t size;
    char *zip = write_pt(
        test_make_safetensors("{" TEST_ENTRY("w", "F4", "[2,4]", "[0,4]") "}", "\1\2\3\4", 4),
        &length);
    const char *pickle = test_zip_find(zip, length, "archive/data.pkl", &size);
    cr_assert(pickle && memmem(pickle, size, P("K\2K\2\206K\2K\1\206")));
    cr_assert(memmem(pickle, size, P("ctorch\nfloat4_e2m1fn_x2\n")));
    free(zip);
    struct tc_reader *reader = test_open(test_path("out.pt"));
    EXPECT(reader, "w", TC_F4, "[2,4]", uint8_t, 1, 2, 3, 4);
    tc_reader_close(reader);
    const char *odd =
        test_make_safetensors("{" TEST_ENTRY("w", "F4", "[4,1]", "[0,2]") "}", "\1\2", 2);
    cr_assert_eq(test_convert(odd, test_path("odd.pt"), tc_registry_named("pt"), NULL, NULL),
                 TC_UNSUPPORTED);
    cr_assert_str_eq(test_error.code, "packed-shape");
}

Test(pt, many_tensors_come_in_batches) {
    struct tc_buffer header = {0};
    unsigned char data[2500];
    for (unsigned i = 0; i < 2500; i++) {
        tc_buffer_addf(&header, "%s" TEST_ENTRY("t%04u", "U8", "[1]", "[%u,%u]"), i ? "," : "{", i,
                       i, i + 1);
        data[i] = (unsigned char)(i * 7);
    }
    tc_buffer_add(&header, "}", 2);
    size_t length;
    size_t size;
    char *zip = write_pt(test_make_safetensors(header.bytes, data, 2500), &length);
    tc_buffer_release(&header);
    cr_assert_eq(test_zip_count(zip, length, "archive/data/"), 2500);
    const char *pickle = test_zip_find(zip, length, "archive/data.pkl", &size);
    const char *end = pickle + size;
    size_t batches = 0;
    for (const char *at = pickle; (at = memmem(at, (size_t)(end - at), "tRu", 3)); at += 3)
        batches++;
    cr_assert_eq(batches, 3);
    cr_assert_arr_eq(end - 4, "tRu.", 4);
    free(zip);
    struct tc_reader *reader = test_open(test_path("out.pt"));
    cr_assert_eq(reader->table.count, 2500);
    for (unsigned i = 0; i < 2500; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%04u", i);
        cr_assert(tc_text_equal(reader->table.tensors[i].name, tc_text_of(name)), "%s", name);
        unsigned char *value = test_read(reader, &reader->table.tensors[i]);
        cr_assert_eq(*value, data[i], "%s", name);
        free(value);
    }
    tc_reader_close(reader);
}

/* A thousand is a batch, and not one more. */
Test(pt, no_batch_is_empty) {
    struct tc_buffer header = {0};
    for (unsigned i = 0; i < 1000; i++)
        tc_buffer_addf(&header, "%s" TEST_ENTRY("t%04u", "U8", "[0]", "[0,0]"), i ? "," : "{", i);
    tc_buffer_add(&header, "}", 2);
    size_t length;
    size_t size;
    char *zip = write_pt(test_make_safetensors(header.bytes, NULL, 0), &length);
    const char *pickle = test_zip_find(zip, length, "archive/data.pkl", &size);
    cr_assert_arr_eq(pickle + size - 4, "tRu.", 4);
    free(zip);
    zip = write_pt(test_make_safetensors("{}", NULL, 0), &length);
    expect_member(zip, length, "archive/data.pkl", P("\200\2ccollections\nOrderedDict\nq\0)R."));
    free(zip);
    tc_buffer_release(&header);
}

Test(pt, metadata_has_a_member_of_its_own) {
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\\n\",\"tconv.tensor_metadata\":\"{\\\"w\\\":{\\\"a\\\":"
        "\\\"b\\\"}}\"}," TEST_ENTRY("w", "F32", "[6]", "[0,24]") "}";
    size_t length;
    char *zip = write_pt(test_make_safetensors(header, floats, 24), &length);
    expect_member(zip, length, "archive/tconv.json",
                  P("{\"metadata\":{\"k\":\"v\\n\"},\"tensors\":{\"w\":{\"a\":\"b\"}}}\n"));
    free(zip);
    struct tc_reader *reader = test_open(test_path("out.pt"));
    cr_assert_eq(reader->table.metadata.count, 1);
    test_expect_metadata(&reader->table.metadata, "k", "v\n");
    test_expect_metadata(test_find(reader, "w")->metadata, "a", "b");
    tc_reader_close(reader);
}

/* A conversion of a file of tconv's own changes no byte. */
Test(pt, writing_again_gives_the_same) {
    size_t length;
    free(write_pt(TESTDATA "/npz/stored.npz", &length));
    const char *again = test_path("again.pt");
    cr_assert_eq(test_convert(test_path("out.pt"), again, tc_registry_named("pt"), NULL, NULL),
                 TC_OK);
    cr_assert(test_same_bytes(test_path("out.pt"), again));
}
