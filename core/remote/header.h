/* Lines of the header of a request: which of them somebody else may want sent along. */
#ifndef TCONV_CORE_REMOTE_HEADER_H
#define TCONV_CORE_REMOTE_HEADER_H

#include <stdbool.h>

#include "core/base/text.h"

/* Whether a line of this name says how a message goes over the wire, or to whom: such lines are
 * the fetcher's own to write. */
bool tc_header_is_of_the_wire(struct tc_text name);

#endif
