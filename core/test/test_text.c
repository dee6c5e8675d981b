#include <criterion/criterion.h>

#include "core/base/text.h"

static void expect_json(struct tc_text text, enum tc_escape how, const char *expected) {
    struct tc_buffer buffer = {0};
    tc_buffer_add_json(&buffer, text, how);
    cr_assert_str_eq(buffer.bytes, expected);
    tc_buffer_release(&buffer);
}

Test(text, compare_is_by_bytes_then_length) {
    cr_assert_lt(tc_text_compare(TC_TEXT("a"), TC_TEXT("ab")), 0);
    cr_assert_gt(tc_text_compare(TC_TEXT("\xC3"), TC_TEXT("z")), 0);
    cr_assert_eq(tc_text_compare(TC_TEXT(""), TC_TEXT("")), 0);
}

Test(text, utf8_is_strict) {
    cr_assert(tc_utf8_valid(TC_TEXT("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80")));
    cr_assert_not(tc_utf8_valid(TC_TEXT("\xC0\x80")), "overlong NUL");
    cr_assert_not(tc_utf8_valid(TC_TEXT("\xE0\x80\xAF")), "overlong slash");
    cr_assert_not(tc_utf8_valid(TC_TEXT("\xED\xA0\x80")), "surrogate");
    cr_assert_not(tc_utf8_valid(TC_TEXT("\xF4\x90\x80\x80")), "past U+10FFFF");
    cr_assert_not(tc_utf8_valid(TC_TEXT("\xE2\x82")), "cut short");
    cr_assert_not(tc_utf8_valid(TC_TEXT("\x80")), "lone continuation");
}

Test(text, json_escapes_as_each_writer_does) {
    expect_json(TC_TEXT("a\"\\\b\f\n\r\t\x01\x7F"), TC_ESCAPE_SERDE,
                "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\x7F\"");
    expect_json(TC_TEXT("\xC3\xA9\x7F\xE2\x80\xAE"), TC_ESCAPE_DISPLAY,
                "\"\xC3\xA9\\u007f\\u202e\"");
    expect_json(TC_TEXT("\xC2\x80\xC2\x85\xC2\x9F\xC2\xA0\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xA7"),
                TC_ESCAPE_DISPLAY, "\"\\u0080\\u0085\\u009f\xC2\xA0\\u2028\\u2029\xE2\x80\xA7\"");
    expect_json(TC_TEXT("\xC2\x85\xE2\x80\xA8"), TC_ESCAPE_SERDE, "\"\xC2\x85\xE2\x80\xA8\"");
    expect_json(TC_TEXT("\xC3\xA9\xF0\x9F\x98\x80"), TC_ESCAPE_ASCII, "\"\\u00e9\\ud83d\\ude00\"");
    expect_json(TC_TEXT("a\xFF"), TC_ESCAPE_ASCII, "\"a\\ufffd\"");
}

Test(text, visible_hides_nothing_and_moves_no_cursor) {
    struct tc_buffer buffer = {0};
    tc_buffer_add_visible(&buffer,
                          TC_TEXT("a\x1B[31m\r\n\xFF\xE2\x80\xAE\xC2\x9B\xE2\x80\xA8\xC3\xA9"));
    cr_assert_str_eq(buffer.bytes, "a\\x1b[31m\\x0d\\x0a\\xff\\u{202e}\\x9b\\u{2028}\xC3\xA9");
    tc_buffer_release(&buffer);
}

Test(text, buffer_grows_and_formats) {
    struct tc_buffer buffer = {0};
    for (int i = 0; i < 1000; i++)
        tc_buffer_addf(&buffer, "%d,", i);
    cr_assert_eq(buffer.length, 10 * 2 + 90 * 3 + 900 * 4);
    cr_assert_str_eq(buffer.bytes + buffer.length - 8, "998,999,");
    tc_buffer_release(&buffer);
}

Test(text, a_fixed_buffer_takes_what_fits) {
    char bytes[8];
    struct tc_buffer buffer = {.bytes = bytes, .capacity = sizeof bytes, .fixed = true};
    tc_buffer_add_string(&buffer, "1234567");
    cr_assert_not(buffer.failed);
    cr_assert_str_eq(buffer.bytes, "1234567");
    tc_buffer_add_string(&buffer, "8");
    cr_assert(buffer.failed);
    cr_assert_str_eq(bytes, "1234567", "what was there stays");
    tc_buffer_release(&buffer);
    cr_assert_null(buffer.bytes);
}
