/* bzip2 streams from a range of a file, by libbz2; one takes under 4 MiB. */
#ifndef TCONV_CORE_IO_BZIP2_H
#define TCONV_CORE_IO_BZIP2_H

#include "core/base/error.h"
#include "core/io/feed.h"
#include "core/io/input.h"

struct tc_bzip2_decoder {
    void *stream;
    struct tc_feed feed;
    bool ended;
};

bool tc_bzip2_decoder_init(struct tc_bzip2_decoder *decoder, struct tc_input *input, uint64_t start,
                           uint64_t end, struct tc_error *error);
/* Exactly `length` bytes; a stream that ends before is TC_INVALID. */
bool tc_bzip2_decode(struct tc_bzip2_decoder *decoder, void *buffer, size_t length,
                     struct tc_error *error);
/* As much as there is up to `length`: *got is less only at the stream's end. */
bool tc_bzip2_decode_some(struct tc_bzip2_decoder *decoder, void *buffer, size_t length,
                          size_t *got, struct tc_error *error);
/* Whether bytes of the range follow the stream; then the next one starts there. */
bool tc_bzip2_follows(const struct tc_bzip2_decoder *decoder);
bool tc_bzip2_next(struct tc_bzip2_decoder *decoder, struct tc_error *error);
/* The stream must end here, and the range with it. */
bool tc_bzip2_decoder_end(struct tc_bzip2_decoder *decoder, struct tc_error *error);
void tc_bzip2_decoder_release(struct tc_bzip2_decoder *decoder);

#endif
