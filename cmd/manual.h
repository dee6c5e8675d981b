/*
 * Manual pages, and words that shells complete. Both are made from the same
 * tables as the help, so that they can't disagree.
 */
#ifndef TCONV_CMD_MANUAL_H
#define TCONV_CMD_MANUAL_H

#include "cmd/options.h"

/* The page of a command. Its name is the second word of the usage, its purpose
 * the description up to the first full stop: no file name may come before that. */
void manual_print(const char *usage, const char *what, const struct option_table *table);
/* A line an option: the option, its argument, its choices, what it does, with
 * tabs between. */
void manual_print_words(const struct option_table *table);

struct manual_command {
    const char *name;
    const char *usage;
    const char *summary;
};
/* tconv(1). */
void manual_print_overview(const struct manual_command *commands, size_t count);
/* A line for each command, format and dtype: its kind, its name and what it is,
 * with tabs between. */
void manual_print_all_words(const struct manual_command *commands, size_t count);

#endif
