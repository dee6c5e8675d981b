#include "cmd/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/manual.h"
#include "core/base/near.h"
#include "core/format/backend.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"

/* The highest level that any format has: zstd's. */
#define MOST_LEVEL 22

static bool takes_value(enum option_type type) {
    return type >= OPTION_TEXT && type != OPTION_LEVEL && type != OPTION_STRICT &&
           type != OPTION_HELP;
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
    *(double *)option->value = number;
    return true;
}

static bool set_choice(const struct option *option, const char *value, struct tc_error *error) {
    for (int i = 0; option->choices[i]; i++)
        if (strcmp(option->choices[i], value) == 0) {
            *(int *)option->value = i;
            return true;
        }
    return bad_value(option, value, error);
}

bool options_help_form(const char *value, int *form) {
    *form = !value                        ? HELP_TEXT
            : strcmp(value, "man") == 0   ? HELP_MAN
            : strcmp(value, "words") == 0 ? HELP_WORDS
                                          : HELP_NONE;
    return *form != HELP_NONE;
}

static bool set_level(const struct option *option, const char *value, struct tc_error *error) {
    int *level = option->value;
    if (!value) {
        *level = TC_COMPRESS_DEFAULT;
        return true;
    }
    char *end;
    long number = strtol(value, &end, 10);
    if (end == value || *end || number < 1 || number > 100)
        return bad_value(option, value, error);
    *level = (int)number;
    return true;
}

static bool set_dtype(const struct option *option, const char *value, struct tc_error *error) {
    enum tc_dtype dtype = tc_dtype_named(tc_text_of(value));
    *(enum tc_dtype *)option->value = dtype;
    if (dtype != TC_NONE)
        return true;
    tc_fail(error, TC_USAGE, "option-value", "--%s: no such dtype: %s", option->name, value);
    return tc_dtype_hint(tc_text_of(value), error, "tconv formats lists the dtypes");
}

static bool set_pair(const struct option *option, const char *value, struct tc_arena *arena,
                     struct tc_error *error) {
    const char *equals = strchr(value, '=');
    if (!equals || equals == value)
        return bad_value(option, value, error);
    if (!tc_utf8_valid(tc_text_of(value)))
        return tc_fail(error, TC_USAGE, "option-value", "--%s: not valid UTF-8", option->name);
    return tc_metadata_set(option->value, arena, (struct tc_text){value, (size_t)(equals - value)},
                           tc_text_of(equals + 1), error);
}

static bool set_value(const struct option *option, const char *value, struct arguments *arguments,
                      struct tc_error *error) {
    if (option->given)
        *option->given = true;
    if (arguments->given)
        arguments->given[arguments->given_count++] = (struct given){option, value};
    switch (option->type) {
    case OPTION_FLAG:
    case OPTION_CLEAR:
        if (value)
            return tc_fail(error, TC_USAGE, "option-value", "--%s takes no value", option->name);
        *(bool *)option->value = option->type == OPTION_FLAG;
        return true;
    case OPTION_TEXT:
        *(const char **)option->value = value;
        return true;
    case OPTION_SIZE:
        if (!options_size(value, option->value))
            return bad_value(option, value, error);
        return !option->call || option->call(option->value, value, error);
    case OPTION_REAL:
        return set_real(option, value, error);
    case OPTION_CHOICE:
        return set_choice(option, value, error);
    case OPTION_LEVEL:
        return set_level(option, value, error);
    case OPTION_STRICT:
        *(int *)option->value = value ? 2 : 1;
        return !value || strcmp(value, "all") == 0 || bad_value(option, value, error);
    case OPTION_PAIR:
        return set_pair(option, value, arguments->arena, error);
    case OPTION_CALL:
        return option->call(option->value, value, error);
    case OPTION_DTYPE:
        return set_dtype(option, value, error);
    case OPTION_HELP:
        return options_help_form(value, option->value) || bad_value(option, value, error);
    case OPTION_HEADING:
    case OPTION_END:
        break;
    }
    return tc_fail(error, TC_INTERNAL, "option", "an option without a type");
}

static const struct option *find_long(const struct option *options, const char *name,
                                      size_t length) {
    for (; options->type != OPTION_END; options++)
        if (options->name && options->type != OPTION_HEADING && strlen(options->name) == length &&
            memcmp(options->name, name, length) == 0)
            return options;
    return NULL;
}

static const struct option *find_letter(const struct option *options, char letter) {
    for (; options->type != OPTION_END; options++)
        if (options->letter == letter && options->type != OPTION_HEADING)
            return options;
    return NULL;
}

static bool unknown(const struct option *options, const char *argument, struct tc_error *error) {
    static const char otherwise[] = "--help lists the options; -- ends them";
    struct tc_near near;
    const char *name = argument + strspn(argument, "-");
    tc_fail(error, TC_USAGE, "unknown-option", "unknown option: %s", argument);
    tc_near_init(&near, (struct tc_text){name, strcspn(name, "=")});
    for (; options->type != OPTION_END; options++)
        if (options->name && options->type != OPTION_HEADING)
            tc_near_try(&near, tc_text_of(options->name));
    if (near.best.bytes)
        return tc_error_hint(error, "did you mean --%.*s? %s", (int)near.best.length,
                             near.best.bytes, otherwise);
    return tc_error_hint(error, otherwise);
}

/* "--compress 9": a number that could be a level and is no file is one. */
static bool is_level(const char *argument) {
    uint64_t number;
    return argument[0] && !argument[strspn(argument, "0123456789")] &&
           options_size(argument, &number) && number >= 1 && number <= MOST_LEVEL &&
           access(argument, F_OK) != 0;
}

/* One option at argv[*at]; moves *at over a value of its own. */
static bool parse_option(const struct option *options, int argc, char **argv, int *at,
                         struct arguments *arguments, struct tc_error *error) {
    const char *argument = argv[*at];
    const struct option *option;
    const char *value = NULL;
    if (argument[1] == '-') {
        const char *name = argument + 2;
        const char *equals = strchr(name, '=');
        option = find_long(options, name, equals ? (size_t)(equals - name) : strlen(name));
        value = equals ? equals + 1 : NULL;
    } else {
        option = find_letter(options, argument[1]);
        value = argument[2] ? argument + 2 : NULL;
        if (option && value && !takes_value(option->type))
            return unknown(options, argument, error);
    }
    if (!option)
        return unknown(options, argument, error);
    if (!value && option->type == OPTION_LEVEL && *at + 1 < argc && is_level(argv[*at + 1]))
        value = argv[++*at];
    if (!value && takes_value(option->type)) {
        if (*at + 1 >= argc) {
            tc_fail(error, TC_USAGE, "option-value", "%s needs a value", argument);
            return option->argument ? tc_error_hint(error, "it takes %s", option->argument) : false;
        }
        value = argv[++*at];
    }
    return set_value(option, value, arguments, error);
}

bool options_parse(const struct option *options, int argc, char **argv, struct arguments *arguments,
                   struct tc_error *error) {
    arguments->names = calloc((size_t)argc + 1, sizeof(char *));
    if (arguments->record)
        arguments->given = calloc((size_t)argc + 1, sizeof *arguments->given);
    if (!arguments->names || (arguments->record && !arguments->given))
        return tc_fail_memory(error);
    /* An error in what follows is told as JSON too, wherever --json stands. */
    const struct option *json = find_long(options, "json", 4);
    for (int at = 0; at < argc && json && strcmp(argv[at], "--") != 0; at++)
        if (strcmp(argv[at], "--json") == 0)
            *(bool *)json->value = true;
    bool open = true;
    for (int at = 0; at < argc; at++) {
        if (open && strcmp(argv[at], "--") == 0)
            open = false;
        else if (!open || argv[at][0] != '-' || argv[at][1] == '\0')
            arguments->names[arguments->count++] = argv[at];
        else if (!parse_option(options, argc, argv, &at, arguments, error))
            return false;
    }
    return true;
}

void arguments_release(struct arguments *arguments) {
    free(arguments->names);
    free(arguments->given);
    *arguments = (struct arguments){.arena = arguments->arena};
}

static void add_given(struct tc_buffer *json, const struct given *given) {
    struct tc_buffer text = {0};
    uint64_t size;
    tc_buffer_addf(&text, "--%s", given->option->name);
    if (given->value && given->option->type == OPTION_SIZE && options_size(given->value, &size))
        tc_buffer_addf(&text, "=%llu", (unsigned long long)size);
    else if (given->value)
        tc_buffer_addf(&text, "=%s", given->value);
    tc_buffer_add_string(json, json->length > 1 ? "," : "");
    if (text.bytes)
        tc_buffer_add_json(json, (struct tc_text){text.bytes, text.length}, TC_ESCAPE_DISPLAY);
    json->failed |= text.failed;
    tc_buffer_release(&text);
}

/* Whether a later option takes its place: the same one, or its opposite. */
static bool is_overruled(const struct arguments *arguments, size_t position) {
    const struct option *option = arguments->given[position].option;
    if (option->type == OPTION_PAIR || option->type == OPTION_CALL)
        return false;
    for (size_t i = position + 1; i < arguments->given_count; i++)
        if (arguments->given[i].option->value == option->value)
            return true;
    return false;
}

void options_print_given(struct tc_buffer *json, const struct option *options,
                         const struct arguments *arguments) {
    tc_buffer_add_string(json, "[");
    for (; options->type != OPTION_END; options++)
        for (size_t i = 0; i < arguments->given_count; i++)
            if (arguments->given[i].option == options && !options->aside &&
                !is_overruled(arguments, i))
                add_given(json, &arguments->given[i]);
    tc_buffer_add_string(json, "]");
}

static void print_option(const struct option *option) {
    char left[64];
    const char *equals = option->type == OPTION_LEVEL || option->type == OPTION_STRICT ? "" : " ";
    snprintf(left, sizeof left, "%s%c%s%s%s%s%s", option->letter ? "-" : "  ",
             option->letter ? option->letter : ' ',
             option->name ? (option->letter ? ", --" : " --") : "",
             option->name ? option->name : "", option->argument ? equals : "",
             option->argument ? option->argument : "", "");
    if (strlen(left) > 28)
        printf("  %s\n  %-28s %s\n", left, "", option->help);
    else
        printf("  %-28s %s\n", left, option->help);
}

static void print_text(const char *usage, const char *what, const struct option *options) {
    printf("Usage: %s\n%s\n", usage, what);
    for (; options->type != OPTION_END; options++) {
        if (options->type == OPTION_HEADING)
            printf("\n%s\n", options->help);
        else if (options->help)
            print_option(options);
    }
}

void options_print_help(const char *usage, const char *what, const struct option *options) {
    const struct option *help = find_long(options, "help", 4);
    int form = help && help->type == OPTION_HELP ? *(const int *)help->value : HELP_TEXT;
    if (form == HELP_MAN)
        manual_print(usage, what, options);
    else if (form == HELP_WORDS)
        manual_print_words(options);
    else
        print_text(usage, what, options);
}
