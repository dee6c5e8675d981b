/*
 * The fuzz target of the command line: the input's lines are the arguments of a command that has
 * all options which commands share, and one of every type. What a receipt would list of them is
 * JSON.
 */

#include <stdlib.h>
#include <string.h>

#include "cmd/choose.h"
#include "cmd/common.h"
#include "cmd/options.h"
#include "cmd/run_conversion.h"
#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/format/format_option.h"
#include "core/plan/dtype_policy.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"

#define MOST_ARGUMENTS 64

struct command {
    struct common common;
    struct run_conversion run;
    struct choose choose;
    struct tc_policy policy;
    struct tc_option_settings settings;
    struct tc_metadata metadata;
    struct tc_rows rows;
    uint64_t size;
    double real;
    int level;
    enum tc_dtype dtype;
    bool flag;
};

static void add_options(struct option_table *table, struct command *command) {
    const struct option rows[] = {
        DTYPE_RULE_OPTION("dtype", &command->policy, .argument = "[REGEX=]DTYPE", .help = "d"),
        METADATA_OPTION("metadata", &command->metadata, .argument = "KEY=VALUE", .help = "m"),
        ROWS_OPTION("rows", &command->rows, .argument = "A:B", .help = "r"),
        SELECT_OPTION("rename", &command->choose.select, tc_select_rename, .help = "n"),
        SIZE_OPTION("shard-size", &command->size, .argument = "SIZE", .help = "s"),
        REAL_OPTION("atol", &command->real, .argument = "X", .help = "a"),
        LEVEL_OPTION("compress", &command->level, .argument = "[=LEVEL]", .most = 9, .help = "c"),
        DTYPE_OPTION("as", &command->dtype, .argument = "DTYPE", .help = "t"),
        CLEAR_OPTION("no-checksum", &command->flag, .help = "k"),
    };
    options_add(table, "Own:", rows, OPTION_COUNT(rows));
    choose_add_options(table, &command->choose);
    run_conversion_add_options(table, &command->run, false);
    common_add_format_options(table, TC_FOR_WRITING, &command->settings);
    /* No process that fetches is started for what looks like an address. */
    table->local = true;
    common_add_options(table, &command->common);
}

/* A receipt's list of options must be JSON, whatever the user wrote. */
static void check_given(const struct option_table *table, const struct arguments *arguments) {
    struct tc_error error = {0};
    struct tc_buffer given = {0};
    struct tc_arena arena;
    struct tc_json json;
    struct tc_text whole;
    options_print_given(&given, table, arguments);
    tc_arena_init(&arena, 0);
    tc_json_init(&json, given.bytes, given.length, 0, &arena, &error);
    FUZZ_CHECK(tc_json_skip(&json, &whole) && tc_json_end(&json), "the list of options: %s",
               error.message);
    tc_arena_release(&arena);
    tc_buffer_release(&given);
}

/* Names of formats, from the first arguments that are no options. */
static void find_formats(const struct command *command, const struct arguments *arguments) {
    struct tc_error error = {0};
    if (command->common.from)
        fuzz_check_outcome(common_backend(command->common.from, NULL, &error) != NULL, &error);
    for (size_t i = 0; i < arguments->count && i < 4; i++) {
        struct tc_error unknown = {0};
        fuzz_check_outcome(common_target(NULL, arguments->names[i], &unknown) != NULL, &unknown);
    }
}

void fuzz_arguments(const unsigned char *bytes, size_t length) {
    struct command command = {.common = COMMON_DEFAULTS};
    struct option_table table;
    struct arguments arguments = {0};
    struct tc_error error = {0};
    char *argv[MOST_ARGUMENTS + 1] = {0};
    int argc = 0;
    char *text = strndup((const char *)bytes, length);
    FUZZ_CHECK(text, "no memory");
    for (char *at = text; *at && argc < MOST_ARGUMENTS;) {
        argv[argc++] = at;
        at += strcspn(at, "\n");
        if (*at)
            *at++ = '\0';
    }
    command.run.common = &command.common;
    tc_select_init(&command.choose.select);
    options_init(&table);
    add_options(&table, &command);
    bool ok = options_parse(&table, argc, argv, &arguments, &error);
    fuzz_check_outcome(ok, &error);
    FUZZ_CHECK(ok || error.class == TC_USAGE || error.class == TC_UNSAFE || error.class == TC_IO ||
                   error.class == TC_INVALID,
               "class %d for a command line", (int)error.class);
    if (ok) {
        check_given(&table, &arguments);
        find_formats(&command, &arguments);
    }
    arguments_release(&arguments);
    options_release(&table);
    tc_select_release(&command.choose.select);
    tc_policy_release(&command.policy);
    free(text);
}
