/* bzip2 streams from a range of a file, by libbz2; one takes under 4 MiB. */
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
