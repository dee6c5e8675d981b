#include <criterion/criterion.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/text.h"

static struct tc_arena arena;
static struct tc_error error;
static struct tc_json json;

static void start(const char *text, size_t length) {
    error = (struct tc_error){0};
    tc_json_init(&json, text, length, 100, &arena, &error);
}

static void setup(void) {
    tc_arena_init(&arena, 0);
}

static void teardown(void) {
    tc_arena_release(&arena);
}

TestSuite(json, .init = setup, .fini = teardown);

/* Whether the whole text is one valid value. */
static bool valid(const char *text, size_t length) {
    struct tc_text span;
    start(text, length);
    return tc_json_skip(&json, &span) && tc_json_end(&json);
}

Test(json, walks_an_object) {
    const char text[] = " {\"a\" : [1, 2,3], \"b\\u0063\\n\":\"x\", \"n\":null} ";
    struct tc_text key;
    struct tc_text value;
    uint64_t number;
    start(text, strlen(text));
    cr_assert(tc_json_begin(&json, TC_JSON_OBJECT));
    cr_assert(tc_json_key(&json, &key));
    cr_assert(tc_text_equal(key, TC_TEXT("a")));
    cr_assert(tc_json_begin(&json, TC_JSON_ARRAY));
    for (uint64_t i = 1; i <= 3; i++) {
        cr_assert(tc_json_element(&json));
        cr_assert(tc_json_unsigned(&json, &number));
        cr_assert_eq(number, i);
    }
    cr_assert_not(tc_json_element(&json));
    cr_assert(tc_json_key(&json, &key));
    cr_assert(tc_text_equal(key, TC_TEXT("bc\n")));
    cr_assert(tc_json_string(&json, &value));
    cr_assert(tc_text_equal(value, TC_TEXT("x")));
    cr_assert(tc_json_key(&json, &key));
    cr_assert(tc_json_null(&json));
    cr_assert_not(tc_json_key(&json, &key));
    cr_assert(tc_json_end(&json));
    cr_assert_not(json.failed);
}

Test(json, accepts_what_rfc_8259_does) {
    static const char *const good[] = {"{}",
                                       "[]",
                                       "\"\"",
                                       "0",
                                       "-0.0e+1",
                                       "1E400",
                                       "true",
                                       "[[],{}]",
                                       "[1,2]",
                                       "\t\n\r 1 ",
                                       "\"\\ud83d\\ude00\\/\"",
                                       "{\"\":{}}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_assert(valid(good[i], strlen(good[i])), "%s: %s", good[i], error.message);
}

Test(json, escapes_stand_for_characters) {
    static const struct {
        const char *text;
        const char *meant;
    } cases[] = {{"\"\\u0041\"", "A"},
                 {"\"\\u00E4\"", "\xC3\xA4"},
                 {"\"\\u20AC\\u20ac\"", "\xE2\x82\xAC\xE2\x82\xAC"},
                 {"\"\\uD83D\\uDE00\"", "\xF0\x9F\x98\x80"},
                 {"\"\\b\\f\\n\\r\\t\\\"\\\\\\/\"", "\b\f\n\r\t\"\\/"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tc_text value;
        start(cases[i].text, strlen(cases[i].text));
        cr_assert(tc_json_string(&json, &value) && tc_json_end(&json), "%s", error.message);
        cr_assert(tc_text_equal(value, tc_text_of(cases[i].meant)), "case %zu", i);
    }
}

Test(json, refuses_everything_else) {
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{,}",
                                      "[,1]",
                                      "01",
                                      "+1",
                                      "1.",
                                      ".5",
                                      "1e",
                                      "-",
                                      "NaN",
                                      "Infinity",
                                      "tru",
                                      "nul",
                                      "'a'",
                                      "{a:1}",
                                      "{\"a\" 1}",
                                      "[1 2]",
                                      "\"a",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\ud800\\udcz0\"",
                                      "\"\x01\"",
                                      "\"\xFF\"",
                                      "\"\xED\xA0\x80\"",
                                      "1 2",
                                      "{}x",
                                      "// c\n1",
                                      "\xEF\xBB\xBF{}",
                                      "\"\\"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_not(valid(bad[i], strlen(bad[i])), "%s", bad[i]);
        cr_assert_eq(error.class, TC_INVALID);
        cr_assert(error.has_offset && error.offset >= 100);
    }
    cr_assert_not(valid("1\0", 2), "a NUL behind the value");
}

Test(json, integers_are_integers) {
    static const char *const bad[] = {"1.0",  "1e2", "-1", "18446744073709551616", "\"2\"", "true",
                                      "null", "00",  "1E0"};
    uint64_t number;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        start(bad[i], strlen(bad[i]));
        cr_assert_not(tc_json_unsigned(&json, &number) && tc_json_end(&json), "%s", bad[i]);
    }
    start("18446744073709551615", 20);
    cr_assert(tc_json_unsigned(&json, &number));
    cr_assert_eq(number, UINT64_MAX);
}

Test(json, depth_is_bounded) {
    char text[200];
    memset(text, '[', sizeof text);
    cr_assert_not(valid(text, sizeof text));
    memset(text + 32, ']', 32);
    cr_assert(valid(text, 64));
    memset(text, '[', 33);
    memset(text + 33, ']', 33);
    cr_assert_not(valid(text, 66));
}

Test(json, every_cut_of_a_text_fails) {
    const char text[] = "{\"a\":[1,-2.5e3,\"\\u00e9\\n\"],\"b\":{\"c\":null,\"d\":true}}";
    for (size_t length = 0; length < strlen(text); length++)
        cr_assert_not(valid(text, length), "cut at %zu", length);
    cr_assert(valid(text, strlen(text)));
}
