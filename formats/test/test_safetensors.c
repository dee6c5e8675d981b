#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/format/restore_metadata.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(safetensors, .init = test_folder_make, .fini = test_folder_remove);

static enum tc_class open_header(const char *header, size_t data) {
    char file[4096] = {0};
    size_t length = strlen(header);
    file[0] = (char)(length & 0xFF);
    file[1] = (char)(length >> 8);
    memcpy(file + 8, header, length);
    return test_open_class("x.safetensors", file, 8 + length + data);
}

#define ENTRY(name, dtype, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

Test(safetensors, tensors_tile_the_data) {
    cr_assert_eq(open_header("{" ENTRY("a", "U8", "[2]", "[0,2]") "}", 2), TC_OK);
    cr_assert_eq(
        open_header(
            "  {" ENTRY("b", "U8", "[2]", "[2,4]") "," ENTRY("a", "U8", "[2]", "[0,2]") "} ", 4),
        TC_OK, "any order of keys, white space around");
    /* An empty tensor shares its place with the one that starts there. */
    cr_assert_eq(
        open_header("{" ENTRY("b", "U8", "[2]", "[0,2]") "," ENTRY("a", "U8", "[0]", "[0,0]") "}",
                    2),
        TC_OK, "%s", test_error.message);
    static const struct {
        const char *header;
        size_t data;
        const char *code;
    } bad[] = {
        {"{" ENTRY("a", "U8", "[2]", "[1,3]") "}", 3, "hole"},
        {"{" ENTRY("a", "U8", "[2]", "[0,2]") "," ENTRY("b", "U8", "[2]", "[1,3]") "}", 4,
         "overlap"},
        {"{" ENTRY("a", "U8", "[2]", "[0,2]") "}", 3, "trailing-data"},
        {"{" ENTRY("a", "U8", "[2]", "[0,2]") "}", 1, "truncated"},
        {"{" ENTRY("a", "U8", "[2]", "[2,0]") "}", 2, "size-mismatch"},
        {"{" ENTRY("a", "F32", "[2]", "[0,4]") "}", 4, "size-mismatch"},
        {"{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("\\u0061", "U8", "[1]", "[1,2]") "}", 2,
         "duplicate-name"},
        {"{" ENTRY("a", "F32", "[2,9223372036854775807]", "[0,4]") "}", 4, "shape-overflow"},
        {"{" ENTRY("a", "F4", "[3]", "[0,1]") "}", 1, "packed-shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "json"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "json"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "json"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "duplicate-key"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(open_header(bad[i].header, bad[i].data), TC_INVALID, "%s", bad[i].header);
        cr_assert_str_eq(test_error.code, bad[i].code, "%s: %s", bad[i].header, test_error.message);
    }
    cr_assert_eq(open_header("{" ENTRY("a", "F128", "[1]", "[0,16]") "}", 16), TC_UNSUPPORTED);
    cr_assert_eq(open_header("{\"__metadata__\":null}", 0), TC_OK, "as MLX writes it");
}

static void rewrite(const char *path, void *context) {
    size_t *same = context;
    /* The reference writer has no 6-bit types: that file was made by hand. */
    if (strstr(path, "/sharded/") || strstr(path, "/f6.") || test_file_class(path) != TC_OK)
        return;
    struct tc_reader *reader = test_open(path);
    size_t keys = reader->table.metadata.count;
    tc_reader_close(reader);
    const char *out = test_path("out.safetensors");
    cr_assert_eq(test_convert(path, out, tc_registry_named("safetensors"), NULL, NULL), TC_OK);
    if (keys <= 1) {
        cr_assert(test_same_bytes(path, out), "%s", path);
        (*same)++;
    }
}

Test(safetensors, writes_what_the_reference_writes) {
    size_t same = 0;
    test_each_file("safetensors", rewrite, &same);
    cr_assert_geq(same, 3);
}

/* Metadata of tensors goes through one key, and comes back. */
Test(safetensors, tensor_metadata_comes_back) {
    const char *source = TESTDATA "/deathtensors/sparse.deathtensors";
    const char *out = test_path("out.safetensors");
    cr_assert_eq(test_convert(source, out, tc_registry_named("safetensors"), NULL, NULL), TC_OK);
    struct tc_reader *reader = test_open(out);
    const struct tc_tensor *tensor = tc_table_find(&reader->table, TC_TEXT("sp.values"));
    cr_assert_not_null(tensor);
    const struct tc_text *role = tc_metadata_find(tensor->metadata, TC_TEXT("sparse_role"));
    cr_assert(role && tc_text_equal(*role, TC_TEXT("values")));
    cr_assert_null(tc_metadata_find(&reader->table.metadata, TC_TEXT(TC_TENSOR_METADATA_KEY)));
    struct tc_sparse sparse;
    cr_assert(tc_sparse_of(&reader->table, tensor, &sparse));
    tc_reader_close(reader);
}

Test(safetensors, a_broken_tensor_metadata_key_is_an_error) {
    cr_assert_eq(open_header("{\"__metadata__\":{\"tconv.tensor_metadata\":\"{\\\"a\\\":1}\"}}", 0),
                 TC_INVALID);
    cr_assert_str_eq(test_error.code, "tensor-metadata");
}
