#include "cmd/options.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/json_writer.h"
#include "core/base/memory.h"
#include "core/base/near.h"
#include "core/format/backend.h"
#include "core/io/cores.h"
#include "core/remote/remote.h"

#define LEAST_ALIGNMENT 8u /* of --align */

void options_init(struct option_table *table) {
    *table = (struct option_table){0};
    tc_arena_init(&table->arena, 0);
}

void options_release(struct option_table *table) {
    free(table->rows);
    tc_arena_release(&table->arena);
    *table = (struct option_table){0};
}

void options_add(struct option_table *table, const char *heading, const struct option *rows,
                 size_t count) {
    size_t needed = table->count + count + 1;
    if (needed > table->capacity) {
        struct option *larger = reallocarray(table->rows, 2 * needed, sizeof *larger);
        if (!larger) {
            table->failed = true;
            return;
        }
        table->rows = larger;
        table->capacity = 2 * needed;
    }
    if (heading)
        table->rows[table->count++] = (struct option){.type = OPTION_HEADING, .help = heading};
    for (size_t i = 0; i < count; i++)
        table->rows[table->count++] = rows[i];
}

bool option_is_attached(const struct option *option) {
    return option->type == OPTION_LEVEL || option->type == OPTION_STRICT;
}

static bool takes_value(enum option_type type) {
    switch (type) {
    case OPTION_FLAG:
    case OPTION_CLEAR:
    case OPTION_LEVEL:
    case OPTION_STRICT:
    case OPTION_HELP:
    case OPTION_HEADING:
        return false;
    default:
        return true;
    }
}

bool options_size(const char *text, uint64_t *size) {
    static const char letters[] = "KMGT";
    char *end;
    errno = 0;
    if (text[0] < '0' || text[0] > '9')
        return false;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno)
        return false;
    uint64_t result = value;
    if (*end) {
        const char *letter = *end & 0x40 ? strchr(letters, *end & ~0x20) : NULL;
        bool decimal = strcmp(end + 1, "B") == 0;
        if (!letter || !(end[1] == '\0' || decimal || strcmp(end + 1, "iB") == 0))
            return false;
        for (const char *step = letters; step <= letter; step++)
            if (__builtin_mul_overflow(result, decimal ? UINT64_C(1000) : UINT64_C(1024), &result))
                return false;
    }
    *size = result;
    return true;
}

static bool bad_value(const struct option *option, const char *value, struct tc_error *error) {
    tc_fail(error, TC_USAGE, "option-value", "--%s: not a value it takes: %s", option->name, value);
    return option->argument ? tc_error_hint(error, "it takes %s", option->argument) : false;
}

static bool set_real(const struct option *option, const char *value, struct tc_error *error) {
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number) || number < 0)
        return bad_value(option, value, error);
    *option->to.real = number;
    return true;
}

static bool set_choice(const struct option *option, const char *value, struct tc_error *error) {
    for (unsigned i = 0; option->choices[i]; i++)
        if (strcmp(option->choices[i], value) == 0) {
            *option->to.choice = i;
            return true;
        }
    return bad_value(option, value, error);
}

bool options_help_form(const char *value, enum help_form *form) {
    *form = !value                        ? HELP_TEXT
            : strcmp(value, "man") == 0   ? HELP_MAN
            : strcmp(value, "words") == 0 ? HELP_WORDS
                                          : HELP_NONE;
    return *form != HELP_NONE;
}

static bool set_level(const struct option *option, const char *value, struct tc_error *error) {
    if (!value) {
        *option->to.level = TC_COMPRESS_DEFAULT;
        return true;
    }
    char *end;
    long number = strtol(value, &end, 10);
    if (end == value || *end || number < 1 || number > 100)
        return bad_value(option, value, error);
    *option->to.level = (int)number;
    return true;
}

static bool set_dtype(const struct option *option, const char *value, struct tc_error *error) {
    enum tc_dtype dtype = tc_dtype_named(tc_text_of(value));
    *option->to.dtype = dtype;
    if (dtype != TC_NONE)
        return true;
    tc_fail(error, TC_USAGE, "option-value", "--%s: no such dtype: %s", option->name, value);
    return tc_dtype_hint(tc_text_of(value), error, "tconv formats lists the dtypes");
}

static bool set_strict(const struct option *option, const char *value, struct tc_error *error) {
    *option->to.strict = value ? STRICT_ALL : STRICT_LOSS;
    return !value || strcmp(value, "all") == 0 || bad_value(option, value, error);
}

static bool set_size(const struct option *option, const char *value, struct tc_error *error) {
    if (!options_size(value, option->to.size))
        return bad_value(option, value, error);
    if (option->type == OPTION_MEMORY)
        tc_memory_limit(*option->to.size);
    return true;
}

static bool set_align(const struct option *option, const char *value, struct tc_error *error) {
    uint64_t size = TC_ALIGN_SHARE;
    bool shares = strcmp(value, "reflink") == 0;
    if (!shares && (!options_size(value, &size) || size < LEAST_ALIGNMENT ||
                    size > TC_MOST_ALIGNMENT || (size & (size - 1))))
        return bad_value(option, value, error);
    *option->to.size = size;
    return true;
}

static bool set_descriptor(const struct option *option, const char *value, struct tc_error *error) {
    char *end;
    errno = 0;
    long fd = strtol(value, &end, 10);
    int flags =
        errno || end == value || *end || fd < 1 || fd > INT32_MAX ? -1 : fcntl((int)fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return tc_fail(error, TC_USAGE, "option-value",
                       "--%s: not a descriptor open for writing: %s", option->name, value);
    *option->to.descriptor = (int)fd;
    return true;
}

static bool set_rows(const struct option *option, const char *value, struct tc_error *error) {
    if (tc_rows_parse(value, option->to.rows))
        return true;
    tc_fail(error, TC_USAGE, "option-value", "--%s: not a value it takes: %s", option->name, value);
    return tc_error_hint(error, "it takes A:B, for rows A to B-1; A: or :B; -N: for the last N");
}

static bool set_metadata(const struct option *option, const char *value, struct tc_arena *arena,
                         struct tc_error *error) {
    const char *equals = strchr(value, '=');
    if (!equals || equals == value)
        return bad_value(option, value, error);
    if (!tc_utf8_valid(tc_text_of(value)))
        return tc_fail(error, TC_USAGE, "option-value", "--%s: not valid UTF-8", option->name);
    return tc_metadata_set(option->to.metadata, arena,
                           (struct tc_text){value, (size_t)(equals - value)},
                           tc_text_of(equals + 1), error);
}

static bool set_flag(const struct option *option, const char *value, struct tc_error *error) {
    if (value)
        return tc_fail(error, TC_USAGE, "option-value", "--%s takes no value", option->name);
    *option->to.flag = option->type == OPTION_FLAG;
    return true;
}

static bool set_value(struct option_table *table, const struct option *option, const char *value,
                      struct tc_error *error) {
    switch (option->type) {
    case OPTION_FLAG:
    case OPTION_CLEAR:
        return set_flag(option, value, error);
    case OPTION_TEXT:
        *option->to.text = value;
        return true;
    case OPTION_SIZE:
    case OPTION_MEMORY:
        return set_size(option, value, error);
    case OPTION_ALIGN:
        return set_align(option, value, error);
    case OPTION_REAL:
        return set_real(option, value, error);
    case OPTION_CHOICE:
        return set_choice(option, value, error);
    case OPTION_LEVEL:
        return set_level(option, value, error);
    case OPTION_STRICT:
        return set_strict(option, value, error);
    case OPTION_DTYPE:
        return set_dtype(option, value, error);
    case OPTION_DESCRIPTOR:
        return set_descriptor(option, value, error);
    case OPTION_ROWS:
        return set_rows(option, value, error);
    case OPTION_METADATA:
        return set_metadata(option, value, &table->arena, error);
    case OPTION_SELECT:
        return option->rule(option->to.select, value, error);
    case OPTION_DTYPE_RULE:
        return tc_policy_add(option->to.policy, value, error);
    case OPTION_HELP:
        return options_help_form(value, option->to.help) || bad_value(option, value, error);
    case OPTION_HEADING:
        break;
    }
    return tc_fail(error, TC_INTERNAL, "option", "an option without a type");
}

/* Which row has this name, or this letter; NULL: none. */
static const struct option *find_long(const struct option_table *table, const char *name,
                                      size_t length) {
    for (size_t i = 0; i < table->count; i++) {
        const struct option *option = &table->rows[i];
        if (option->name && strlen(option->name) == length &&
            memcmp(option->name, name, length) == 0)
            return option;
    }
    return NULL;
}

static const struct option *find_letter(const struct option_table *table, char letter) {
    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].letter && table->rows[i].letter == letter)
            return &table->rows[i];
    return NULL;
}

static bool unknown(const struct option_table *table, const char *argument,
                    struct tc_error *error) {
    static const char otherwise[] = "--help lists the options; -- ends them";
    struct tc_near near;
    const char *name = argument + strspn(argument, "-");
    /* Its value may be an address with a secret. */
    tc_fail(error, TC_USAGE, "unknown-option", "unknown option: %.*s", (int)strcspn(argument, "="),
            argument);
    tc_near_init(&near, (struct tc_text){name, strcspn(name, "=")});
    for (size_t i = 0; i < table->count; i++)
        if (table->rows[i].name)
            tc_near_try(&near, tc_text_of(table->rows[i].name));
    if (near.best.bytes)
        return tc_error_hint(error, "did you mean --%.*s? %s", (int)near.best.length,
                             near.best.bytes, otherwise);
    return tc_error_hint(error, otherwise);
}

/* "--compress 9": a number that could be a level and is no file is one. */
static bool is_level(const struct option *option, const char *argument) {
    uint64_t number;
    return argument[0] && !argument[strspn(argument, "0123456789")] &&
           options_size(argument, &number) && number >= 1 && number <= (uint64_t)option->most &&
           access(argument, F_OK) != 0;
}

/* One option at argv[*at]; moves *at over a value of its own. */
static bool parse_option(struct option_table *table, int argc, char **argv, int *at,
                         struct arguments *arguments, struct tc_error *error) {
    const char *argument = argv[*at];
    const struct option *option;
    const char *value = NULL;
    if (argument[1] == '-') {
        const char *name = argument + 2;
        const char *equals = strchr(name, '=');
        option = find_long(table, name, equals ? (size_t)(equals - name) : strlen(name));
        value = equals ? equals + 1 : NULL;
    } else {
        option = find_letter(table, argument[1]);
        value = argument[2] ? argument + 2 : NULL;
        if (option && value && !takes_value(option->type))
            return unknown(table, argument, error);
    }
    if (!option)
        return unknown(table, argument, error);
    if (!value && option->type == OPTION_LEVEL && *at + 1 < argc && is_level(option, argv[*at + 1]))
        value = argv[++*at];
    if (!value && takes_value(option->type)) {
        if (*at + 1 >= argc) {
            tc_fail(error, TC_USAGE, "option-value", "%s needs a value", argument);
            return option->argument ? tc_error_hint(error, "it takes %s", option->argument) : false;
        }
        value = argv[++*at];
    }
    if (option->given)
        *option->given = true;
    arguments->given[arguments->given_count++] = (struct given){option, value};
    return set_value(table, option, value, error);
}

/* An error in any argument is printed as JSON too where --json stands behind it. */
static void look_for_json(struct option_table *table, int argc, char **argv, int at) {
    const struct option *json = find_long(table, "json", 4);
    for (; at < argc && json && strcmp(argv[at], "--") != 0; at++)
        if (strcmp(argv[at], "--json") == 0)
            *json->to.flag = true;
}

bool options_parse(struct option_table *table, int argc, char **argv, struct arguments *arguments,
                   struct tc_error *error) {
    arguments->names = calloc((size_t)argc + 1, sizeof(char *));
    arguments->given = calloc((size_t)argc + 1, sizeof *arguments->given);
    if (!arguments->names || !arguments->given || table->failed)
        return tc_fail_memory(error);
    if (!addresses_hide(&arguments->addresses, argc, argv, error))
        return false;
    bool open = true;
    for (int at = 0; at < argc; at++) {
        if (open && strcmp(argv[at], "--") == 0)
            open = false;
        else if (!open || argv[at][0] != '-' || argv[at][1] == '\0')
            arguments->names[arguments->count++] = argv[at];
        else if (!parse_option(table, argc, argv, &at, arguments, error)) {
            look_for_json(table, argc, argv, at + 1);
            return false;
        }
    }
    if (table->threads) {
        tc_cores_set(*table->threads);
        tc_cores_obey(getenv("MAKEFLAGS"));
    }
    if (table->requests && !*table->requests && table->threads)
        *table->requests =
            *table->threads < TC_REMOTE_MOST_JOBS ? *table->threads : TC_REMOTE_MOST_JOBS;
    if (!table->remote || !table->requests)
        return true;
    bool ok = addresses_connect(&arguments->addresses, arguments->names, arguments->count,
                                *table->requests, error);
    *table->remote = arguments->addresses.remote;
    return ok;
}

void arguments_release(struct arguments *arguments) {
    free(arguments->names);
    free(arguments->given);
    addresses_release(&arguments->addresses);
    *arguments = (struct arguments){0};
}

static bool is_size(const struct option *option) {
    return option->type == OPTION_SIZE || option->type == OPTION_ALIGN;
}

static void add_given(struct tc_json_writer *json, const struct given *given) {
    struct tc_buffer text = {0};
    uint64_t size;
    tc_buffer_addf(&text, "--%s", given->option->name);
    if (given->value && is_size(given->option) && options_size(given->value, &size))
        tc_buffer_addf(&text, "=%llu", (unsigned long long)size);
    else if (given->value)
        tc_buffer_addf(&text, "=%s", given->value);
    tc_json_add_text(json, NULL, (struct tc_text){text.bytes, text.length});
    json->out->failed |= text.failed;
    tc_buffer_release(&text);
}

static bool may_be_given_again(const struct option *option) {
    return option->type == OPTION_METADATA || option->type == OPTION_SELECT ||
           option->type == OPTION_DTYPE_RULE;
}

static bool sets_flag(const struct option *option) {
    return option->type == OPTION_FLAG || option->type == OPTION_CLEAR;
}

/* Whether a later option takes its place: the same one, or its opposite. */
static bool is_overruled(const struct arguments *arguments, size_t position) {
    const struct option *option = arguments->given[position].option;
    for (size_t i = position + 1; i < arguments->given_count; i++) {
        const struct option *later = arguments->given[i].option;
        if (later == option
                ? !may_be_given_again(option)
                : sets_flag(option) && sets_flag(later) && later->to.flag == option->to.flag)
            return true;
    }
    return false;
}

void options_print_given(struct tc_buffer *out, const struct option_table *table,
                         const struct arguments *arguments) {
    struct tc_json_writer json = {.out = out, .escape = TC_ESCAPE_DISPLAY};
    tc_json_open_array(&json, NULL);
    for (size_t row = 0; row < table->count; row++)
        for (size_t i = 0; i < arguments->given_count; i++) {
            const struct option *option = arguments->given[i].option;
            if (option == &table->rows[row] && !option->not_in_receipt &&
                !is_overruled(arguments, i))
                add_given(&json, &arguments->given[i]);
        }
    tc_json_close(&json);
}
