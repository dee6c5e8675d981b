/*
 * Writes JSON into a buffer. Braces, commas, colons, quotation marks and white
 * space are written here and nowhere else.
 *
 *     struct tc_json_writer json = {.out = &out, .escape = TC_ESCAPE_DISPLAY};
 *     tc_json_open_object(&json, NULL);
 *     tc_json_add_string(&json, "file", path);
 *     tc_json_open_array(&json, "tensors");
 *     tc_json_add_text(&json, NULL, name);
 *     tc_json_end_line(&json);
 *
 * Every call takes the key of the member, or NULL for an element of an array,
 * for the outermost value, and after tc_json_add_key. Keys are the program's
 * own words; names from files go through tc_json_add_key, which escapes them.
 * The buffer keeps track of failed allocations (tc_buffer_ok), and it may be
 * emptied between calls: the writer never looks at what it wrote.
 */
#ifndef TCONV_CORE_BASE_JSON_WRITER_H
#define TCONV_CORE_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/text.h"

/* How members are separated. */
enum tc_json_style {
    TC_JSON_COMPACT,  /* {"a":1,"b":2} */
    TC_JSON_SPACED,   /* {"a": 1, "b": 2}, as Python's json.dumps does */
    TC_JSON_LINES,    /* as compact, with a line end behind each comma */
    TC_JSON_INDENTED, /* one member per line, two spaces per level, as json.dumps with
                       * indent=2 and serde_json's pretty form; {} where empty */
};

/* How many levels may be open at once. Metadata of files, whose arrays nest at most 100 deep, has
 * the most. */
#define TC_JSON_LEVELS 112u

struct tc_json_writer {
    struct tc_buffer *out;
    enum tc_escape escape;
    enum tc_json_style style; /* of levels opened from now on; may be changed */
    unsigned depth;
    bool named; /* a key was written, and its value comes next */
    struct {
        enum tc_json_style style;
        char closing;
        bool used; /* it has a member */
    } levels[TC_JSON_LEVELS];
};

void tc_json_open_object(struct tc_json_writer *json, const char *key);
void tc_json_open_array(struct tc_json_writer *json, const char *key);
/* Closes what was opened last. */
void tc_json_close(struct tc_json_writer *json);
/* Closes all that is open and ends the line. */
void tc_json_end_line(struct tc_json_writer *json);

/* The key of the value that the next call adds. */
void tc_json_add_key(struct tc_json_writer *json, struct tc_text key);

void tc_json_add_text(struct tc_json_writer *json, const char *key, struct tc_text text);
/* A text of which the caller adds the characters to the buffer, in pieces; none of them is one that
 * JSON escapes. */
void tc_json_open_text(struct tc_json_writer *json, const char *key);
void tc_json_close_text(struct tc_json_writer *json);
/* Bytes as text of the characters U+0000 to U+00FF, each escaped. */
void tc_json_add_bytes(struct tc_json_writer *json, const char *key, struct tc_text bytes);
void tc_json_add_string(struct tc_json_writer *json, const char *key, const char *string);
void tc_json_add_number(struct tc_json_writer *json, const char *key, uint64_t number);
/* Adds a finite number as Python's repr, any other as the string "NaN",
 * "Infinity" or "-Infinity". */
void tc_json_add_real(struct tc_json_writer *json, const char *key, double number);
void tc_json_add_boolean(struct tc_json_writer *json, const char *key, bool value);
void tc_json_add_null(struct tc_json_writer *json, const char *key);
/* An array of numbers, in the current style. */
void tc_json_add_numbers(struct tc_json_writer *json, const char *key, const uint64_t *numbers,
                         size_t count);
/* A value that is JSON text already, and a number as printf prints it. */
void tc_json_add_raw(struct tc_json_writer *json, const char *key, struct tc_text value);
void tc_json_addf(struct tc_json_writer *json, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
