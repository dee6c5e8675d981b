/* What the commands share: the options that all of them have, opening files, and
 * each command's entry point, which returns the exit code. */
#ifndef TCONV_CMD_COMMON_H
#define TCONV_CMD_COMMON_H

#include "cmd/options.h"
#include "cmd/sandbox.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/listing.h"
#include "core/tensor/table.h"
#include "formats/model_folder.h"

struct common {
    enum help_form help;
    bool json;
    bool quiet;
    bool verbose;
    enum sandbox_mode sandbox;
    const char *from;
    const char *variant; /* of a folder's model */
    uint64_t threads;    /* that work at once; 0: as many as there are cores */
    uint64_t requests;   /* requests at once, of files that are read by the network; 0: the usual */
    struct tc_format_options format;
};

#define COMMON_DEFAULTS ((struct common){.format = {.limits = TC_LIMITS_DEFAULT}})

/* Groups of options that several commands have, for their tables: how files are
 * read and what is printed; the latter alone, for a command that reads no file;
 * --help alone. */
void common_add_options(struct option_table *table, struct common *common);
void common_add_plain_options(struct option_table *table, struct common *common,
                              const char *json_help);
/* --no-verify: of commands that look at all data and keep nothing of it. */
void common_add_no_verify(struct option_table *table, struct common *common);
/* Adds that nothing was verified to a result, where it was not. */
void common_add_unverified(struct tc_json_writer *json, const struct common *common);
/* --sandbox: of every command that reads or writes a file. */
void common_add_sandbox(struct option_table *table, struct common *common);
void common_add_help(struct option_table *table, struct common *common);

/* Keeps a text for as long as the table lives. */
const char *common_keep_text(struct option_table *table, struct tc_buffer *text);
/* --compress, with what each format makes of its level. */
struct option common_compress_option(struct option_table *table, int *level);
/* Adds the options that formats declare for this use; their values go to
 * `settings`, which lives as long as the table. */
void common_add_format_options(struct option_table *table, enum tc_option_use use,
                               struct tc_option_settings *settings);

/* What to confine the command by, as the options say; to be filled and entered. */
struct sandbox common_sandbox(const struct common *common);
/* Enters it, for a command that only reads files. */
bool common_confine(const struct common *common, const char *const *inputs, size_t count,
                    struct tc_error *error);

/* Finds the models of a folder, and opens the first, as the options say; the choice is
 * told on standard error. What was found is to be released by the caller, also on
 * failure. */
bool common_find_model(const struct common *common, const char *path, struct tc_listing *listing,
                       struct model_folder *folder, struct tc_error *error);
struct tc_reader *common_open_model(const struct common *common, const char *path,
                                    const struct model_folder *folder, struct tc_error *error);
/* Opens a file, or a folder's model, as the options say; warnings go to standard error. */
struct tc_reader *common_open(const struct common *common, const char *path,
                              struct tc_error *error);
/* The same without the warnings, which stay in the reader's notes. */
struct tc_reader *common_open_silently(const struct common *common, const char *path,
                                       struct tc_error *error);
/* The format that the user names; where a name stands for several, the one that
 * the path's extension has (the path may be NULL). Fills the error where there is
 * none. */
const struct tc_backend *common_backend(const char *name, const char *path, struct tc_error *error);

/* The format to write: by name, or where that is NULL by the path's extension;
 * NULL with the error filled where there is none that can be written. */
const struct tc_backend *common_target(const char *name, const char *path, struct tc_error *error);

/* A tensor by its name; fills the error where there is none. */
const struct tc_tensor *common_find(const struct tc_reader *reader, const char *name,
                                    struct tc_error *error);

/* Refuses to print an array on a terminal. */
bool common_check_terminal(const char *output, struct tc_error *error);

/* Opens every file and runs the action on it; returns the highest exit code. */
typedef bool common_action(void *context, struct tc_reader *reader, const char *path,
                           struct tc_error *error);
int common_each_file(const struct common *common, const struct arguments *arguments,
                     common_action *action, void *context);

/* Whether this is the name of a command. */
bool is_command(const char *name);
/* After an error: the command whose name is nearest, if it may have been meant. */
bool hint_command(const char *name, struct tc_error *error, const char *otherwise);

int cmd_convert(int argc, char **argv);
int cmd_convert_implicit(int argc, char **argv);
int cmd_append(int argc, char **argv);
int cmd_edit(int argc, char **argv);
int cmd_batch(int argc, char **argv);
int cmd_index(int argc, char **argv);
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
int cmd_hub(int argc, char **argv);
/* Whether `tconv hub` has an action of this name. */
bool hub_is_action(const char *name);

/* Whether the files a receipt names are what it says, and it is signed with
 * the key of `public_key` (NULL: not asked). FILEs say where outputs are;
 * without any they lie beside the receipt. Returns the exit code. */
int cmd_verify_receipt(const struct common *common, const char *receipt, const char *public_key,
                       const char *const *files, size_t count);

/* The time that SOURCE_DATE_EPOCH gives, where it is set. */
bool common_source_date(bool *given, int64_t *seconds, struct tc_error *error);

#endif
