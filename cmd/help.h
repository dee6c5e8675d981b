/* A command's help, in the form that was asked for. */
#ifndef TCONV_CMD_HELP_H
#define TCONV_CMD_HELP_H

#include "cmd/options.h"

/* `usage` is the command line, `what` sentences that say what the command does;
 * the first of them is the purpose on the manual page. */
void help_print(enum help_form form, const char *usage, const char *what,
                const struct option_table *table);

#endif
