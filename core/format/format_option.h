/*
 * Options that belong to a format. A format declares each next to its descriptor
 * and lists it in tc_backend.options; one that several formats have is declared
 * once, and each of them lists it. Help, manual pages, completions, parsing,
 * receipts and `tconv formats` follow from the declaration.
 *
 * The command collects what the user said in a list of settings. A format asks
 * that list for the value of its option, and gets the default where the user
 * said nothing.
 */
#ifndef TCONV_CORE_FORMAT_FORMAT_OPTION_H
#define TCONV_CORE_FORMAT_FORMAT_OPTION_H

#include <stdbool.h>
#include <stddef.h>

#include "core/tensor/dtype.h"

enum tc_option_use { TC_FOR_READING, TC_FOR_WRITING };

/* Which member of the value below an option has. */
enum tc_option_type { TC_OPTION_FLAG, TC_OPTION_CHOICE, TC_OPTION_DTYPE };

union tc_option_value {
    bool flag;
    unsigned choice; /* a position in the option's choices: the format's own enum */
    enum tc_dtype dtype;
};

struct tc_format_option {
    const char *name; /* without the dashes */
    enum tc_option_use use;
    enum tc_option_type type;
    union tc_option_value initial; /* the value where the user gives none */
    const char *const *choices;    /* of a choice, NULL at the end */
    const char *argument;          /* as the help shows it; NULL: a flag has none */
    const char *help;
    /* For writing: what the output would have to be, for the warning that the
     * option has no effect ("the output is no ONNX model"). */
    const char *target;
};

struct tc_option_setting {
    const struct tc_format_option *option;
    union tc_option_value value;
};

struct tc_option_settings {
    const struct tc_option_setting *list;
    size_t count;
};

/* The value of an option of that type. */
bool tc_option_flag(const struct tc_option_settings *settings,
                    const struct tc_format_option *option);
unsigned tc_option_choice(const struct tc_option_settings *settings,
                          const struct tc_format_option *option);
enum tc_dtype tc_option_dtype(const struct tc_option_settings *settings,
                              const struct tc_format_option *option);

/* Whether the value differs from the default. */
bool tc_option_is_changed(const struct tc_option_setting *setting);

#endif
