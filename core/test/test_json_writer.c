#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/text.h"

static struct tc_buffer out;

static void teardown(void) {
    tc_buffer_release(&out);
}

TestSuite(json_writer, .fini = teardown);

/* One of everything: an empty object and array, nesting, all kinds of values. */
static void write_all(struct tc_json_writer *json) {
    const uint64_t shape[] = {2, 3};
    tc_json_open_object(json, NULL);
    tc_json_add_string(json, "s", "a\"b");
    tc_json_add_number(json, "n", UINT64_MAX);
    tc_json_open_object(json, "o");
    tc_json_close(json);
    tc_json_open_array(json, "a");
    tc_json_add_boolean(json, NULL, true);
    tc_json_add_boolean(json, NULL, false);
    tc_json_add_null(json, NULL);
    tc_json_open_array(json, NULL);
    tc_json_close(json);
    tc_json_open_object(json, NULL);
    tc_json_add_key(json, TC_TEXT("\xC3\xA9"));
    tc_json_add_raw(json, NULL, TC_TEXT("[1]"));
    tc_json_close(json);
    tc_json_close(json);
    tc_json_add_numbers(json, "d", shape, 2);
    tc_json_close(json);
}

static void expect(const char *expected) {
    cr_assert_str_eq(out.bytes, expected);
}

Test(json_writer, compact) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_SERDE};
    write_all(&json);
    expect("{\"s\":\"a\\\"b\",\"n\":18446744073709551615,\"o\":{},"
           "\"a\":[true,false,null,[],{\"\xC3\xA9\":[1]}],\"d\":[2,3]}");
    cr_assert_eq(json.depth, 0);
}

Test(json_writer, spaced_as_pythons_dumps) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_ASCII, .style = TC_JSON_SPACED};
    write_all(&json);
    expect("{\"s\": \"a\\\"b\", \"n\": 18446744073709551615, \"o\": {}, "
           "\"a\": [true, false, null, [], {\"\\u00e9\": [1]}], \"d\": [2, 3]}");
}

Test(json_writer, indented_as_pythons_and_serdes_pretty_forms) {
    struct tc_json_writer json = {
        .out = &out, .escape = TC_ESCAPE_ASCII, .style = TC_JSON_INDENTED};
    write_all(&json);
    expect("{\n  \"s\": \"a\\\"b\",\n  \"n\": 18446744073709551615,\n  \"o\": {},\n  \"a\": [\n"
           "    true,\n    false,\n    null,\n    [],\n    {\n      \"\\u00e9\": [1]\n    }\n  ],\n"
           "  \"d\": [\n    2,\n    3\n  ]\n}");
}

Test(json_writer, every_level_is_indented) {
    struct tc_json_writer json = {.out = &out, .style = TC_JSON_INDENTED};
    for (unsigned level = 0; level < TC_JSON_LEVELS; level++)
        tc_json_open_array(&json, NULL);
    tc_json_add_null(&json, NULL);
    while (json.depth)
        tc_json_close(&json);
    size_t lines = 0, spaces = 0;
    for (size_t i = 0; i < out.length; i++) {
        cr_assert(strchr("[ \nnul]", out.bytes[i]) && out.bytes[i], "byte %zu", i);
        lines += out.bytes[i] == '\n';
        spaces += out.bytes[i] == ' ';
    }
    cr_assert_eq(lines, (size_t)2 * TC_JSON_LEVELS);
    cr_assert_eq(spaces, (size_t)2 * TC_JSON_LEVELS * TC_JSON_LEVELS);
}

Test(json_writer, a_text_in_pieces) {
    struct tc_json_writer json = {.out = &out};
    tc_json_open_object(&json, NULL);
    tc_json_open_text(&json, "t");
    tc_buffer_add_string(&out, "ab");
    tc_buffer_add_string(&out, "cd");
    tc_json_close_text(&json);
    tc_json_add_number(&json, "n", 1);
    tc_json_close(&json);
    expect("{\"t\":\"abcd\",\"n\":1}");
}

Test(json_writer, bytes_are_escaped_one_by_one) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_SERDE};
    tc_json_open_array(&json, NULL);
    tc_json_add_bytes(&json, NULL, (struct tc_text){"\0a\xff", 3});
    tc_json_add_bytes(&json, NULL, (struct tc_text){NULL, 0});
    tc_json_close(&json);
    expect("[\"\\u0000\\u0061\\u00ff\",\"\"]");
}

Test(json_writer, lines) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_SERDE, .style = TC_JSON_LINES};
    write_all(&json);
    expect("{\"s\":\"a\\\"b\",\n\"n\":18446744073709551615,\n\"o\":{},\n"
           "\"a\":[true,\nfalse,\nnull,\n[],\n{\"\xC3\xA9\":[1]}],\n\"d\":[2,\n3]}");
}

Test(json_writer, a_level_has_the_style_that_it_was_opened_with) {
    struct tc_json_writer json = {
        .out = &out, .escape = TC_ESCAPE_SERDE, .style = TC_JSON_INDENTED};
    tc_json_open_object(&json, NULL);
    json.style = TC_JSON_SPACED;
    tc_json_open_object(&json, "a");
    tc_json_add_number(&json, "x", 1);
    json.style = TC_JSON_COMPACT;
    tc_json_add_numbers(&json, "y", (const uint64_t[]){1, 2}, 2);
    tc_json_close(&json);
    tc_json_add_null(&json, "b");
    tc_json_end_line(&json);
    expect("{\n  \"a\": {\"x\": 1, \"y\": [1,2]},\n  \"b\": null\n}\n");
}

Test(json_writer, numbers) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_SERDE};
    tc_json_open_array(&json, NULL);
    tc_json_add_real(&json, NULL, 0.1);
    tc_json_add_real(&json, NULL, -10);
    tc_json_add_real(&json, NULL, (double)NAN);
    tc_json_add_real(&json, NULL, (double)INFINITY);
    tc_json_add_real(&json, NULL, -(double)INFINITY);
    tc_json_addf(&json, NULL, "%.3f", 1.5);
    tc_json_end_line(&json);
    expect("[0.1,-10.0,\"NaN\",\"Infinity\",\"-Infinity\",1.500]\n");
}

/* Documents a line each, and a buffer that is emptied in between. */
Test(json_writer, the_buffer_may_be_emptied) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    tc_json_open_array(&json, "a");
    tc_json_add_number(&json, NULL, 1);
    out.length = 0;
    tc_json_add_number(&json, NULL, 2);
    tc_json_end_line(&json);
    tc_json_add_number(&json, NULL, 3);
    tc_json_end_line(&json);
    expect(",2]}\n3\n");
}

/* Mistakes of the program end it, rather than write what is no JSON. */
static struct tc_json_writer opened(void) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_SERDE};
    tc_json_open_object(&json, NULL);
    return json;
}

Test(json_writer, a_member_without_a_key_is_a_mistake, .signal = SIGABRT) {
    struct tc_json_writer json = opened();
    tc_json_add_number(&json, NULL, 1);
}

Test(json_writer, a_key_in_an_array_is_a_mistake, .signal = SIGABRT) {
    struct tc_json_writer json = opened();
    tc_json_open_array(&json, "a");
    tc_json_add_number(&json, "b", 1);
}

Test(json_writer, a_key_without_a_value_is_a_mistake, .signal = SIGABRT) {
    struct tc_json_writer json = opened();
    tc_json_add_key(&json, TC_TEXT("a"));
    tc_json_close(&json);
}

Test(json_writer, too_many_levels_are_a_mistake, .signal = SIGABRT) {
    struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_SERDE};
    for (unsigned i = 0; i <= TC_JSON_LEVELS; i++)
        tc_json_open_array(&json, NULL);
}

Test(json_writer, closing_what_is_not_open_is_a_mistake, .signal = SIGABRT) {
    struct tc_json_writer json = opened();
    tc_json_close(&json);
    tc_json_close(&json);
}
