/* What the commands share: options every one has, and opening files. */
#ifndef TCONV_CMD_COMMON_H
#define TCONV_CMD_COMMON_H

#include "cmd/options.h"
#include "cmd/report.h"
#include "formats/registry.h"

struct common {
    bool help;
    bool json;
    bool quiet;
    bool verbose;
    const char *from;
    struct tc_format_options format;
};

#define COMMON_DEFAULTS                                                                            \
    ((struct common){.format = {.limits = TC_LIMITS_DEFAULT, .npy_void = TC_NONE}})

/* Rows of an option table. */
#define COMMON_OPTIONS(common)                                                                     \
    {.type = OPTION_HEADING, .help = "Reading:"},                                                  \
        {"from", 'f', OPTION_TEXT, &(common)->from, "FORMAT",                                      \
         "take the input for this format, whatever it looks like", NULL, NULL},                    \
        {"npy-void", 0, OPTION_DTYPE, &(common)->format.npy_void, "DTYPE",                         \
         "what an npy array of void type holds (BF16, F8_E4M3, …)", NULL, NULL},                   \
        {"max-header", 0, OPTION_SIZE, &(common)->format.limits.header, "SIZE",                    \
         "largest header to read (default: the format's own)", NULL, NULL},                        \
        {"max-tensors", 0, OPTION_SIZE, &(common)->format.limits.tensors, "N",                     \
         "most tensors in a file (default 4000000)", NULL, NULL},                                  \
        {"max-memory", 0, OPTION_SIZE, &(common)->format.limits.memory, "SIZE",                    \
         "most memory for tables (default 2G)", NULL, NULL},                                       \
        {"max-size", 0, OPTION_SIZE, &(common)->format.limits.made, "SIZE",                        \
         "most bytes a file may make out of nothing (default 16G)", NULL, NULL},                   \
        {.type = OPTION_HEADING, .help = "Output:"},                                               \
        {"json", 0, OPTION_FLAG, &(common)->json, NULL, "one JSON object a file, on stdout",       \
         NULL, NULL},                                                                              \
        {"quiet", 'q', OPTION_FLAG, &(common)->quiet, NULL, "no notes, no warnings, no progress",  \
         NULL, NULL},                                                                              \
        {"verbose", 'v', OPTION_FLAG, &(common)->verbose, NULL, "say more", NULL, NULL}, {         \
        "help", 'h', OPTION_FLAG, &(common)->help, NULL, "this text", NULL, NULL                   \
    }

/* Opens as the options say; warnings go to standard error. */
struct tc_reader *common_open(const struct common *common, const char *path,
                              struct tc_error *error);
/* A format by the name the user gave; fills the error where there is none. */
const struct tc_backend *common_backend(const char *name, struct tc_error *error);

/* Refuses to print an array on a terminal. */
bool common_check_terminal(const char *output, struct tc_error *error);

/* Runs `each` on every file; the exit code is the highest. */
typedef bool common_action(void *context, struct tc_reader *reader, const char *path,
                           struct tc_error *error);
int common_each_file(const struct common *common, const struct arguments *arguments,
                     common_action *action, void *context);

/* Whether it is the name of a command. */
bool is_command(const char *name);

int cmd_convert(int argc, char **argv);
int cmd_convert_implicit(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_hash(int argc, char **argv);
int cmd_formats(int argc, char **argv);

#endif
