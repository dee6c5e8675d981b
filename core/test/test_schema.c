#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/schema.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "core/test/temporary.h"

static char path[TEST_PATH_MAX];
static struct tc_schema schema;
static struct tc_error error;

static void setup(void) {
    close(test_temporary_file(path));
}

static void teardown(void) {
    unlink(path);
}

TestSuite(schema, .init = setup, .fini = teardown);

static bool load(const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
    error = (struct tc_error){0};
    return tc_schema_load(&schema, path, &error);
}

Test(schema, is_read) {
    cr_assert(load("{\"tensors\":{\"a\":{\"dtype\":\"F32\",\"shape\":[768,null,0],\"finite\":true},"
                   "\"/^b/\":{\"dtype\":[\"F16\",\"BF16\"],\"metadata_keys\":[\"x\",\"y\",\"z\"],"
                   "\"optional\":true},\"s\":{\"shape\":[]},\"/\":{}},"
                   "\"allow_extra\":true,\"metadata_keys\":[\"format\"]}"),
              "%s", error.message);
    cr_assert_eq(schema.count, 4);
    cr_assert_eq(schema.rules[0].dtypes, TC_SET(TC_F32));
    cr_assert_eq(schema.rules[0].rank, 3);
    cr_assert_eq(schema.rules[0].shape[0], 768);
    cr_assert_eq(schema.rules[0].shape[1], TC_SCHEMA_ANY);
    cr_assert_eq(schema.rules[0].shape[2], 0);
    cr_assert(schema.rules[0].finite && !schema.rules[0].is_regex && !schema.rules[0].optional);
    cr_assert(schema.rules[1].is_regex && schema.rules[1].optional);
    cr_assert_eq(schema.rules[1].dtypes, TC_SET(TC_F16) | TC_SET(TC_BF16));
    cr_assert_eq(schema.rules[1].key_count, 3);
    cr_assert(tc_text_equal(schema.rules[1].keys[2], TC_TEXT("z")));
    cr_assert(schema.rules[2].has_shape && schema.rules[2].rank == 0);
    cr_assert_not(schema.rules[3].is_regex);
    cr_assert(schema.allow_extra);
    cr_assert_eq(schema.key_count, 1);
    tc_schema_release(&schema);
}

Test(schema, what_is_wrong_with_one_is_told) {
    static const char *const texts[] = {
        "",
        "[]",
        "{\"tensor\":{}}",
        "{\"tensors\":{},\"tensors\":{}}",
        "{\"tensors\":{\"a\":{},\"a\":{}}}",
        "{\"tensors\":{\"a\":{\"dtype\":\"float33\"}}}",
        "{\"tensors\":{\"a\":{\"dtype\":[]}}}",
        "{\"tensors\":{\"a\":{\"dtype\":1}}}",
        "{\"tensors\":{\"a\":{\"shape\":[-1]}}}",
        "{\"tensors\":{\"a\":{\"shape\":3}}}",
        "{\"tensors\":{\"a\":{\"finite\":1}}}",
        "{\"tensors\":{\"a\":{\"finite\":true,\"finite\":true}}}",
        "{\"tensors\":{\"a\":{\"size\":1}}}",
        "{\"tensors\":{\"/(/\":{}}}",
        "{\"tensors\":{\"a\":{}}} x",
        "{\"allow_extra\":\"no\"}",
        "{\"metadata_keys\":[1]}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cr_assert_not(load(texts[i]), "%s", texts[i]);
        cr_assert_eq(error.class, TC_INVALID, "%s: %s", texts[i], error.message);
        cr_assert_str_eq(error.file, path);
        tc_schema_release(&schema);
    }
}

/* Two tensors of a table without a file. */
static void fill(struct tc_reader *reader) {
    static const uint64_t shape[] = {2, 3};
    struct tc_tensor one = {
        .name = TC_TEXT("/x/"), .shape = shape, .rank = 2, .dtype = TC_F32, .nbytes = 24};
    struct tc_tensor other = {.name = TC_TEXT("b.w"), .dtype = TC_I8, .nbytes = 1};
    tc_arena_init(&reader->arena, 0);
    tc_table_init(&reader->table, &reader->arena, 100);
    cr_assert(tc_table_add(&reader->table, &one, &error));
    cr_assert(tc_table_add(&reader->table, &other, &error));
}

static size_t violations(struct tc_reader *reader, const char *text) {
    struct tc_findings findings;
    tc_findings_init(&findings);
    cr_assert(load(text), "%s", error.message);
    cr_assert(tc_schema_check(&schema, reader, &findings, &error));
    size_t count = findings.failures;
    tc_schema_release(&schema);
    tc_findings_release(&findings);
    return count;
}

Test(schema, is_kept_or_not) {
    struct tc_reader reader = {0};
    fill(&reader);
    cr_assert_eq(violations(&reader, "{\"tensors\":{\"/./\":{}}}"), 0);
    cr_assert_eq(violations(&reader, "{}"), 2);
    cr_assert_eq(violations(&reader, "{\"allow_extra\":true}"), 0);
    cr_assert_eq(violations(&reader, "{\"allow_extra\":true,\"metadata_keys\":[\"k\"]}"), 1);
    /* The rule of a tensor's name applies alone; without one, all matching
     * expressions apply. */
    cr_assert_eq(violations(&reader, "{\"tensors\":{\"b.w\":{\"dtype\":\"I8\"},\"/./\":{\"dtype\":"
                                     "\"F32\"},\"/x/\":{\"shape\":[null,3]}}}"),
                 0);
    cr_assert_eq(violations(&reader, "{\"tensors\":{\"/w/\":{\"dtype\":\"F64\"},\"/./\":{\"dtype\":"
                                     "[\"I8\",\"F32\"],\"shape\":[2,3]}}}"),
                 2);
    cr_assert_eq(violations(&reader, "{\"tensors\":{\"gone\":{},\"/gone/\":{},\"/./\":{}}}"), 2);
    cr_assert_eq(violations(&reader, "{\"tensors\":{\"gone\":{\"optional\":true},\"/gone/\":"
                                     "{\"optional\":true},\"/./\":{}}}"),
                 0);
    tc_table_release(&reader.table);
    tc_arena_release(&reader.arena);
}

Test(schema, that_is_written_is_kept) {
    struct tc_reader reader = {0};
    struct tc_buffer text = {0};
    fill(&reader);
    tc_schema_write(&text, &reader.table);
    cr_assert(
        strstr(text.bytes, "\"/\\\\A\\\\/x\\\\/\\\\z/\": {\"dtype\": \"F32\", \"shape\": [2,3]}"),
        "%s", text.bytes);
    cr_assert_eq(violations(&reader, text.bytes), 0);
    tc_buffer_release(&text);
    tc_table_release(&reader.table);
    tc_arena_release(&reader.arena);
}
