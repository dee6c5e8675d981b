/* Torch's files as tconv writes them. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/test/make_pt.h"
#include "formats/test/support.h"

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
