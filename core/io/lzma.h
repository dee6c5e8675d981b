/*
 * LZMA, by liblzma, as a struct tc_decoder (core/io/decoder.h), in two forms. In
 * zip archives (method 14): two bytes of version, the length of the properties
 * (5), the properties, then the raw stream, whose length the archive says and
 * which may have an end marker. In files of xz, LZMA or lzip: streams one after
 * the other, each with a header of its own.
 */
#ifndef TCONV_CORE_IO_LZMA_H
#define TCONV_CORE_IO_LZMA_H

#include "core/base/error.h"
#include "core/io/decoder.h"
#include "core/io/input.h"

/* A decoder holds its dictionary in memory, but never more than the data's size.
 * A larger dictionary than this, which is that of xz -9, is not supported. */
#define TC_LZMA_MOST_DICTIONARY (UINT64_C(64) << 20)

/* In a zip archive; `size` is that of the decompressed data. */
bool tc_lzma_init(struct tc_decoder *decoder, struct tc_input *input, uint64_t start, uint64_t end,
                  uint64_t size, struct tc_error *error);
/* In a file of xz, LZMA or lzip; the streams say how long they are. */
bool tc_lzma_init_file(struct tc_decoder *decoder, struct tc_input *input, uint64_t start,
                       uint64_t end, struct tc_error *error);

#endif
