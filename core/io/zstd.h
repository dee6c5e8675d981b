/*
 * One zstd frame, compressed or decompressed as a stream. One thread at a time may
 * use an encoder or decoder; release it also where its init failed.
 */
#ifndef TCONV_CORE_IO_ZSTD_H
#define TCONV_CORE_IO_ZSTD_H

#include "core/base/error.h"
#include "core/io/input.h"

#define TC_ZSTD_DEFAULT_LEVEL 3
#define TC_ZSTD_MAX_LEVEL 22

/* Called with compressed bytes as they come. */
typedef bool tc_zstd_sink(void *context, const void *bytes, size_t length, struct tc_error *error);

struct tc_zstd_encoder {
    void *stream;
    char *output;
    size_t capacity;
    size_t granted; /* by tc_cores_begin */
    tc_zstd_sink *sink;
    void *context;
};

/* Uses one to four worker threads: any number of workers gives the same bytes, but
 * compressing without a worker would give others. */
bool tc_zstd_encoder_init(struct tc_zstd_encoder *encoder, int level, tc_zstd_sink *sink,
                          void *context, struct tc_error *error);
bool tc_zstd_encode(struct tc_zstd_encoder *encoder, const void *bytes, size_t length,
                    struct tc_error *error);
bool tc_zstd_encoder_finish(struct tc_zstd_encoder *encoder, struct tc_error *error);
void tc_zstd_encoder_release(struct tc_zstd_encoder *encoder);

/* Reads one frame from a range of a file. */
struct tc_zstd_decoder {
    void *stream;
    struct tc_input *input;
    uint64_t at; /* next compressed byte to read */
    uint64_t end;
    char *buffer;
    size_t filled;
    size_t used;
    bool started;
    bool ended; /* the frame is complete */
};

/* The range must hold exactly one frame. */
bool tc_zstd_decoder_init(struct tc_zstd_decoder *decoder, struct tc_input *input, uint64_t start,
                          uint64_t end, struct tc_error *error);
/* Exactly `length` bytes; a frame that ends before is TC_INVALID. */
bool tc_zstd_decode(struct tc_zstd_decoder *decoder, void *buffer, size_t length,
                    struct tc_error *error);
/* Up to `length` bytes: *got is less only at the frame's end. */
bool tc_zstd_decode_some(struct tc_zstd_decoder *decoder, void *buffer, size_t length, size_t *got,
                         struct tc_error *error);
/* Fails unless the frame ends here, and the range with it. */
bool tc_zstd_decoder_end(struct tc_zstd_decoder *decoder, struct tc_error *error);
void tc_zstd_decoder_release(struct tc_zstd_decoder *decoder);

#endif
