/*
 * LZMA as zip archives have it (method 14), by liblzma: two bytes of version,
 * the length of the properties (5), the properties, then the raw stream, whose
 * length is known from outside and which may have an end marker. And files of
 * xz, LZMA or lzip: streams one after the other, each with a header of its own.
 */
#ifndef TCONV_CORE_IO_LZMA_H
#define TCONV_CORE_IO_LZMA_H

#include "core/base/error.h"
#include "core/io/feed.h"
#include "core/io/input.h"

/* A decoder holds its dictionary in memory. No more is needed than the data
 * is long; beyond this size it is not supported: xz -9 has 64 MiB. */
#define TC_LZMA_MOST_DICTIONARY (UINT64_C(64) << 20)

struct tc_lzma_decoder {
    void *stream;
    struct tc_feed feed;
    bool ended;
};

/* `size` is how long the data is once it is unpacked. */
bool tc_lzma_decoder_init(struct tc_lzma_decoder *decoder, struct tc_input *input, uint64_t start,
                          uint64_t end, uint64_t size, struct tc_error *error);
/* Exactly `length` bytes; a stream that ends before is TC_INVALID. */
bool tc_lzma_decode(struct tc_lzma_decoder *decoder, void *buffer, size_t length,
                    struct tc_error *error);
/* Such files; their streams say themselves how long they are. */
bool tc_lzma_decoder_init_file(struct tc_lzma_decoder *decoder, struct tc_input *input,
                               uint64_t start, uint64_t end, struct tc_error *error);
/* As much as there is up to `length`: *got is less only at the stream's end. */
bool tc_lzma_decode_some(struct tc_lzma_decoder *decoder, void *buffer, size_t length, size_t *got,
                         struct tc_error *error);
/* Whether bytes of the range follow the stream; then the next one starts there. */
bool tc_lzma_follows(const struct tc_lzma_decoder *decoder);
bool tc_lzma_next(struct tc_lzma_decoder *decoder, struct tc_error *error);
/* The stream must end here, and the range with it. */
bool tc_lzma_decoder_end(struct tc_lzma_decoder *decoder, struct tc_error *error);
void tc_lzma_decoder_release(struct tc_lzma_decoder *decoder);

#endif
