#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "formats/test/support.h"

static void setup(void) {
    test_folder_make();
    for (int i = 1; i <= 3; i++) {
        char name[128];
        size_t length;
        snprintf(name, sizeof name, TESTDATA "/index/model-%05d-of-00003.safetensors", i);
        char *bytes = test_load(name, &length);
        test_write(test_path(strrchr(name, '/') + 1), bytes, length);
        free(bytes);
    }
}

TestSuite(index, .init = setup, .fini = test_folder_remove);

#define SHARD(n) "\"model-0000" n "-of-00003.safetensors\""

static enum tc_class open_index(const char *text) {
    return test_open_class("m.safetensors.index.json", text, strlen(text));
}

Test(index, lists_shards_in_the_order_of_their_names) {
    const char *text = "{\"weight_map\":{\"layers.5.w\":" SHARD("3") ",\"layers.0.w\":" SHARD(
        "1") ",\"layers.1.w\":" SHARD("1") ",\"layers.4.w\":" SHARD("3") "}}";
    cr_assert_eq(open_index(text), TC_OK, "%s", test_error.message);
    struct tc_reader *reader = test_open(test_path("m.safetensors.index.json"));
    cr_assert_eq(reader->shard_count, 2);
    cr_assert_eq(reader->table.count, 4);
    cr_assert(tc_text_equal(reader->table.tensors[0].name, TC_TEXT("layers.0.w")));
    cr_assert_str_eq(reader->shard_backend->name, "safetensors");
    tc_reader_close(reader);
}

Test(index, paths_that_leave_the_folder_are_refused) {
    static const char *const paths[] = {"../x", "/x", "a/../../x", "a/b",    "file:///x",
                                        "..",   ".",  "",          "a\\\\b", "a\\u0000b"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", paths[i]);
        cr_assert_eq(open_index(text), TC_UNSAFE, "%s", paths[i]);
    }
}

Test(index, what_is_wrong_with_it_is_told) {
    static const struct {
        const char *text;
        enum tc_class class;
        const char *code;
    } cases[] = {
        {"{\"weight_map\":{\"nope\":" SHARD("1") "}}", TC_INVALID, "missing-tensor"},
        {"{\"weight_map\":{\"layers.0.w\":" SHARD("2") "}}", TC_INVALID, "missing-tensor"},
        {"{\"weight_map\":{\"a\":" SHARD("1") ",\"a\":" SHARD("1") "}}", TC_INVALID,
         "duplicate-name"},
        {"{\"weight_map\":{\"a\":1}}", TC_INVALID, "json"},
        {"{\"weight_map\":{\"a\":\"missing.safetensors\"}}", TC_IO, "open"},
        {"{\"weight_map\":{\"a\":\"m.safetensors.index.json\"}}", TC_INVALID, "shard-index"},
        {"{\"metadata\":{\"total_size\":-1},\"weight_map\":{}}", TC_INVALID, "json"},
        {"{\"metadata\":{\"total_size\":9223372036854775808},\"weight_map\":{}}", TC_INVALID,
         "json"},
        {"{\"metadata\":{\"total_size\":3}}", TC_INVALID, "json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(open_index(cases[i].text), cases[i].class, "%s: %s", cases[i].text,
                     test_error.message);
        cr_assert_str_eq(test_error.code, cases[i].code, "%s: %s", cases[i].text,
                         test_error.message);
    }
}

Test(index, a_wrong_total_and_an_unlisted_tensor_are_warnings) {
    cr_assert_eq(open_index("{\"metadata\":{\"total_size\":3,\"note\":\"n\",\"list\":[1]},"
                            "\"weight_map\":{\"layers.0.w\":" SHARD("1") "}}"),
                 TC_OK, "%s", test_error.message);
    struct tc_reader *reader = test_open(test_path("m.safetensors.index.json"));
    cr_assert(tc_notes_tell(&reader->notes, TC_WARNING, "total_size"));
    cr_assert(tc_notes_tell(&reader->notes, TC_WARNING, "does not list"));
    cr_assert_eq(reader->table.count, 2);
    const struct tc_text *rest =
        tc_metadata_find(&reader->table.metadata, TC_TEXT(TC_INDEX_METADATA_KEY));
    cr_assert(rest && tc_text_equal(*rest, TC_TEXT("{\"list\":[1],\"note\":\"n\"}")));
    tc_reader_close(reader);
}
