/* The option --pickle of every format that reads pickles: whether unknown classes
 * are refused. */
#ifndef TCONV_FORMATS_PICKLE_OPTION_H
#define TCONV_FORMATS_PICKLE_OPTION_H

#include <stdbool.h>

#include "core/format/backend.h"
#include "core/format/format_option.h"

enum pickle_option_choice { PICKLE_OPTION_STRICT, PICKLE_OPTION_INERT };
extern const struct tc_format_option pickle_mode_option;

/* Whether objects of unknown classes are kept as data instead of refused. */
bool pickle_is_inert(const struct tc_format_options *options);

#endif
