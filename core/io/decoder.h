/*
 * A stream of compressed bytes in a range of a file, decoded by a library:
 *
 *     tc_bzip2_init, tc_lzma_init … → tc_decoder_read … → tc_decoder_end → tc_decoder_release
 *
 * The loops are here; each library has a step of its own (bzip2.c, lzma.c).
 * tc_decoder_release runs also where the init failed.
 */
#ifndef TCONV_CORE_IO_DECODER_H
#define TCONV_CORE_IO_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/io/feed.h"
#include "core/io/input.h"

/* What a step has to work on; it moves on both. */
struct tc_decoder_step {
    const unsigned char *from;
    size_t left;
    unsigned char *to;
    size_t room;
};

enum tc_decoder_state {
    TC_DECODER_GOES_ON,
    TC_DECODER_ENDED,   /* the stream has */
    TC_DECODER_CORRUPT, /* it is no such stream */
    TC_DECODER_FAILED,  /* otherwise: the error is filled */
};

struct tc_decoder_library {
    const char *name; /* for messages, "bzip2" */
    const char *code; /* of the error that the stream is corrupt */
    enum tc_decoder_state (*step)(void *stream, struct tc_decoder_step *step,
                                  struct tc_error *error);
    /* Makes the library's state ready for another stream. */
    bool (*restart)(void *stream, struct tc_error *error);
    void (*end)(void *stream);
};

struct tc_decoder {
    const struct tc_decoder_library *library;
    void *stream; /* the library's state, from malloc */
    struct tc_feed feed;
    bool ended;
};

/* For a library's own init, which then makes the state. */
bool tc_decoder_init(struct tc_decoder *decoder, const struct tc_decoder_library *library,
                     struct tc_input *input, uint64_t start, uint64_t end, struct tc_error *error);
/* TC_INVALID, "the bzip2 data is cut short", with the place. */
bool tc_decoder_bad(const struct tc_decoder *decoder, const char *code, const char *what,
                    struct tc_error *error);
void tc_decoder_release(struct tc_decoder *decoder);

/* Exactly `length` bytes; a stream that ends before is TC_INVALID. */
bool tc_decoder_read(struct tc_decoder *decoder, void *buffer, size_t length,
                     struct tc_error *error);
/* As much as there is up to `length`: *got is less only at the stream's end. */
bool tc_decoder_read_some(struct tc_decoder *decoder, void *buffer, size_t length, size_t *got,
                          struct tc_error *error);
/* Whether bytes of the range follow the stream; then the next one starts there. */
bool tc_decoder_follows(const struct tc_decoder *decoder);
bool tc_decoder_next(struct tc_decoder *decoder, struct tc_error *error);
/* The stream must end here, and the range with it. */
bool tc_decoder_end(struct tc_decoder *decoder, struct tc_error *error);

#endif
