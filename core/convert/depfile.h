/* A rule for make: the files that were written, and those they were made of,
 * each of which has an empty rule too (as gcc -MP writes them). */
#ifndef TCONV_CORE_CONVERT_DEPFILE_H
#define TCONV_CORE_CONVERT_DEPFILE_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/convert.h"

/* `also`: other files that had a say. A name that no makefile can hold is
 * TC_UNSUPPORTED. */
bool tc_depfile_print(struct tc_buffer *text, const struct tc_conversion *conversion,
                      const char *const *also, size_t also_count, struct tc_error *error);
/* The path under which a file that was read is listed: as it is, or from the
 * root on where it might be taken for the name of a rule; from malloc, NULL
 * with errno set. */
char *tc_depfile_path(const char *path);
/* One name as GNU make takes it, in a rule's targets or its prerequisites. */
bool tc_depfile_add_name(struct tc_buffer *text, const char *name, bool is_target,
                         struct tc_error *error);

#endif
