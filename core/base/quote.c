#include "core/base/quote.h"

#include <string.h>

/* What no shell and no make gives a meaning to, wherever it stands in a word. */
static bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_-./=+,:@", c));
}

static bool is_plain_word(struct tc_text word) {
    size_t plain = 0;
    while (plain < word.length && is_plain(word.bytes[plain]))
        plain++;
    return word.length && plain == word.length;
}

static void add_quoted(struct tc_buffer *line, struct tc_text word, enum tc_quote how) {
    tc_buffer_add_string(line, "'");
    for (size_t i = 0; i < word.length; i++) {
        if (word.bytes[i] == '\'')
            tc_buffer_add_string(line, "'\\'");
        else if (word.bytes[i] == '$' && how == TC_QUOTE_RECIPE)
            tc_buffer_add_string(line, "$");
        tc_buffer_add(line, word.bytes + i, 1);
    }
    tc_buffer_add_string(line, "'");
}

bool tc_quote_word(struct tc_buffer *line, struct tc_text word, enum tc_quote how,
                   struct tc_error *error) {
    if (memchr(word.bytes, '\n', word.length) || memchr(word.bytes, '\0', word.length))
        return tc_fail(error, TC_UNSAFE, "quoting", "a line break can't be part of a job's line");
    char last = line->length ? line->bytes[line->length - 1] : '\n';
    if (last != '\n' && last != '\t' && last != ' ')
        tc_buffer_add_string(line, " ");
    if (is_plain_word(word))
        tc_buffer_add_text(line, word);
    else
        add_quoted(line, word, how);
    return tc_buffer_ok(line, error);
}
