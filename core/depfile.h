/* A rule for make: the files that were written, and those they were made of. */
#ifndef TCONV_CORE_DEPFILE_H
#define TCONV_CORE_DEPFILE_H

#include "core/convert.h"

/* `also`: other files that had a say. A name that no makefile can hold is
 * TC_UNSUPPORTED. */
bool tc_depfile_print(struct tc_buffer *text, const struct tc_conversion *conversion,
                      const char *const *also, size_t also_count, struct tc_error *error);
/* One name as GNU make takes it, in a rule's targets or its prerequisites. */
bool tc_depfile_add_name(struct tc_buffer *text, const char *name, bool is_target,
                         struct tc_error *error);

#endif
