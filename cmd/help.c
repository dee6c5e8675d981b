#include "cmd/help.h"

#include <stdio.h>
#include <string.h>

#include "cmd/manual.h"

static void print_option(const struct option *option) {
    char left[64];
    const char *between = option_is_attached(option) ? "" : " ";
    snprintf(left, sizeof left, "%s%c%s%s%s%s", option->letter ? "-" : "  ",
             option->letter ? option->letter : ' ',
             option->name ? (option->letter ? ", --" : " --") : "",
             option->name ? option->name : "", option->argument ? between : "",
             option->argument ? option->argument : "");
    if (strlen(left) > 28)
        printf("  %s\n  %-28s %s\n", left, "", option->help);
    else
        printf("  %-28s %s\n", left, option->help);
}

static void print_text(const char *usage, const char *what, const struct option_table *table) {
    printf("Usage: %s\n%s\n", usage, what);
    for (size_t i = 0; i < table->count; i++) {
        if (table->rows[i].type == OPTION_HEADING)
            printf("\n%s\n", table->rows[i].help);
        else
            print_option(&table->rows[i]);
    }
}

void help_print(enum help_form form, const char *usage, const char *what,
                const struct option_table *table) {
    switch (form) {
    case HELP_MAN:
        manual_print(usage, what, table);
        return;
    case HELP_WORDS:
        manual_print_words(table);
        return;
    case HELP_TEXT:
    case HELP_NONE:
        print_text(usage, what, table);
        return;
    }
}
