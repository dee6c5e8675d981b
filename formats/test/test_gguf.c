#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "formats/gguf/gguf.h"
#include "formats/registry.h"
#include "formats/test/support.h"

TestSuite(gguf, .init = test_folder_make, .fini = test_folder_remove);

#define DATA_FILE(name) TESTDATA "/gguf/" name

static const struct tc_backend *gguf(void) {
    return tc_registry_named("gguf");
}

/* Through a format without types and back, each value has the type that it had. */
Test(gguf, types_of_metadata_come_back) {
    struct tc_reader *first = test_open(DATA_FILE("metadata.gguf"));
    static const char *const detours[] = {"a.safetensors", "a.deathtensors", "a.pt", "a.onnx"};
    cr_assert_gt(first->metadata_types.count, 30);
    for (size_t i = 0; i < sizeof detours / sizeof *detours; i++) {
        char between[256];
        char back[256];
        snprintf(between, sizeof between, "%s", test_path(detours[i]));
        snprintf(back, sizeof back, "%s", test_path("back.gguf"));
        cr_assert_eq(test_convert(DATA_FILE("metadata.gguf"), between,
                                  tc_registry_for_path(between), NULL, NULL),
                     TC_OK);
        cr_assert_eq(test_convert(between, back, gguf(), NULL, NULL), TC_OK);
        struct tc_reader *second = test_open(back);
        cr_assert_eq(second->metadata_types.count, first->metadata_types.count);
        for (size_t t = 0; t < first->metadata_types.count; t++) {
            const struct tc_pair *a = &first->metadata_types.pairs[t];
            const struct tc_pair *b = &second->metadata_types.pairs[t];
            cr_assert(tc_text_equal(a->key, b->key) && tc_text_equal(a->value, b->value), "%.*s",
                      (int)a->key.length, a->key.bytes);
        }
        for (size_t p = 0; p < first->table.metadata.count; p++) {
            const struct tc_pair *a = &first->table.metadata.pairs[p];
            const struct tc_text *b = tc_metadata_find(&second->table.metadata, a->key);
            cr_assert(b && tc_text_equal(a->value, *b), "%.*s", (int)a->key.length, a->key.bytes);
        }
        tc_reader_close(second);
    }
    tc_reader_close(first);
}

Test(gguf, values_are_written_only_as_what_they_are) {
    static const struct {
        const char *text, *type;
        bool fits;
    } values[] = {
        {"3", "U32", true},
        {"4294967295", "U32", true},
        {"4294967296", "U32", false},
        {"-1", "U32", false},
        {"03", "U32", false},
        {"3.0", "U32", false},
        {"abc", "U32", false},
        {"", "U32", false},
        {"-128", "I8", true},
        {"128", "I8", false},
        {"18446744073709551615", "U64", true},
        {"-9223372036854775808", "I64", true},
        {"true", "BOOL", true},
        {"1", "BOOL", false},
        {"0.1", "F32", true},
        {"0.10", "F32", false},
        {"\"NaN\"", "F64", true},
        {"\"-Infinity\"", "F32", true},
        {"-0", "F32", true},
        {"[1,2]", "[U8]", true},
        {"[1,256]", "[U8]", false},
        {"[1, 2]", "[U8]", false},
        {"[\"a\",\"\\n\"]", "[STRING]", true},
        {"[[1],[]]", "[[I16]]", true},
        {"[[1],2]", "[[I16]]", false},
        {"[]", "[ARRAY]", true},
        {"[1", "[U8]", false},
        {"3", "STRING", false},
        {"3", "ARRAY", false},
        {"3", "U128", false},
        {"3", "[[", false},
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct tc_buffer out = {0};
        tc_buffer_add(&out, "x", 1);
        cr_assert_eq(gguf_value_write(&out, tc_text_of(values[i].text), tc_text_of(values[i].type)),
                     values[i].fits, "%s as %s", values[i].text, values[i].type);
        cr_assert_eq(out.length > 1, values[i].fits,
                     "nothing is left of a value that does not fit");
        tc_buffer_release(&out);
    }
}

/* The user's value of a key is text; the alignment is U32 whatever it came from. */
Test(gguf, the_users_metadata_is_text) {
    struct tc_arena arena;
    struct tc_error error = {0};
    struct tc_metadata extra = {0};
    tc_arena_init(&arena, 0);
    cr_assert(tc_metadata_set(&extra, &arena, TC_TEXT("u32"), TC_TEXT("7"), &error));
    cr_assert(
        tc_metadata_set(&extra, &arena, TC_TEXT("general.alignment"), TC_TEXT("128"), &error));
    const struct tc_plan_options options = {.extra_metadata = &extra};
    const char *out = test_path("out.gguf");
    cr_assert_eq(test_convert(DATA_FILE("metadata.gguf"), out, gguf(), &options, NULL), TC_OK);
    struct tc_reader *reader = test_open(out);
    test_expect_metadata(&reader->table.metadata, "u32", "7");
    cr_assert_null(tc_metadata_find(&reader->metadata_types, TC_TEXT("u32")));
    test_expect_metadata(&reader->metadata_types, "general.alignment", "U32");
    test_expect_metadata(&reader->metadata_types, "u16", "U16");
    struct tc_extent extent;
    cr_assert(tc_reader_extent(reader, &reader->table.tensors[0], &extent));
    cr_assert_eq(extent.offset % 128, 0);
    tc_reader_close(reader);
    extra.pairs[0].value = TC_TEXT("48");
    cr_assert_eq(test_convert(DATA_FILE("metadata.gguf"), out, gguf(), &options, NULL),
                 TC_UNSUPPORTED);
    tc_arena_release(&arena);
}

Test(gguf, split_files_are_one_model) {
    const struct tc_plan_options options = {.shard_size = 4096};
    const char *source = DATA_FILE("blocks.gguf");
    cr_assert_eq(test_convert(source, test_path("m.gguf"), gguf(), &options, NULL), TC_OK);
    const char *head = test_path("m-00001-of-00004.gguf");
    char *one = test_digest(source);
    char *several = test_digest(head);
    cr_assert_str_eq(one, several);
    free(one);
    free(several);
    struct tc_reader *reader = test_open(head);
    cr_assert_eq(reader->shard_count, 4);
    test_expect_metadata(&reader->table.metadata, "general.architecture", "llama");
    cr_assert_null(tc_metadata_find(&reader->table.metadata, TC_TEXT(GGUF_KEY_SPLIT_COUNT)));
    tc_reader_close(reader);
    reader = test_open(test_path("m-00002-of-00004.gguf"));
    test_expect_metadata(&reader->metadata_types, GGUF_KEY_SPLIT_NO, "U16");
    test_expect_metadata(&reader->metadata_types, GGUF_KEY_SPLIT_TENSORS, "I32");
    cr_assert_eq(reader->table.metadata.count, 3, "the first file has the rest");
    tc_reader_close(reader);
    cr_assert_eq(remove(test_path("m-00003-of-00004.gguf")), 0);
    cr_assert_eq(test_file_class(head), TC_IO);
}

Test(gguf, numbers_of_dtypes_are_found_again) {
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++) {
        int number = gguf_number_of(dtype);
        cr_assert_eq(number >= 0, !!(gguf()->dtypes & TC_SET(dtype)));
        if (number >= 0)
            cr_assert_eq(gguf_dtype_of((uint32_t)number), dtype);
    }
    struct tc_error error = {0};
    cr_assert_not(gguf_refuse_dtype(9, &error));
    cr_assert_eq(error.class, TC_UNSUPPORTED);
}
