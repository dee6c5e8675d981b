/*
 * Text: slices with a length (names may hold any valid UTF-8 except NUL), a growing
 * buffer, and the escapes for JSON and for terminals.
 */
#ifndef TCONV_CORE_BASE_TEXT_H
#define TCONV_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

/* Not owned: it points into a header, an arena or a literal. */
struct tc_text {
    const char *bytes;
    size_t length;
};

#define TC_TEXT(literal) ((struct tc_text){(literal), sizeof(literal) - 1})

struct tc_text tc_text_of(const char *string);
bool tc_text_equal(struct tc_text a, struct tc_text b);
/* Compares by bytes, a prefix before longer texts; the result's sign is as
 * memcmp's. */
int tc_text_compare(struct tc_text a, struct tc_text b);
bool tc_text_starts(struct tc_text text, struct tc_text prefix);
bool tc_text_ends(struct tc_text text, struct tc_text suffix);
/* The precision for %.*s: the text's length, but at most `most`. */
int tc_text_shown(struct tc_text text, int most);
/* What a hexadecimal digit stands for; -1: it is none. */
int tc_hex_digit(char c);
/* The next line of a string, without its newline; false at the end. */
bool tc_text_line(const char **at, struct tc_text *line);

/* Strict: no overlong forms, no surrogates, nothing past U+10FFFF. Returns
 * the number of bytes of the character at `bytes`, 0 where there is none. */
size_t tc_utf8_length(const char *bytes, size_t length, uint32_t *character);
bool tc_utf8_valid(struct tc_text text);

/* A growing byte buffer. After a failed allocation `failed` stays set and
 * appends do nothing, so a caller may check once at the end. */
struct tc_buffer {
    char *bytes;
    size_t length;
    size_t capacity;
    bool failed;
    bool fixed; /* the bytes are the caller's, and there are no more */
};

void tc_buffer_release(struct tc_buffer *buffer);
void tc_buffer_add(struct tc_buffer *buffer, const void *bytes, size_t length);
void tc_buffer_add_spaces(struct tc_buffer *buffer, size_t count);
void tc_buffer_add_text(struct tc_buffer *buffer, struct tc_text text);
void tc_buffer_add_string(struct tc_buffer *buffer, const char *string);
void tc_buffer_addf(struct tc_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tc_buffer_add_number(struct tc_buffer *buffer, uint64_t number);
bool tc_buffer_ok(const struct tc_buffer *buffer, struct tc_error *error);

enum tc_escape {
    TC_ESCAPE_SERDE,   /* as serde_json: ", \ and U+0000–001F */
    TC_ESCAPE_DISPLAY, /* those, U+007F–009F, U+2028, U+2029 and bidirectional controls */
    TC_ESCAPE_ASCII,   /* as Python's json.dumps: everything beyond ASCII */
};

/* A JSON string with its quotes. Text must be valid UTF-8; where it is not
 * (a path), each stray byte becomes U+FFFD. */
void tc_buffer_add_json(struct tc_buffer *buffer, struct tc_text text, enum tc_escape how);

/* For a terminal: control characters, line ends, bidirectional controls and
 * invalid bytes as \xNN or \u{NNNN}, a backslash as it is. */
void tc_buffer_add_visible(struct tc_buffer *buffer, struct tc_text text);

#endif
