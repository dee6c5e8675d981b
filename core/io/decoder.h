/*
 * A stream of compressed bytes in a range of a file, decoded by a library:
 *
 *     tc_bzip2_init, tc_lzma_init … → tc_decoder_read … → tc_decoder_end → tc_decoder_release
 *
 * The loops are here; each library has a step function (bzip2.c, lzma.c). Call
 * tc_decoder_release also where the init failed. One thread at a time may use a
 * decoder.
 */
#ifndef TCONV_CORE_IO_DECODER_H
#define TCONV_CORE_IO_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/io/feed.h"
#include "core/io/input.h"

/* The input and output of one step, which lowers `left` by what it took and
 * `room` by what it gave. */
struct tc_decoder_step {
    const unsigned char *from;
    size_t left;
    unsigned char *to;
    size_t room;
};

enum tc_decoder_state {
    TC_DECODER_GOES_ON,
    TC_DECODER_ENDED,   /* the stream is complete */
    TC_DECODER_CORRUPT, /* the bytes are not such a stream */
    TC_DECODER_FAILED,  /* for another reason, which is in the error */
};

struct tc_decoder_library {
    const char *name; /* for messages, "bzip2" */
    const char *code; /* of the error where the stream is corrupt */
    enum tc_decoder_state (*step)(void *stream, struct tc_decoder_step *step,
                                  struct tc_error *error);
    /* Prepares the library's state for another stream. */
    bool (*restart)(void *stream, struct tc_error *error);
    void (*end)(void *stream);
};

struct tc_decoder {
    const struct tc_decoder_library *library;
    void *stream; /* the library's state, from malloc */
    struct tc_feed feed;
    bool ended;
};

/* For a library's own init, which then sets `stream`. */
bool tc_decoder_init(struct tc_decoder *decoder, const struct tc_decoder_library *library,
                     struct tc_input *input, uint64_t start, uint64_t end, struct tc_error *error);
/* Fails with TC_INVALID, the message "the bzip2 data WHAT" and the offset. */
bool tc_decoder_bad(const struct tc_decoder *decoder, const char *code, const char *what,
                    struct tc_error *error);
void tc_decoder_release(struct tc_decoder *decoder);

/* Exactly `length` bytes; a stream that ends before is TC_INVALID. */
bool tc_decoder_read(struct tc_decoder *decoder, void *buffer, size_t length,
                     struct tc_error *error);
/* Up to `length` bytes: *got is less only at the stream's end. */
bool tc_decoder_read_some(struct tc_decoder *decoder, void *buffer, size_t length, size_t *got,
                          struct tc_error *error);
/* Whether the stream has ended and bytes of the range follow it; tc_decoder_next
 * then decodes another stream from there. */
bool tc_decoder_follows(const struct tc_decoder *decoder);
bool tc_decoder_next(struct tc_decoder *decoder, struct tc_error *error);
/* Fails unless the stream ends here, and the range with it. */
bool tc_decoder_end(struct tc_decoder *decoder, struct tc_error *error);

#endif
