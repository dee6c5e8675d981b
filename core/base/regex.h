/*
 * Regular expressions on tensors' names, by PCRE2. Expressions come from the
 * user, names from untrusted files: matching has a bound on its steps, so that no
 * name can make an expression run for ever. One thread at a time may use an
 * expression.
 */
#ifndef TCONV_CORE_BASE_REGEX_H
#define TCONV_CORE_BASE_REGEX_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"

struct tc_regex {
    void *code;
    void *match;
    void *context;
};

/* The pattern is UTF-8 and may match anywhere. A bad expression is TC_USAGE, and
 * the message says where in it. */
bool tc_regex_compile(struct tc_regex *regex, struct tc_text pattern, bool ignore_case,
                      struct tc_error *error);
void tc_regex_release(struct tc_regex *regex);
bool tc_regex_matches(const struct tc_regex *regex, struct tc_text text, bool *matches,
                      struct tc_error *error);
/* `replacement` in PCRE2's own form: $0, ${1}, $$. The result is the arena's,
 * or the text itself where nothing matched. */
bool tc_regex_replace(const struct tc_regex *regex, struct tc_text text, const char *replacement,
                      bool all, struct tc_arena *arena, struct tc_text *result,
                      struct tc_error *error);

#endif
