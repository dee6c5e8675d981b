#include "core/base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8

#include <pcre2.h>

/* Names have at most 64 KiB; an ordinary expression takes a few steps per byte. */
#define MATCH_LIMIT 1000000u
#define HEAP_LIMIT_KIB 16384u

bool tc_regex_compile(struct tc_regex *regex, struct tc_text pattern, bool ignore_case,
                      struct tc_error *error) {
    int number;
    PCRE2_SIZE at;
    *regex = (struct tc_regex){0};
    regex->code = pcre2_compile((PCRE2_SPTR)pattern.bytes, pattern.length,
                                PCRE2_UTF | (ignore_case ? PCRE2_CASELESS : 0), &number, &at, NULL);
    if (!regex->code && number == PCRE2_ERROR_HEAP_FAILED)
        return tc_fail_memory(error);
    if (!regex->code) {
        PCRE2_UCHAR message[128] = "";
        pcre2_get_error_message(number, message, sizeof message);
        return tc_fail(error, TC_USAGE, "regex", "bad regular expression at character %zu: %s",
                       (size_t)at + 1, (const char *)message);
    }
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    regex->context = context;
    regex->match = pcre2_match_data_create_from_pattern(regex->code, NULL);
    if (!regex->match || !context) {
        tc_regex_release(regex);
        return tc_fail_memory(error);
    }
    pcre2_set_match_limit(context, MATCH_LIMIT);
    pcre2_set_heap_limit(context, HEAP_LIMIT_KIB);
    return true;
}

void tc_regex_release(struct tc_regex *regex) {
    pcre2_match_data_free(regex->match);
    pcre2_match_context_free(regex->context);
    pcre2_code_free(regex->code);
    *regex = (struct tc_regex){0};
}

static bool failed(int code, struct tc_text text, struct tc_error *error) {
    PCRE2_UCHAR message[128] = "";
    if (code == PCRE2_ERROR_NOMEMORY)
        return tc_fail_memory(error);
    pcre2_get_error_message(code, message, sizeof message);
    tc_fail(error, TC_UNSAFE, "regex", "matching a regular expression on this name failed: %s",
            (const char *)message);
    return tc_error_in_tensor(error, text.bytes, text.length);
}

bool tc_regex_matches(const struct tc_regex *regex, struct tc_text text, bool *matches,
                      struct tc_error *error) {
    int code = pcre2_match(regex->code, (PCRE2_SPTR)text.bytes, text.length, 0, 0, regex->match,
                           regex->context);
    if (code < 0 && code != PCRE2_ERROR_NOMATCH)
        return failed(code, text, error);
    *matches = code >= 0;
    return true;
}

bool tc_regex_replace(const struct tc_regex *regex, struct tc_text text, const char *replacement,
                      bool all, struct tc_arena *arena, struct tc_text *result,
                      struct tc_error *error) {
    uint32_t options = PCRE2_SUBSTITUTE_EXTENDED | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH |
                       PCRE2_SUBSTITUTE_UNSET_EMPTY | (all ? PCRE2_SUBSTITUTE_GLOBAL : 0);
    PCRE2_SIZE capacity = text.length + 64;
    for (int attempt = 0; attempt < 2; attempt++) {
        char *to = tc_arena_alloc(arena, capacity, error);
        if (!to)
            return false;
        PCRE2_SIZE length = capacity;
        int code = pcre2_substitute(regex->code, (PCRE2_SPTR)text.bytes, text.length, 0, options,
                                    regex->match, regex->context, (PCRE2_SPTR)replacement,
                                    PCRE2_ZERO_TERMINATED, (PCRE2_UCHAR *)to, &length);
        if (code == PCRE2_ERROR_NOMEMORY && length > capacity) {
            capacity = length;
            continue;
        }
        if (code < 0)
            return failed(code, text, error);
        *result = code == 0 ? text : (struct tc_text){to, length};
        return true;
    }
    return tc_fail_memory(error);
}
