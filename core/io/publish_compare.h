/* Whether an output that is about to be published differs from what is there. */
#ifndef TCONV_CORE_IO_PUBLISH_COMPARE_H
#define TCONV_CORE_IO_PUBLISH_COMPARE_H

#include "core/base/error.h"
#include "core/io/publish.h"

/* Whether every file of the output, sealed by now, exists already with the same bytes,
 * and nothing is to be removed: publishing it would change nothing but times. */
bool tc_publish_is_same(const struct tc_publish *publish, bool *same, struct tc_error *error);

#endif
