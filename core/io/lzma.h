/*
 * LZMA as zip archives have it (method 14), by liblzma: two bytes of version,
 * the length of the properties (5), the properties, then the raw stream, whose
 * length is known from outside and which may have an end marker. And files of
 * xz, LZMA or lzip: streams one after the other, each with a header of its own.
 */
#ifndef TCONV_CORE_IO_LZMA_H
#define TCONV_CORE_IO_LZMA_H

#include "core/base/error.h"
#include "core/io/decoder.h"
#include "core/io/input.h"

/* A decoder holds its dictionary in memory. No more is needed than the data
 * is long; beyond this size it is not supported: xz -9 has 64 MiB. */
#define TC_LZMA_MOST_DICTIONARY (UINT64_C(64) << 20)

/* `size` is how long the data is once it is unpacked. */
bool tc_lzma_init(struct tc_decoder *decoder, struct tc_input *input, uint64_t start, uint64_t end,
                  uint64_t size, struct tc_error *error);
/* Such files; their streams say themselves how long they are. */
bool tc_lzma_init_file(struct tc_decoder *decoder, struct tc_input *input, uint64_t start,
                       uint64_t end, struct tc_error *error);

#endif
