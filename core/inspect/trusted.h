/*
 * What a program that loads a file trusts without looking: that the indices of
 * sparse tensors lie within them, that parameters of quantisation fit what they
 * scale, that an alias is one of a tensor that is there.
 */
#ifndef TCONV_CORE_INSPECT_TRUSTED_H
#define TCONV_CORE_INSPECT_TRUSTED_H

#include "core/base/error.h"
#include "core/format/reader.h"

/* What is wrong goes to reader->options->findings; false only where the work
 * could not be done. */
bool tc_trusted_check(struct tc_reader *reader, struct tc_error *error);

#endif
