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
/* The file's name without its folder and its last extension: what a tensor is called that has no
 * name in the file. "stdin" for "-". */
struct tc_text tc_path_stem(const char *path);
/* What stands before it, "." or "/"; from malloc, NULL without memory. */
char *tc_path_folder(const char *path);
/* A copy without slashes at its end; from malloc, NULL without memory. */
char *tc_path_trim(const char *path);
/* Whether this errno says that there is no such file, or none that this user can see, rather than
 * that the system failed to look. */
bool tc_path_missing(int errnum);

#endif
