/*
 * A dependency file: a rule for make that says which files were written and from
 * which others. Each of those also gets an empty rule, as with gcc -MP.
 */
#ifndef TCONV_CORE_CONVERT_DEPFILE_H
#define TCONV_CORE_CONVERT_DEPFILE_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/convert.h"

/* `also` has other files that the output depends on, such as a map of names. A name
 * that no makefile can hold is TC_UNSUPPORTED. */
bool tc_depfile_print(struct tc_buffer *text, const struct tc_conversion *conversion,
                      const char *const *also, size_t also_count, struct tc_error *error);
/* The path under which an input is listed: as it is, or as an absolute path where it
 * might be the name of a rule. From malloc; NULL with errno set on failure. */
char *tc_depfile_path(const char *path);
/* Adds a name, escaped for GNU make, as a target or a prerequisite of a rule. */
bool tc_depfile_add_name(struct tc_buffer *text, const char *name, bool is_target,
                         struct tc_error *error);

#endif
