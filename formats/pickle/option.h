/* The option of every format that reads pickles: what becomes of unknown classes. */
#ifndef TCONV_FORMATS_PICKLE_OPTION_H
#define TCONV_FORMATS_PICKLE_OPTION_H

#include <stdbool.h>

#include "core/format/backend.h"
#include "core/format/format_option.h"

enum pickle_option_choice { PICKLE_OPTION_STRICT, PICKLE_OPTION_INERT };
extern const struct tc_format_option pickle_mode_option;

/* Whether unknown classes are passed over, and not refused. */
bool pickle_is_inert(const struct tc_format_options *options);

#endif
