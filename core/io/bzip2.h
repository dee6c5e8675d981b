/* Reads bzip2 streams from a range of a file, by libbz2, as a struct tc_decoder
 * (core/io/decoder.h). A decoder takes less than 4 MiB of memory. */
#ifndef TCONV_CORE_IO_BZIP2_H
#define TCONV_CORE_IO_BZIP2_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/io/decoder.h"
#include "core/io/input.h"

bool tc_bzip2_init(struct tc_decoder *decoder, struct tc_input *input, uint64_t start, uint64_t end,
                   struct tc_error *error);

#endif
