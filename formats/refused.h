/*
 * Members of a file that are no tensors tconv can hold: each is left out by name
 * and reason, and where nothing else is there the first reason is the file's.
 */
#ifndef TCONV_FORMATS_REFUSED_H
#define TCONV_FORMATS_REFUSED_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"

struct refused {
    struct tc_error *first; /* NULL: none so far */
};

/* Leaves out what is called `name`; `error` says why, and is then none. What the
 * user does not want is passed over without a word, whatever is wrong with it. An
 * error that is neither of a kind to leave out nor of what nobody wants stays. */
bool refused_add(struct refused *refused, struct tc_reader *reader, struct tc_text name,
                 struct tc_error *error);
/* Fails where the table is empty for what was left out. */
bool refused_finish(const struct refused *refused, const struct tc_reader *reader,
                    struct tc_error *error);
void refused_release(struct refused *refused);

#endif
