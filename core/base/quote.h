/* Words for a POSIX shell, and for the recipes of a makefile. */
#ifndef TCONV_CORE_BASE_QUOTE_H
#define TCONV_CORE_BASE_QUOTE_H

#include "core/base/error.h"
#include "core/base/text.h"

/* Where a command line goes. */
enum tc_quote {
    TC_QUOTE_SHELL,  /* a line of a script */
    TC_QUOTE_RECIPE, /* a line of a recipe, in which make looks for dollars first */
};

/* Adds a word, behind a space where the buffer does not end in white space, such that
 * the shell takes it for exactly these bytes. A word with a line break, which would
 * no longer be one line, is TC_UNSAFE. */
bool tc_quote_word(struct tc_buffer *line, struct tc_text word, enum tc_quote how,
                   struct tc_error *error);

#endif
