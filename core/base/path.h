/* Paths as text: the parts of one, and what may be the name of a file in a folder. */
#ifndef TCONV_CORE_BASE_PATH_H
#define TCONV_CORE_BASE_PATH_H

#include "core/base/text.h"

/* Whether it names a file of a folder, and nothing else: no slash, no NUL, neither
 * "." nor "..", not too long. */
bool tc_path_is_plain(struct tc_text name);
/* Whether it names a file of a folder or of one below: plain names with single slashes
 * between them. */
bool tc_path_is_inside(struct tc_text path);
/* What stands behind the last slash. */
const char *tc_path_name(const char *path);
/* What stands before it, "." or "/"; from malloc, NULL without memory. */
char *tc_path_folder(const char *path);
/* A copy without slashes at its end; from malloc, NULL without memory. */
char *tc_path_trim(const char *path);

#endif
