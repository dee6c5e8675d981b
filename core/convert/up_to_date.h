/* Whether an output is what a conversion would write again, as its receipt shows. */
#ifndef TCONV_CORE_CONVERT_UP_TO_DATE_H
#define TCONV_CORE_CONVERT_UP_TO_DATE_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"

struct tc_up_to_date {
    const char *receipt; /* its path; a receipt that is not there or is none: not up to date */
    const char *output;  /* of the conversion; with a slash at its end a folder */
    const struct tc_backend *target;
    struct tc_text options; /* as the receipt would list them */
    struct tc_reader *const *readers;
    size_t count;
    const char *const *also; /* other files that the output depends on */
    size_t also_count;
};

/* Compares by content: the SHA-256 of all that was read and of all that was written,
 * the options, the format and the version of tconv. Times play no part. */
bool tc_up_to_date(const struct tc_up_to_date *asked, bool *yes, struct tc_error *error);

#endif
