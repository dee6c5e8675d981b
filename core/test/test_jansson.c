#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/jansson.h"
#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/base/text.h"

static struct tc_error error;

static struct tc_document document;

static bool parse(const char *text) {
    error = (struct tc_error){0};
    return tc_document_parse(&document, tc_text_of(text), 100, &error);
}

static void refused(const char *text, const char *code) {
    cr_assert_not(parse(text), "%s", text);
    cr_assert_eq(error.class, TC_INVALID, "%s: %s", text, error.message);
    cr_assert_str_eq(error.code, code, "%s: %s", text, error.message);
    cr_assert(error.has_offset && error.offset >= 100 && error.offset <= 100 + strlen(text), "%s",
              text);
}

Test(document, values) {
    cr_assert(parse("{\"z\":[1,\"b\\u00e9\",null,true,false,-1,1.5,9223372036854775807],\"a\":{}}"),
              "%s", error.message);
    struct tc_document_member member = {0};
    cr_assert(tc_document_next(document.root, &member));
    cr_assert(tc_text_equal(member.key, TC_TEXT("z")), "members keep their order");
    const struct tc_document_value *list = member.value;
    cr_assert_eq(tc_document_count(list), 8);
    uint64_t number = 0;
    cr_assert(tc_document_unsigned(&document, tc_document_item(list, 0), &number));
    cr_assert_eq(number, 1);
    cr_assert(tc_document_unsigned(&document, tc_document_item(list, 7), &number));
    cr_assert_eq(number, INT64_MAX);
    cr_assert_not(tc_document_unsigned(&document, tc_document_item(list, 5), &number));
    cr_assert_not(tc_document_unsigned(&document, tc_document_item(list, 6), &number));
    struct tc_text text;
    cr_assert(tc_document_text(&document, tc_document_item(list, 1), &text));
    cr_assert(tc_text_equal(text, TC_TEXT("b\xC3\xA9")));
    cr_assert_eq(tc_document_kind(tc_document_item(list, 2)), TC_JSON_NULL);
    bool flag = false;
    cr_assert(tc_document_boolean(&document, tc_document_item(list, 3), &flag) && flag);
    cr_assert(tc_document_boolean(&document, tc_document_item(list, 4), &flag) && !flag);
    cr_assert_not(tc_document_boolean(&document, tc_document_item(list, 0), &flag));
    cr_assert(tc_document_next(document.root, &member));
    cr_assert(tc_text_equal(member.key, TC_TEXT("a")));
    cr_assert_eq(tc_document_kind(member.value), TC_JSON_OBJECT);
    cr_assert_not(tc_document_next(document.root, &member));
    tc_document_release(&document);
}

Test(document, of_one_value) {
    cr_assert(parse(" \"x\" "));
    cr_assert_not(tc_document_expect(&document, document.root, TC_JSON_OBJECT));
    cr_assert_str_eq(error.message, "a value of another kind (got a string, expected an object)");
    cr_assert(error.has_offset && error.offset == 101);
    tc_document_release(&document);
}

/* Every value that has a place of its own is found again in the text. */
Test(document, a_failure_names_the_offset) {
    static const char text[] = "{\"a\": [1, [], {\"b\": {\"c\": 2}, \"d\": \"x\"}, 3], \"e\": 4}";
    static const char *const places[] = {"{\"a\"", "[1", "1, [",  "[]", "{\"b\"",
                                         "{\"c\"", "2}", "\"x\"", "3]", "4}"};
    cr_assert(parse(text), "%s", error.message);
    struct tc_document_member outer = {0}, inner = {0}, innermost = {0};
    const struct tc_document_value *values[10] = {document.root};
    cr_assert(tc_document_next(document.root, &outer));
    values[1] = outer.value;
    values[2] = tc_document_item(outer.value, 0);
    values[3] = tc_document_item(outer.value, 1);
    values[4] = tc_document_item(outer.value, 2);
    values[8] = tc_document_item(outer.value, 3);
    cr_assert(tc_document_next(values[4], &inner));
    values[5] = inner.value;
    cr_assert(tc_document_next(inner.value, &innermost));
    values[6] = innermost.value;
    cr_assert(tc_document_next(values[4], &inner));
    values[7] = inner.value;
    cr_assert(tc_document_next(document.root, &outer));
    values[9] = outer.value;
    for (size_t i = 0; i < 10; i++) {
        error = (struct tc_error){0};
        cr_assert_not(tc_document_fail(&document, values[i], "no"));
        cr_assert(error.has_offset);
        cr_assert_eq(error.offset, 100 + (uint64_t)(strstr(text, places[i]) - text), "%s",
                     places[i]);
    }
    tc_document_release(&document);
}

Test(document, that_is_bad) {
    refused("", "json");
    refused("{", "json");
    refused("{} x", "json");
    refused("[1,]", "json");
    refused("[01]", "json");
    refused("[NaN]", "json");
    refused("[\"\xFF\"]", "json");
    refused("[\"\\ud800\"]", "json");
    refused("[\"\\u0000\"]", "json");
    refused("[9223372036854775808]", "json");
    refused("{\"a\":1,\"a\":2}", "duplicate-name");
    refused("{\"b\":{\"a\":1,\"\\u0061\":2}}", "duplicate-name");
}

Test(document, that_is_too_deep) {
    char text[2 * TC_MAX_JSON_DEPTH + 8] = "";
    memset(text, '[', TC_MAX_JSON_DEPTH);
    memset(text + TC_MAX_JSON_DEPTH, ']', TC_MAX_JSON_DEPTH);
    cr_assert(parse(text), "%s", error.message);
    tc_document_release(&document);
    memset(text, '[', TC_MAX_JSON_DEPTH + 1);
    memset(text + TC_MAX_JSON_DEPTH + 1, ']', TC_MAX_JSON_DEPTH + 1);
    cr_assert_not(parse(text));
    cr_assert_neq(error.class, TC_OK);
}

Test(document, what_is_kept_outlives_it) {
    struct tc_arena arena;
    tc_arena_init(&arena, 0);
    cr_assert(parse("\"kept\""));
    struct tc_text text = {0};
    cr_assert(tc_document_text(&document, document.root, &text));
    cr_assert(tc_document_keep(&document, &text, &arena));
    tc_document_release(&document);
    cr_assert(tc_text_equal(text, TC_TEXT("kept")));
    tc_arena_release(&arena);
}

/* The tree counts against the command's budget. */
Test(document, is_held_to_the_limit_of_memory) {
    struct tc_buffer text = {0};
    tc_buffer_add_string(&text, "[0");
    for (int i = 0; i < 1000000; i++)
        tc_buffer_add_string(&text, ",{}");
    tc_buffer_add_string(&text, "]");
    tc_memory_limit(UINT64_C(60) << 20);
    cr_assert_not(parse(text.bytes));
    cr_assert(tc_memory_refused());
    cr_assert_eq(error.class, TC_UNSAFE, "%s", error.message);
    tc_memory_limit(0);
    cr_assert(parse(text.bytes), "%s", error.message);
    cr_assert_eq(tc_document_count(document.root), 1000001);
    tc_document_release(&document);
    tc_buffer_release(&text);
}
