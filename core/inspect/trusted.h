/*
 * Checks what programs that load a file trust without checking: that the indices of
 * sparse tensors lie within their shape, that quantisation parameters fit the tensor
 * that they scale, and that an alias refers to a tensor that exists.
 */
#ifndef TCONV_CORE_INSPECT_TRUSTED_H
#define TCONV_CORE_INSPECT_TRUSTED_H

#include "core/base/error.h"
#include "core/format/reader.h"

/* Adds what is wrong to reader->options->findings, which must be there; false only
 * where the checks could not be done. */
bool tc_trusted_check(struct tc_reader *reader, struct tc_error *error);

#endif
