/*
 * A strict, iterative JSON scanner for untrusted headers: no recursion, no tree,
 * nothing allocated but unescaped strings. The text must outlive the strings that
 * it gives. One thread at a time may use a scanner.
 *
 *     tc_json_init(&json, bytes, length, base_offset, arena, error);
 *     tc_json_begin(&json, TC_JSON_OBJECT);
 *     while (tc_json_key(&json, &key)) { … tc_json_string(&json, &value) … }
 *     tc_json_end(&json);
 *
 * Each call that fails fills the error (with the absolute offset), and from
 * then on every call fails, so a caller may check `json.failed` once after a
 * loop. RFC 8259 to the letter: no comments, no trailing commas, no leading
 * zeros, valid UTF-8, no lone surrogates, nothing after the value.
 */
#ifndef TCONV_CORE_BASE_JSON_H
#define TCONV_CORE_BASE_JSON_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"

enum tc_json_kind {
    TC_JSON_OBJECT = 'o',
    TC_JSON_ARRAY = 'a',
    TC_JSON_STRING = 's',
    TC_JSON_NUMBER = 'n',
    TC_JSON_TRUE = 't',
    TC_JSON_FALSE = 'f',
    TC_JSON_NULL = '0',
    TC_JSON_NOTHING = 0,
};

struct tc_json {
    const char *bytes;
    size_t length;
    size_t at;
    uint64_t base; /* where bytes[0] lies in its file */
    struct tc_arena *arena;
    struct tc_error *error;
    unsigned depth;
    char stack[32]; /* 'o' or 'a' for each open level */
    bool first;     /* no member of the innermost level was read yet */
    bool failed;
};

void tc_json_init(struct tc_json *json, const char *bytes, size_t length, uint64_t base,
                  struct tc_arena *arena, struct tc_error *error);

/* The kind of the next value, which is not consumed. */
enum tc_json_kind tc_json_peek(struct tc_json *json);

/* Enters an object or array. */
bool tc_json_begin(struct tc_json *json, enum tc_json_kind kind);
/* In an object: gives the next key, or returns false on failure and behind the
 * last member, where it leaves the object. In an array: whether another element
 * follows; false on failure and behind the last one, where it leaves the array. */
bool tc_json_key(struct tc_json *json, struct tc_text *key);
bool tc_json_element(struct tc_json *json);

/* Strings point into the text where nothing was escaped, else to the arena. */
bool tc_json_string(struct tc_json *json, struct tc_text *string);
/* A non-negative integer written as one: no sign, fraction or exponent. */
bool tc_json_unsigned(struct tc_json *json, uint64_t *value);
bool tc_json_null(struct tc_json *json);
/* Skips one value of any kind; *text is its JSON as it stands. */
bool tc_json_skip(struct tc_json *json, struct tc_text *text);
/* Fails where anything but white space follows. */
bool tc_json_end(struct tc_json *json);

/* For a caller's own checks: fails with the current offset. */
bool tc_json_fail(struct tc_json *json, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
