#include "core/base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/limits.h"

_Static_assert(sizeof(((struct tc_json *)0)->stack) == TC_MAX_JSON_DEPTH, "one byte a level");

void tc_json_init(struct tc_json *json, const char *bytes, size_t length, uint64_t base,
                  struct tc_arena *arena, struct tc_error *error) {
    *json = (struct tc_json){
        .bytes = bytes, .length = length, .base = base, .arena = arena, .error = error};
}

bool tc_json_fail(struct tc_json *json, const char *format, ...) {
    if (json->failed)
        return false;
    json->failed = true;
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    tc_fail(json->error, TC_INVALID, "json", "%s", message);
    return tc_error_at(json->error, json->base + json->at);
}

static void skip_space(struct tc_json *json) {
    while (json->at < json->length) {
        char c = json->bytes[json->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        json->at++;
    }
}

/* The next character behind white space, or 0 at the end (a NUL in the text
 * reads as 0 too, and is no token either). */
static char next_character(struct tc_json *json) {
    if (json->failed)
        return 0;
    skip_space(json);
    return json->at < json->length ? json->bytes[json->at] : 0;
}

static bool unexpected(struct tc_json *json, const char *expected) {
    if (json->failed)
        return false;
    if (json->at >= json->length)
        return tc_json_fail(json, "the JSON ends early (expected %s)", expected);
    unsigned char c = (unsigned char)json->bytes[json->at];
    if (c > 0x20 && c < 0x7F)
        return tc_json_fail(json, "bad JSON (got '%c', expected %s)", c, expected);
    return tc_json_fail(json, "bad JSON (got byte 0x%02x, expected %s)", c, expected);
}

enum tc_json_kind tc_json_peek(struct tc_json *json) {
    char c = next_character(json);
    switch (c) {
    case '{':
        return TC_JSON_OBJECT;
    case '[':
        return TC_JSON_ARRAY;
    case '"':
        return TC_JSON_STRING;
    case 't':
        return TC_JSON_TRUE;
    case 'f':
        return TC_JSON_FALSE;
    case 'n':
        return TC_JSON_NULL;
    default:
        return c == '-' || (c >= '0' && c <= '9') ? TC_JSON_NUMBER : TC_JSON_NOTHING;
    }
}

bool tc_json_begin(struct tc_json *json, enum tc_json_kind kind) {
    char wanted = kind == TC_JSON_OBJECT ? '{' : '[';
    if (next_character(json) != wanted)
        return unexpected(json, kind == TC_JSON_OBJECT ? "an object" : "an array");
    if (json->depth == TC_MAX_JSON_DEPTH)
        return tc_json_fail(json, "the JSON is nested deeper than %u levels", TC_MAX_JSON_DEPTH);
    json->at++;
    json->stack[json->depth++] = (char)kind;
    json->first = true;
    return true;
}

/* Between members: takes the comma, or the closing bracket and returns false. */
static bool next_member(struct tc_json *json, char closing) {
    char c = next_character(json);
    if (c == closing) {
        json->at++;
        json->depth--;
        json->first = false;
        return false;
    }
    if (!json->first) {
        if (c != ',')
            return unexpected(json, closing == '}' ? "',' or '}'" : "',' or ']'");
        json->at++;
        skip_space(json);
    }
    json->first = false;
    return !json->failed;
}

bool tc_json_key(struct tc_json *json, struct tc_text *key) {
    if (json->failed || !next_member(json, '}'))
        return false;
    if (next_character(json) != '"')
        return unexpected(json, "a key");
    if (!tc_json_string(json, key))
        return false;
    if (next_character(json) != ':')
        return unexpected(json, "':'");
    json->at++;
    return true;
}

bool tc_json_element(struct tc_json *json) {
    return !json->failed && next_member(json, ']');
}

/* Four hexadecimal digits at `at`, which it passes. */
static bool read_hex(struct tc_json *json, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        int digit = json->at < json->length ? tc_hex_digit(json->bytes[json->at]) : -1;
        if (digit < 0)
            return tc_json_fail(json, "bad \\u escape in a string");
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static size_t encode_utf8(uint32_t c, char *to) {
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xC0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xE0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3F));
        to[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3F));
    to[2] = (char)(0x80 | (c >> 6 & 0x3F));
    to[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

/* One escape behind its backslash, written to `to` as UTF-8. */
static bool read_escape(struct tc_json *json, char *to, size_t *length) {
    static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    if (json->at >= json->length)
        return tc_json_fail(json, "the JSON ends inside a string");
    char c = json->bytes[json->at];
    for (size_t i = 0; i + 1 < sizeof plain; i += 2)
        if (c == plain[i]) {
            *to = plain[i + 1];
            *length = 1;
            json->at++;
            return true;
        }
    if (c != 'u')
        return tc_json_fail(json, "bad escape in a string");
    json->at++;
    uint32_t character;
    if (!read_hex(json, &character))
        return false;
    if (character >= 0xD800 && character < 0xE000) {
        uint32_t low = 0;
        if (character >= 0xDC00 || json->length - json->at < 2 || json->bytes[json->at] != '\\' ||
            json->bytes[json->at + 1] != 'u')
            return tc_json_fail(json, "a lone surrogate in a string");
        json->at += 2;
        if (!read_hex(json, &low))
            return false;
        if (low < 0xDC00 || low >= 0xE000)
            return tc_json_fail(json, "a lone surrogate in a string");
        character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
    }
    *length = encode_utf8(character, to);
    return true;
}

/* Finds the closing quote of a string that starts at `at`, checking UTF-8. */
static bool scan_string(struct tc_json *json, size_t *end, bool *escaped) {
    *escaped = false;
    while (json->at < json->length) {
        unsigned char c = (unsigned char)json->bytes[json->at];
        if (c == '"') {
            *end = json->at++;
            return true;
        }
        if (c < 0x20)
            return tc_json_fail(json, "a control character in a string");
        if (c == '\\') {
            *escaped = true;
            json->at += 2;
        } else if (c < 0x80) {
            json->at++;
        } else {
            uint32_t character;
            size_t step =
                tc_utf8_length(json->bytes + json->at, json->length - json->at, &character);
            if (step == 0)
                return tc_json_fail(json, "a string is not valid UTF-8");
            json->at += step;
        }
    }
    json->at = json->length;
    return tc_json_fail(json, "the JSON ends inside a string");
}

bool tc_json_string(struct tc_json *json, struct tc_text *string) {
    if (next_character(json) != '"')
        return unexpected(json, "a string");
    size_t start = ++json->at;
    size_t end = 0;
    bool escaped;
    if (!scan_string(json, &end, &escaped))
        return false;
    if (!escaped) {
        *string = (struct tc_text){json->bytes + start, end - start};
        return true;
    }
    /* Unescaping never lengthens: six bytes of \uXXXX give at most three. */
    char *copy = tc_arena_alloc(json->arena, end - start, json->error);
    if (!copy) {
        json->failed = true;
        return false;
    }
    size_t length = 0;
    json->at = start;
    while (json->at < end) {
        if (json->bytes[json->at] != '\\') {
            copy[length++] = json->bytes[json->at++];
            continue;
        }
        json->at++;
        size_t step = 0;
        if (!read_escape(json, copy + length, &step))
            return false;
        length += step;
    }
    json->at = end + 1;
    *string = (struct tc_text){copy, length};
    return true;
}

static bool is_digit(const struct tc_json *json, size_t at) {
    return at < json->length && json->bytes[at] >= '0' && json->bytes[at] <= '9';
}

bool tc_json_unsigned(struct tc_json *json, uint64_t *value) {
    char c = next_character(json);
    if (c < '0' || c > '9')
        return unexpected(json, "a non-negative integer");
    uint64_t sum = 0;
    size_t start = json->at;
    while (is_digit(json, json->at)) {
        if (__builtin_mul_overflow(sum, UINT64_C(10), &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(json->bytes[json->at] - '0'), &sum))
            return tc_json_fail(json, "a number is too large");
        json->at++;
    }
    if (json->at - start > 1 && json->bytes[start] == '0')
        return tc_json_fail(json, "a number has a leading zero");
    if (json->at < json->length) {
        char after = json->bytes[json->at];
        if (after == '.' || after == 'e' || after == 'E')
            return tc_json_fail(json, "a number is no integer");
    }
    *value = sum;
    return true;
}

static bool skip_number(struct tc_json *json) {
    if (json->bytes[json->at] == '-')
        json->at++;
    if (!is_digit(json, json->at))
        return tc_json_fail(json, "bad number");
    if (json->bytes[json->at] == '0' && is_digit(json, json->at + 1))
        return tc_json_fail(json, "a number has a leading zero");
    while (is_digit(json, json->at))
        json->at++;
    if (json->at < json->length && json->bytes[json->at] == '.') {
        json->at++;
        if (!is_digit(json, json->at))
            return tc_json_fail(json, "bad number");
        while (is_digit(json, json->at))
            json->at++;
    }
    if (json->at < json->length && (json->bytes[json->at] == 'e' || json->bytes[json->at] == 'E')) {
        json->at++;
        if (json->at < json->length &&
            (json->bytes[json->at] == '+' || json->bytes[json->at] == '-'))
            json->at++;
        if (!is_digit(json, json->at))
            return tc_json_fail(json, "bad number");
        while (is_digit(json, json->at))
            json->at++;
    }
    return true;
}

static bool skip_word(struct tc_json *json, const char *word) {
    size_t length = strlen(word);
    if (json->length - json->at < length || memcmp(json->bytes + json->at, word, length) != 0)
        return unexpected(json, "a value");
    json->at += length;
    return true;
}

bool tc_json_null(struct tc_json *json) {
    next_character(json);
    return !json->failed && skip_word(json, "null");
}

static bool skip_scalar(struct tc_json *json) {
    struct tc_text ignored;
    switch (tc_json_peek(json)) {
    case TC_JSON_STRING:
        return tc_json_string(json, &ignored);
    case TC_JSON_NUMBER:
        return skip_number(json);
    case TC_JSON_TRUE:
        return skip_word(json, "true");
    case TC_JSON_FALSE:
        return skip_word(json, "false");
    case TC_JSON_NULL:
        return skip_word(json, "null");
    default:
        return unexpected(json, "a value");
    }
}

bool tc_json_skip(struct tc_json *json, struct tc_text *text) {
    next_character(json);
    size_t start = json->at;
    unsigned floor = json->depth;
    do {
        if (json->depth > floor) {
            struct tc_text key;
            bool more = json->stack[json->depth - 1] == TC_JSON_OBJECT ? tc_json_key(json, &key)
                                                                       : tc_json_element(json);
            if (json->failed)
                return false;
            if (!more)
                continue;
        }
        enum tc_json_kind kind = tc_json_peek(json);
        bool nested = kind == TC_JSON_OBJECT || kind == TC_JSON_ARRAY;
        if (!(nested ? tc_json_begin(json, kind) : skip_scalar(json)))
            return false;
    } while (json->depth > floor);
    *text = (struct tc_text){json->bytes + start, json->at - start};
    return true;
}

bool tc_json_end(struct tc_json *json) {
    if (json->failed)
        return false;
    skip_space(json);
    if (json->at < json->length)
        return tc_json_fail(json, "something follows the JSON text");
    return true;
}
