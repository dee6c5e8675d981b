/*
 * Typed option tables, which also print the help.
 */
#ifndef TCONV_CMD_OPTIONS_H
#define TCONV_CMD_OPTIONS_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"

enum option_type {
    OPTION_FLAG,    /* bool *: set true */
    OPTION_CLEAR,   /* bool *: set false */
    OPTION_TEXT,    /* const char ** */
    OPTION_SIZE,    /* uint64_t *: digits with K, M, G, T (binary) or KB, MB, … (decimal) */
    OPTION_REAL,    /* double *: finite, not negative */
    OPTION_CHOICE,  /* int *: an index into `choices` */
    OPTION_LEVEL,   /* int *: --name, --name=LEVEL, or --name LEVEL where no file is called that */
    OPTION_STRICT,  /* int *: --name is 1, --name=all is 2 */
    OPTION_PAIR,    /* struct tc_metadata *: KEY=VALUE, may be given again */
    OPTION_CALL,    /* `call`, with `value` as its context; may be given again */
    OPTION_DTYPE,   /* enum tc_dtype * */
    OPTION_HELP,    /* int *: enum help_form */
    OPTION_HEADING, /* a line of the help */
    OPTION_END,
};

/* --help, --help=man, --help=words: for people, as a manual page, for shells
 * that complete words. */
enum help_form { HELP_NONE, HELP_TEXT, HELP_MAN, HELP_WORDS };

struct option {
    const char *name; /* without dashes; NULL: only the letter */
    char letter;      /* 0: none */
    enum option_type type;
    void *value;
    const char *argument; /* as the help shows it */
    const char *help;
    const char *const *choices; /* NULL at the end */
    bool *given;                /* set when the option occurs; may be NULL */
    bool (*call)(void *context, const char *value, struct tc_error *error);
    bool aside; /* says nothing of what comes out: how to tell it, what to allow */
};

/* An option as it was given. */
struct given {
    const struct option *option;
    const char *value; /* NULL: none */
};

struct arguments {
    const char **names; /* positional ones, from malloc */
    size_t count;
    bool record;         /* wanted: the options too */
    struct given *given; /* then, from malloc, in their order */
    size_t given_count;
    struct tc_arena *arena; /* for OPTION_PAIR */
};

/* Takes options and positional arguments in any order; "--" ends options. */
bool options_parse(const struct option *options, int argc, char **argv, struct arguments *arguments,
                   struct tc_error *error);
void arguments_release(struct arguments *arguments);
/* The options that say what comes out, as a JSON array: long names, in the
 * table's order, of those that may be given once the last. */
void options_print_given(struct tc_buffer *json, const struct option *options,
                         const struct arguments *arguments);
/* In the form that the table's own --help was given in. */
void options_print_help(const char *usage, const char *what, const struct option *options);
/* "man", "words"; false for any other. */
bool options_help_form(const char *value, int *form);
bool options_size(const char *text, uint64_t *size);

#endif
