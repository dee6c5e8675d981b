/* What the commands share: options every one has, and opening files. */
#ifndef TCONV_CMD_COMMON_H
#define TCONV_CMD_COMMON_H

#include "cmd/options.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

struct common {
    int help; /* enum help_form */
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
        {.name = "from",                                                                           \
         .letter = 'f',                                                                            \
         .type = OPTION_TEXT,                                                                      \
         .value = &(common)->from,                                                                 \
         .argument = "FORMAT",                                                                     \
         .help = "take the input for this format, whatever it looks like"},                        \
        {.name = "npy-void",                                                                       \
         .type = OPTION_DTYPE,                                                                     \
         .value = &(common)->format.npy_void,                                                      \
         .argument = "DTYPE",                                                                      \
         .help = "what an npy array of void type holds (BF16, F8_E4M3, …)"},                       \
        {.name = "max-header",                                                                     \
         .type = OPTION_SIZE,                                                                      \
         .value = &(common)->format.limits.header,                                                 \
         .argument = "SIZE",                                                                       \
         .help = "largest header to read (default: the format's own)",                             \
         .aside = true},                                                                           \
        {.name = "max-tensors",                                                                    \
         .type = OPTION_SIZE,                                                                      \
         .value = &(common)->format.limits.tensors,                                                \
         .argument = "N",                                                                          \
         .help = "most tensors in a file (default 4000000)",                                       \
         .aside = true},                                                                           \
        {.name = "max-memory",                                                                     \
         .type = OPTION_SIZE,                                                                      \
         .value = &(common)->format.limits.memory,                                                 \
         .argument = "SIZE",                                                                       \
         .help = "most memory for tables (default: 128M, or 64 times the header or pickle)",       \
         .call = common_max_memory,                                                                \
         .aside = true},                                                                           \
        {.name = "max-size",                                                                       \
         .type = OPTION_SIZE,                                                                      \
         .value = &(common)->format.limits.made,                                                   \
         .argument = "SIZE",                                                                       \
         .help = "most bytes made out of nothing (default: 256M and 100 times the file)",          \
         .aside = true},                                                                           \
        {.name = "max-pickle",                                                                     \
         .type = OPTION_SIZE,                                                                      \
         .value = &(common)->format.limits.pickle,                                                 \
         .argument = "SIZE",                                                                       \
         .help = "longest pickle to read, arrays in it not counted (default 256M)",                \
         .aside = true},                                                                           \
        {.name = "pickle",                                                                         \
         .type = OPTION_CHOICE,                                                                    \
         .value = &(common)->format.pickle_inert,                                                  \
         .argument = "strict|inert",                                                               \
         .choices = (const char *const[]){"strict", "inert", NULL},                                \
         .help = "pickles of unknown classes: refused (strict), or their tensors taken (inert)"},  \
        {.name = "strings",                                                                        \
         .type = OPTION_CHOICE,                                                                    \
         .value = &(common)->format.strings_bytes,                                                 \
         .argument = "skip|bytes",                                                                 \
         .choices = (const char *const[]){"skip", "bytes", NULL},                                  \
         .help = "text arrays of numpy: left out (skip), or kept as bytes (bytes)"},               \
        {.type = OPTION_HEADING, .help = "Output:"},                                               \
        {.name = "json",                                                                           \
         .type = OPTION_FLAG,                                                                      \
         .value = &(common)->json,                                                                 \
         .help = "one JSON object a file, on stdout",                                              \
         .aside = true},                                                                           \
        {.name = "quiet",                                                                          \
         .letter = 'q',                                                                            \
         .type = OPTION_FLAG,                                                                      \
         .value = &(common)->quiet,                                                                \
         .help = "no notes, no progress, no warnings but of what is skipped",                      \
         .aside = true},                                                                           \
        {.name = "verbose",                                                                        \
         .letter = 'v',                                                                            \
         .type = OPTION_FLAG,                                                                      \
         .value = &(common)->verbose,                                                              \
         .help = "say more",                                                                       \
         .aside = true},                                                                           \
    {                                                                                              \
        .name = "help", .letter = 'h', .type = OPTION_HELP, .value = &(common)->help,              \
        .help = "this text", .aside = true                                                         \
    }

/* Rows for a command that reads no file. */
#define COMMON_PLAIN_OPTIONS(common, json_help)                                                    \
    {.name = "json", .type = OPTION_FLAG, .value = &(common)->json, .help = (json_help)}, {        \
        .name = "help", .letter = 'h', .type = OPTION_HELP, .value = &(common)->help,              \
        .help = "this text"                                                                        \
    }

/* Opens as the options say; warnings go to standard error. */
struct tc_reader *common_open(const struct common *common, const char *path,
                              struct tc_error *error);
/* A format by the name the user gave, of several that a name stands for that of
 * the path's extension (which may be NULL); fills the error where there is none. */
const struct tc_backend *common_backend(const char *name, const char *path, struct tc_error *error);

/* The format to write: by name, or where that is NULL by the path's extension;
 * NULL with the error filled where there is none that can be written. */
const struct tc_backend *common_target(const char *name, const char *path, struct tc_error *error);

/* A tensor by its name; fills the error where there is none. */
const struct tc_tensor *common_find(const struct tc_reader *reader, const char *name,
                                    struct tc_error *error);

/* For option tables: the context is a struct tc_select, a size or a struct tc_rows. */
bool common_include(void *select, const char *value, struct tc_error *error);
bool common_exclude(void *select, const char *value, struct tc_error *error);
bool common_max_memory(void *size, const char *value, struct tc_error *error);
bool common_rows(void *rows, const char *value, struct tc_error *error);

/* Refuses to print an array on a terminal. */
bool common_check_terminal(const char *output, struct tc_error *error);

/* Runs `each` on every file; the exit code is the highest. */
typedef bool common_action(void *context, struct tc_reader *reader, const char *path,
                           struct tc_error *error);
int common_each_file(const struct common *common, const struct arguments *arguments,
                     common_action *action, void *context);

/* Whether it is the name of a command. */
bool is_command(const char *name);
/* After an error: the command whose name is nearest, if it may have been meant. */
bool hint_command(const char *name, struct tc_error *error, const char *otherwise);

int cmd_convert(int argc, char **argv);
int cmd_convert_implicit(int argc, char **argv);
int cmd_append(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_get(int argc, char **argv);
int cmd_hash(int argc, char **argv);
int cmd_formats(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_manifest(int argc, char **argv);
int cmd_keygen(int argc, char **argv);

/* Whether the files a receipt names are what it says, and it is signed with
 * the key of `public_key` (NULL: not asked). FILEs say where outputs are;
 * without any they lie beside the receipt. Returns the exit code. */
int cmd_verify_receipt(const struct common *common, const char *receipt, const char *public_key,
                       const char *const *files, size_t count);

/* The time that SOURCE_DATE_EPOCH gives, where it is set. */
bool common_source_date(bool *given, int64_t *seconds, struct tc_error *error);

#endif
