/*
 * Values in a file that tconv can't hold as tensors. Each is left out, and the
 * user is told its name and the reason. Where a file has nothing else, opening it
 * fails with the gravest of these reasons.
 */
#ifndef TCONV_FORMATS_REFUSED_H
#define TCONV_FORMATS_REFUSED_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"

struct refused {
    /* The first reason of the highest class, from malloc; NULL: nothing was left
     * out so far. */
    struct tc_error *worst;
};

/* Tries to leave out the value called `name`, for the reason in `error`, which is
 * cleared. A value that the user did not select is left out in silence, whatever
 * is wrong with it. False, with the error kept, where the value is selected and
 * the error is not one (TC_UNSUPPORTED, for instance) that concerns it alone. */
bool refused_add(struct refused *refused, struct tc_reader *reader, struct tc_text name,
                 struct tc_error *error);
/* Fails with that reason where values were left out and the table is empty. */
bool refused_finish(const struct refused *refused, const struct tc_reader *reader,
                    struct tc_error *error);
void refused_release(struct refused *refused);

#endif
