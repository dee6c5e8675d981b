#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/quote.h"
#include "core/base/text.h"

/* What sh prints for a word of a line. */
static void check_shell(const char *word) {
    struct tc_error error = {0};
    struct tc_buffer line = {0};
    char got[256] = "";
    tc_buffer_add_string(&line, "printf %s");
    cr_assert(tc_quote_word(&line, tc_text_of(word), TC_QUOTE_SHELL, &error));
    tc_buffer_add(&line, "", 1);
    FILE *shell = popen(line.bytes, "r");
    cr_assert(shell != NULL);
    size_t length = fread(got, 1, sizeof got - 1, shell);
    cr_assert_eq(pclose(shell), 0);
    cr_assert_eq(length, strlen(word));
    cr_assert_str_eq(got, word);
    tc_buffer_release(&line);
}

Test(quote, sh_takes_every_word_as_it_is) {
    static const char *const words[] = {
        "plain",        "",      "two words", "it's",    "''",
        "\"$HOME\"",    "`id`",  "$(id)",     "a;b|c&d", "back\\slash",
        "#hash",        "~",     "*?[a]",     "!event",  "tab\there",
        "return\rhere", "{a,b}", "a=b",       "<in>out", "ümläut"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        check_shell(words[i]);
    for (int byte = 1; byte < 256; byte++) {
        char word[4] = {'x', (char)byte, 'y'};
        if (byte != '\n')
            check_shell(word);
    }
}

static void check_text(const char *word, enum tc_quote how, const char *wanted) {
    struct tc_error error = {0};
    struct tc_buffer line = {0};
    cr_assert(tc_quote_word(&line, tc_text_of(word), how, &error));
    cr_assert_eq(line.length, strlen(wanted));
    cr_assert(memcmp(line.bytes, wanted, line.length) == 0, "%.*s", (int)line.length, line.bytes);
    tc_buffer_release(&line);
}

Test(quote, words_that_need_nothing_stay) {
    check_text("--shard=1/20", TC_QUOTE_SHELL, "--shard=1/20");
    check_text("/a/b-c_d.npz", TC_QUOTE_SHELL, "/a/b-c_d.npz");
    check_text("a b", TC_QUOTE_SHELL, "'a b'");
    check_text("it's", TC_QUOTE_SHELL, "'it'\\''s'");
}

Test(quote, make_looks_for_dollars_first) {
    check_text("$x", TC_QUOTE_SHELL, "'$x'");
    check_text("$x", TC_QUOTE_RECIPE, "'$$x'");
}

Test(quote, words_are_apart) {
    struct tc_error error = {0};
    struct tc_buffer line = {0};
    cr_assert(tc_quote_word(&line, TC_TEXT("a"), TC_QUOTE_SHELL, &error));
    cr_assert(tc_quote_word(&line, TC_TEXT("b c"), TC_QUOTE_SHELL, &error));
    cr_assert(line.length == 7 && memcmp(line.bytes, "a 'b c'", 7) == 0);
    tc_buffer_release(&line);
}

Test(quote, a_line_break_is_refused) {
    struct tc_error error = {0};
    struct tc_buffer line = {0};
    cr_assert_not(tc_quote_word(&line, TC_TEXT("a\nb"), TC_QUOTE_SHELL, &error));
    cr_assert_eq(error.class, TC_UNSAFE);
    cr_assert_str_eq(error.code, "quoting");
    error = (struct tc_error){0};
    cr_assert_not(tc_quote_word(&line, TC_TEXT("a\0b"), TC_QUOTE_SHELL, &error));
    tc_buffer_release(&line);
}
