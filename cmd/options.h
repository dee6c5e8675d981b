/*
 * Option tables: what a command takes, and where each value goes. One table
 * serves parsing, the help, the manual page, completions and receipts.
 *
 * A command makes an empty table, adds groups of rows to it (its own, and those
 * that commands share), parses, and releases the table at its end. Rows are
 * written with the macros below; each takes a pointer of the type that its
 * option sets, so that the compiler rejects any other.
 */
#ifndef TCONV_CMD_OPTIONS_H
#define TCONV_CMD_OPTIONS_H

#include "cmd/addresses.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plan/dtype_policy.h"
#include "core/remote/client.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"

/* --help, --help=man, --help=words: for people, as a manual page, for shells
 * that complete words. */
enum help_form { HELP_NONE, HELP_TEXT, HELP_MAN, HELP_WORDS };

/* --strict, --strict=all: no loss is allowed; no change either. */
enum strictness { STRICT_NOT, STRICT_LOSS, STRICT_ALL };

enum option_type {
    OPTION_FLAG,
    OPTION_CLEAR,
    OPTION_TEXT,
    OPTION_SIZE,
    OPTION_MEMORY,
    OPTION_REAL,
    OPTION_CHOICE,
    OPTION_ALIGN,
    OPTION_LEVEL,
    OPTION_STRICT,
    OPTION_DTYPE,
    OPTION_DESCRIPTOR,
    OPTION_ROWS,
    OPTION_METADATA,
    OPTION_SELECT,
    OPTION_DTYPE_RULE,
    OPTION_HELP,
    OPTION_HEADING, /* no option: a line of the help above those that follow */
};

/* Adds what the user wrote to a selection: tc_select_include and its like. */
typedef bool option_select_rule(struct tc_select *select, const char *value,
                                struct tc_error *error);

struct option {
    const char *name; /* without the dashes; NULL: the option has only a letter */
    char letter;      /* 0: none */
    enum option_type type;
    union { /* where the value goes; the macros set the member that belongs to the type */
        bool *flag;
        const char **text;
        uint64_t *size;
        double *real;
        unsigned *choice;
        int *level;
        enum strictness *strict;
        enum tc_dtype *dtype;
        int *descriptor;
        struct tc_rows *rows;
        struct tc_metadata *metadata;
        struct tc_select *select;
        struct tc_policy *policy;
        enum help_form *help;
    } to;
    const char *argument; /* as the help shows it */
    const char *help;
    const char *const *choices; /* of a choice, NULL at the end */
    option_select_rule *rule;   /* of a selection */
    int most;                   /* of a level: the highest that any format has */
    bool *given;                /* set where the option occurs; may be NULL */
    bool not_in_receipt;        /* has no influence on what is in the output */
};

/* Rows: the name, where the value goes, then fields of struct option. */

/* Sets a bool; CLEAR_OPTION sets it to false. */
#define FLAG_OPTION(name_, flag_, ...)                                                             \
    { .name = (name_), .type = OPTION_FLAG, .to.flag = (flag_), __VA_ARGS__ }
#define CLEAR_OPTION(name_, flag_, ...)                                                            \
    { .name = (name_), .type = OPTION_CLEAR, .to.flag = (flag_), __VA_ARGS__ }
#define TEXT_OPTION(name_, text_, ...)                                                             \
    { .name = (name_), .type = OPTION_TEXT, .to.text = (text_), __VA_ARGS__ }
/* Digits with K, M, G, T (binary) or KB, MB, … (decimal). MEMORY_OPTION also
 * bounds the memory of the command. */
#define SIZE_OPTION(name_, size_, ...)                                                             \
    { .name = (name_), .type = OPTION_SIZE, .to.size = (size_), __VA_ARGS__ }
#define MEMORY_OPTION(name_, size_, ...)                                                           \
    { .name = (name_), .type = OPTION_MEMORY, .to.size = (size_), __VA_ARGS__ }
/* A power of two that data can be aligned to, or "reflink": TC_ALIGN_SHARE. */
#define ALIGN_OPTION(name_, size_, ...)                                                            \
    { .name = (name_), .type = OPTION_ALIGN, .to.size = (size_), __VA_ARGS__ }
/* A number that is finite and not negative. */
#define REAL_OPTION(name_, real_, ...)                                                             \
    { .name = (name_), .type = OPTION_REAL, .to.real = (real_), __VA_ARGS__ }
/* One of the words in `choices_`. It goes to an enum whose constants are their
 * positions: gcc and clang store an enum without negative constants as an
 * unsigned int, and reject the row where they do not. */
#define CHOICE_OPTION(name_, choice_, choices_, ...)                                               \
    {                                                                                              \
        .name = (name_), .type = OPTION_CHOICE, .to.choice = (choice_), .choices = (choices_),     \
        __VA_ARGS__                                                                                \
    }
/* --name, --name=LEVEL, or --name LEVEL where no file is called that. */
#define LEVEL_OPTION(name_, level_, ...)                                                           \
    { .name = (name_), .type = OPTION_LEVEL, .to.level = (level_), __VA_ARGS__ }
#define STRICT_OPTION(name_, strict_, ...)                                                         \
    { .name = (name_), .type = OPTION_STRICT, .to.strict = (strict_), __VA_ARGS__ }
#define DTYPE_OPTION(name_, dtype_, ...)                                                           \
    { .name = (name_), .type = OPTION_DTYPE, .to.dtype = (dtype_), __VA_ARGS__ }
/* The number of a descriptor that is open for writing. */
#define DESCRIPTOR_OPTION(name_, descriptor_, ...)                                                 \
    { .name = (name_), .type = OPTION_DESCRIPTOR, .to.descriptor = (descriptor_), __VA_ARGS__ }
#define ROWS_OPTION(name_, rows_, ...)                                                             \
    { .name = (name_), .type = OPTION_ROWS, .to.rows = (rows_), __VA_ARGS__ }
/* The next three may be given again: KEY=VALUE, a rule for which tensors are
 * taken under which names, and a rule for dtypes. */
#define METADATA_OPTION(name_, metadata_, ...)                                                     \
    { .name = (name_), .type = OPTION_METADATA, .to.metadata = (metadata_), __VA_ARGS__ }
#define SELECT_OPTION(name_, select_, rule_, ...)                                                  \
    { .name = (name_), .type = OPTION_SELECT, .to.select = (select_), .rule = (rule_), __VA_ARGS__ }
#define DTYPE_RULE_OPTION(name_, policy_, ...)                                                     \
    { .name = (name_), .type = OPTION_DTYPE_RULE, .to.policy = (policy_), __VA_ARGS__ }
#define HELP_OPTION(name_, help_, ...)                                                             \
    { .name = (name_), .type = OPTION_HELP, .to.help = (help_), __VA_ARGS__ }

struct option_table {
    struct option *rows; /* from malloc */
    size_t count;
    size_t capacity;
    /* What lives as long as the table: texts of rows that are made while the
     * program runs, settings, metadata that the user gives. */
    struct tc_arena arena;
    bool failed; /* memory ran out while it was made; parsing then says so */
    bool local;  /* its files are of this machine: said before the common options are added */
    /* Of a command that reads files: where the way to those goes that are named by an
     * address, and how many requests are made at once. NULL: it takes no addresses. */
    struct tc_remote **remote;
    uint64_t *requests;
    /* How many threads work at once; NULL: one. A command of several processes has no such option:
     * its -j is their number. */
    const uint64_t *threads;
    bool several_processes;
};

void options_init(struct option_table *table);
void options_release(struct option_table *table);
/* Adds copies of rows below a heading; NULL: below the one before. */
void options_add(struct option_table *table, const char *heading, const struct option *rows,
                 size_t count);
#define OPTION_COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* An option as it was given. */
struct given {
    const struct option *option;
    const char *value; /* NULL: none */
};

struct arguments {
    const char **names; /* positional ones, from malloc */
    size_t count;
    struct given *given; /* options in their order, from malloc */
    size_t given_count;
    struct addresses addresses;
};

/* Takes options and positional arguments in any order; "--" ends options. No
 * row may be added to the table from then on. Where a command that takes addresses
 * got one, its fetcher runs from then on, until arguments_release. */
bool options_parse(struct option_table *table, int argc, char **argv, struct arguments *arguments,
                   struct tc_error *error);
void arguments_release(struct arguments *arguments);

/* The options that influence the output, as a JSON array for a receipt: long
 * names, in the table's order, of those that may be given once the last. */
void options_print_given(struct tc_buffer *out, const struct option_table *table,
                         const struct arguments *arguments);
/* The form for --help=VALUE, or --help where the value is NULL; false where there is
 * no such form. */
bool options_help_form(const char *value, enum help_form *form);
bool options_size(const char *text, uint64_t *size);
/* Whether the help shows the argument directly behind the name: --name[=LEVEL]. */
bool option_is_attached(const struct option *option);

#endif
