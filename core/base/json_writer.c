#include "core/base/json_writer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/digits.h"

static void start_line(struct tc_json_writer *json) {
    static const char spaces[] = "                                ";
    tc_buffer_add(json->out, "\n", 1);
    for (size_t left = 2 * (size_t)json->depth; left;) {
        size_t step = left < sizeof spaces - 1 ? left : sizeof spaces - 1;
        tc_buffer_add(json->out, spaces, step);
        left -= step;
    }
}

/* What stands before a member: a comma behind another one, and white space. */
static void start_member(struct tc_json_writer *json) {
    if (json->depth == 0)
        return;
    enum tc_json_style style = json->levels[json->depth - 1].style;
    if (json->levels[json->depth - 1].used) {
        tc_buffer_add(json->out, ",", 1);
        if (style == TC_JSON_SPACED)
            tc_buffer_add(json->out, " ", 1);
        else if (style == TC_JSON_LINES)
            tc_buffer_add(json->out, "\n", 1);
    }
    if (style == TC_JSON_INDENTED)
        start_line(json);
    json->levels[json->depth - 1].used = true;
}

void tc_json_add_key(struct tc_json_writer *json, struct tc_text key) {
    assert(json->depth && json->levels[json->depth - 1].closing == '}' && !json->named);
    enum tc_json_style style = json->levels[json->depth - 1].style;
    start_member(json);
    tc_buffer_add_json(json->out, key, json->escape);
    if (style == TC_JSON_SPACED || style == TC_JSON_INDENTED)
        tc_buffer_add(json->out, ": ", 2);
    else
        tc_buffer_add(json->out, ":", 1);
    json->named = true;
}

static void start_value(struct tc_json_writer *json, const char *key) {
    if (key)
        tc_json_add_key(json, tc_text_of(key));
    else if (!json->named)
        start_member(json);
    assert(json->depth == 0 || json->named == (json->levels[json->depth - 1].closing == '}'));
    json->named = false;
}

static void open_level(struct tc_json_writer *json, const char *key, char opening, char closing) {
    start_value(json, key);
    assert(json->depth < TC_JSON_LEVELS);
    tc_buffer_add(json->out, &opening, 1);
    json->levels[json->depth].style = json->style;
    json->levels[json->depth].closing = closing;
    json->levels[json->depth].used = false;
    json->depth++;
}

void tc_json_open_object(struct tc_json_writer *json, const char *key) {
    open_level(json, key, '{', '}');
}

void tc_json_open_array(struct tc_json_writer *json, const char *key) {
    open_level(json, key, '[', ']');
}

void tc_json_close(struct tc_json_writer *json) {
    assert(json->depth && !json->named);
    json->depth--;
    if (json->levels[json->depth].style == TC_JSON_INDENTED && json->levels[json->depth].used)
        start_line(json);
    tc_buffer_add(json->out, &json->levels[json->depth].closing, 1);
}

void tc_json_end_line(struct tc_json_writer *json) {
    while (json->depth)
        tc_json_close(json);
    tc_buffer_add(json->out, "\n", 1);
}

void tc_json_add_text(struct tc_json_writer *json, const char *key, struct tc_text text) {
    start_value(json, key);
    tc_buffer_add_json(json->out, text, json->escape);
}

void tc_json_add_string(struct tc_json_writer *json, const char *key, const char *string) {
    tc_json_add_text(json, key, tc_text_of(string));
}

void tc_json_add_number(struct tc_json_writer *json, const char *key, uint64_t number) {
    start_value(json, key);
    tc_buffer_add_number(json->out, number);
}

void tc_json_add_real(struct tc_json_writer *json, const char *key, double number) {
    start_value(json, key);
    tc_buffer_add_real(json->out, number);
}

void tc_json_add_boolean(struct tc_json_writer *json, const char *key, bool value) {
    start_value(json, key);
    tc_buffer_add_string(json->out, value ? "true" : "false");
}

void tc_json_add_null(struct tc_json_writer *json, const char *key) {
    start_value(json, key);
    tc_buffer_add_string(json->out, "null");
}

void tc_json_add_numbers(struct tc_json_writer *json, const char *key, const uint64_t *numbers,
                         size_t count) {
    tc_json_open_array(json, key);
    for (size_t i = 0; i < count; i++)
        tc_json_add_number(json, NULL, numbers[i]);
    tc_json_close(json);
}

void tc_json_add_raw(struct tc_json_writer *json, const char *key, struct tc_text value) {
    start_value(json, key);
    tc_buffer_add_text(json->out, value);
}

void tc_json_open_text(struct tc_json_writer *json, const char *key) {
    start_value(json, key);
    tc_buffer_add(json->out, "\"", 1);
}

void tc_json_close_text(struct tc_json_writer *json) {
    tc_buffer_add(json->out, "\"", 1);
}

void tc_json_add_bytes(struct tc_json_writer *json, const char *key, struct tc_text bytes) {
    start_value(json, key);
    tc_buffer_add_string(json->out, "\"");
    for (size_t i = 0; i < bytes.length; i++)
        tc_buffer_addf(json->out, "\\u%04x", (unsigned char)bytes.bytes[i]);
    tc_buffer_add_string(json->out, "\"");
}

void tc_json_addf(struct tc_json_writer *json, const char *key, const char *format, ...) {
    char text[400]; /* the longest number of %f has 317 characters */
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(length > 0 && (size_t)length < sizeof text);
    tc_json_add_raw(json, key, (struct tc_text){text, (size_t)length});
}
