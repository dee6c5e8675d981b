/* tconv: converts tensors between file formats. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common.h"
#include "cmd/fork_server.h"
#include "cmd/help.h"
#include "cmd/manual.h"
#include "cmd/options.h"
#include "cmd/report.h"
#include "core/base/cpu.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/near.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/io/publish.h"

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
    const char *summary;
} commands[] = {
    {"convert", cmd_convert, "IN OUT", "convert; the word may be left out"},
    {"batch", cmd_batch, "SRC... DST -t FORMAT",
     "convert every model below SRC to its place below DST"},
    {"append", cmd_append, "FILE [IN...]", "add tensors or metadata to a file, in its own format"},
    {"edit", cmd_edit, "FILE [-o OUT]", "change metadata and names, and nothing else"},
    {"index", cmd_index, "FOLDER|INDEX...",
     "join shards that jobs have written, and write their index"},
    {"info", cmd_info, "FILE...", "format, size, metadata, table of tensors"},
    {"list", cmd_list, "FILE...", "names, one a line"},
    {"get", cmd_get, "FILE NAME [-o OUT]", "one tensor, as .npy on stdout by default"},
    {"hash", cmd_hash, "FILE...", "SHA-256 of every tensor; the same in every format"},
    {"diff", cmd_diff, "A B", "what differs, across formats; values bit by bit, or --atol, --rtol"},
    {"verify", cmd_verify, "FILE...", "structure, checksums, CRCs, index against shards"},
    {"check", cmd_check, "--schema S FILE...", "names, dtypes, shapes, metadata keys"},
    {"show", cmd_show, "FILE NAME...", "values, abbreviated as numpy prints them"},
    {"stats", cmd_stats, "FILE [NAME...]", "count, min, max, mean, stddev, zeros, NaN, Inf"},
    {"keygen", cmd_keygen, "NAME", "NAME.key to sign receipts, NAME.pub to verify them"},
    {"manifest", cmd_manifest, "FILE [OUT]", "deathtensors' JSON sidecar, of any format"},
    {"scan", cmd_scan, "FILE...", "what a pickle would import or call; nothing is run"},
    {"hub", cmd_hub, "ACTION REPO ...",
     "files of the Hugging Face Hub: list, info, pull, push, convert"},
    {"formats", cmd_formats, "", "what is read and written, dtype by dtype"},
    {"help", cmd_help, "[COMMAND]", "this list, or a command's options"},
    {"version", cmd_version, "", "which tconv this is"},
};
#define COMMANDS (sizeof commands / sizeof *commands)

bool is_command(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return true;
    return false;
}

bool hint_command(const char *name, struct tc_error *error, const char *otherwise) {
    struct tc_near near;
    tc_near_init(&near, tc_text_of(name));
    for (size_t i = 0; i < COMMANDS; i++)
        tc_near_try(&near, tc_text_of(commands[i].name));
    if (near.best.bytes)
        return tc_error_hint(error, "did you mean tconv %.*s?", (int)near.best.length,
                             near.best.bytes);
    return otherwise ? tc_error_hint(error, "%s", otherwise) : false;
}

static void print_help(void) {
    printf("tconv " TC_VERSION ": converts tensors between file formats\n\n"
           "Usage: tconv [options] IN OUT          formats from content and OUT's extension\n"
           "       tconv [options] IN IN... -o OUT merge\n"
           "       tconv COMMAND [options] ...\n\nCommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-8s %-20s %s\n", commands[i].name, commands[i].usage, commands[i].summary);
    printf("\ntconv help COMMAND, or tconv COMMAND --help, shows a command's options.\n\n"
           "Exit codes: 0 done, 1 a difference or failed check, 2 usage, 3 invalid input,\n"
           "4 unsupported, 5 refused as unsafe or over a limit, 6 I/O or memory, 70 internal\n");
}

static void print_help_in(enum help_form form) {
    struct manual_command list[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        list[i] = (struct manual_command){commands[i].name, commands[i].usage, commands[i].summary};
    if (form == HELP_MAN)
        manual_print_overview(list, COMMANDS);
    else if (form == HELP_WORDS)
        manual_print_all_words(list, COMMANDS);
    else
        print_help();
}

/* Parses the arguments of a command that reads no file, at most `most` of them, and
 * prints its help where that is asked for. */
static bool plain_arguments(int argc, char **argv, struct common *common,
                            struct arguments *arguments, size_t most, const char *usage,
                            const char *what, struct tc_error *error) {
    struct option_table table;
    options_init(&table);
    common_add_help(&table, common);
    bool ok = options_parse(&table, argc, argv, arguments, error);
    if (ok && common->help)
        help_print(common->help, usage, what, &table);
    else if (ok && arguments->count > most)
        ok = tc_fail(error, TC_USAGE, "usage", "too many arguments: %s", arguments->names[most]);
    options_release(&table);
    return ok;
}

static int cmd_help(int argc, char **argv) {
    struct common common = {0};
    struct arguments arguments = {0};
    struct tc_error error = {0};
    int code = 0;
    bool ok = plain_arguments(argc, argv, &common, &arguments, 1, "tconv help [COMMAND]",
                              "Lists the commands, or shows how one is called.", &error);
    if (ok && !common.help && arguments.count == 0)
        print_help();
    if (ok && !common.help && arguments.count) {
        const char *name = arguments.names[0];
        char help[] = "--help";
        ok = false;
        for (size_t i = 0; i < COMMANDS && !ok; i++) {
            ok = strcmp(commands[i].name, name) == 0;
            if (ok)
                code = commands[i].run(1, (char *[]){help, NULL});
        }
        if (!ok) {
            tc_fail(&error, TC_USAGE, "unknown-command", "no such command: %s", name);
            hint_command(name, &error, "tconv help lists them");
        }
    }
    arguments_release(&arguments);
    return ok ? code : report_error(&error, false);
}

static int cmd_version(int argc, char **argv) {
    struct common common = {0};
    struct arguments arguments = {0};
    struct tc_error error = {0};
    bool ok = plain_arguments(argc, argv, &common, &arguments, 0, "tconv version",
                              "Prints the program's name and version.", &error);
    if (ok && !common.help)
        printf("tconv " TC_VERSION "\n");
    arguments_release(&arguments);
    return ok ? 0 : report_error(&error, false);
}

/* Descriptors 0 to 2 must be taken, or an output file could become one of
 * them, and a message land in it. They are opened the wrong way round, so that
 * using one is still an error. */
static void fill_standard_descriptors(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0)
            return;
}

/* TCONV_CPU forces a set of instructions: for tests, and for users who suspect one. */
static bool choose_cpu(struct tc_error *error) {
    const char *cpu = getenv("TCONV_CPU");
    if (!cpu || !cpu[0] || tc_cpu_use(cpu))
        return true;
    tc_fail(error, TC_USAGE, "cpu", "TCONV_CPU: this machine has no such set: %s", cpu);
    return tc_error_hint(error, "plain works everywhere, avx2 on most x86-64");
}

static int run(int argc, char **argv, struct tc_error *error) {
    const char *first = argc > 1 ? argv[1] : NULL;
    if (!choose_cpu(error))
        return report_error(error, false);
    if (!first) {
        tc_fail(error, TC_USAGE, "usage", "no input given");
        tc_error_hint(error, "tconv --help shows how to call it");
        return report_error(error, false);
    }
    enum help_form form = HELP_NONE;
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        form = HELP_TEXT;
    if (form || (strncmp(first, "--help=", 7) == 0 && options_help_form(first + 7, &form))) {
        print_help_in(form);
        return 0;
    }
    if (strcmp(first, "--version") == 0) {
        printf("tconv " TC_VERSION "\n");
        return 0;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(first, commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    /* "hub-push" and its like, as users of deathtensors type them. */
    if (strncmp(first, "hub-", 4) == 0 && hub_is_action(first + 4)) {
        argv[1] = argv[1] + 4;
        return cmd_hub(argc - 1, argv + 1);
    }
    return cmd_convert_implicit(argc - 1, argv + 1);
}

#ifdef TCONV_TEST_HOOKS
/* In test builds TCONV_TEST_MEMORY=FILE writes the highest count of memory in use. The file is
 * opened before the sandbox closes. */
static FILE *open_memory(void) {
    const char *path = getenv("TCONV_TEST_MEMORY");
    return path ? fopen(path, "w") : NULL;
}

static void record_memory(FILE *file) {
    if (file) {
        fprintf(file, "%llu\n", (unsigned long long)tc_memory_peak());
        fclose(file);
    }
}
#else
static FILE *open_memory(void) {
    return NULL;
}

static void record_memory(FILE *file) {
    (void)file;
}
#endif

int main(int argc, char **argv) {
#ifdef TCONV_TEST_HOOKS
    fork_server(&argc, &argv);
#endif
    struct tc_error error = {0};
    fill_standard_descriptors();
    tc_signals_install();
    tc_memory_follow();
    FILE *memory = open_memory();
    int code = run(argc, argv, &error);
    record_memory(memory);
    /* Whatever was printed must have arrived, help too. */
    if (code == 0 && !report_flush(&error))
        return report_error(&error, false);
    /* What was found out with too little memory is no result. */
    if (code != TC_IO && tc_memory_lacked()) {
        tc_fail_memory(&error);
        return report_error(&error, false);
    }
    return code;
}
