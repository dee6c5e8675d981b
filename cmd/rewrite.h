/* Files that are written anew in their own format, in their own place: by `append` and
 * `edit`. */
#ifndef TCONV_CMD_REWRITE_H
#define TCONV_CMD_REWRITE_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/plan/plan.h"

/* Whether a file, or all shards of an index, can be written again with all that it
 * holds. `instead` is the hint of how else to get what is wanted. */
bool rewrite_check(const struct tc_reader *file, const char *instead, struct tc_error *error);
/* The options by which it stays what it is: checksum, compression, a second file for
 * the data, and unless the user says otherwise its sidecar. */
void rewrite_keep(const struct tc_reader *file, bool keep_given, struct tc_plan_options *options);
/* The alignment by which its output shares blocks with it where they can be shared; 0 where they
 * can't be, or it is small. */
uint64_t rewrite_align(const struct tc_reader *file, const struct tc_plan_options *options);

#endif
