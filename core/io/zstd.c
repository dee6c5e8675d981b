#include "core/io/zstd.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "core/io/cores.h"

#define MAX_WORKERS 4
#define INPUT_STEP ((size_t)1 << 18)
/* 128 MiB, the default limit of zstd's own tool. */
#define MAX_WINDOW_LOG 27

bool tc_zstd_encoder_init(struct tc_zstd_encoder *encoder, int level, tc_zstd_sink *sink,
                          void *context, struct tc_error *error) {
    *encoder = (struct tc_zstd_encoder){.sink = sink, .context = context};
    encoder->stream = ZSTD_createCCtx();
    encoder->capacity = ZSTD_CStreamOutSize() * 2;
    encoder->output = malloc(encoder->capacity);
    if (!encoder->stream || !encoder->output)
        return tc_fail_memory(error);
    encoder->granted = tc_cores_begin(MAX_WORKERS);
    int workers = (int)encoder->granted;
    size_t set = ZSTD_CCtx_setParameter(encoder->stream, ZSTD_c_compressionLevel, level);
    if (!ZSTD_isError(set))
        set = ZSTD_CCtx_setParameter(encoder->stream, ZSTD_c_nbWorkers, workers);
    if (ZSTD_getErrorCode(set) == ZSTD_error_memory_allocation)
        return tc_fail_memory(error);
    if (ZSTD_isError(set))
        return tc_fail(error, TC_INTERNAL, "zstd", "zstd: %s", ZSTD_getErrorName(set));
    return true;
}

/* Compresses bytes and passes the result to the sink; *left is what the encoder
 * still holds. */
static bool encode_step(struct tc_zstd_encoder *encoder, ZSTD_inBuffer *in, ZSTD_EndDirective mode,
                        size_t *left, struct tc_error *error) {
    ZSTD_outBuffer out = {encoder->output, encoder->capacity, 0};
    /* zstd starts its workers in here, which must not handle signals either. */
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    *left = ZSTD_compressStream2(encoder->stream, &out, in, mode);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (ZSTD_getErrorCode(*left) == ZSTD_error_memory_allocation)
        return tc_fail_memory(error);
    if (ZSTD_isError(*left))
        return tc_fail(error, TC_INTERNAL, "zstd", "zstd: %s", ZSTD_getErrorName(*left));
    return out.pos == 0 || encoder->sink(encoder->context, encoder->output, out.pos, error);
}

bool tc_zstd_encode(struct tc_zstd_encoder *encoder, const void *bytes, size_t length,
                    struct tc_error *error) {
    ZSTD_inBuffer in = {bytes, length, 0};
    while (in.pos < in.size) {
        size_t left;
        if (!encode_step(encoder, &in, ZSTD_e_continue, &left, error))
            return false;
    }
    return true;
}

bool tc_zstd_encoder_finish(struct tc_zstd_encoder *encoder, struct tc_error *error) {
    ZSTD_inBuffer in = {NULL, 0, 0};
    size_t left;
    do {
        if (!encode_step(encoder, &in, ZSTD_e_end, &left, error))
            return false;
    } while (left);
    return true;
}

void tc_zstd_encoder_release(struct tc_zstd_encoder *encoder) {
    ZSTD_freeCCtx(encoder->stream);
    tc_cores_end(encoder->granted);
    free(encoder->output);
    *encoder = (struct tc_zstd_encoder){0};
}

bool tc_zstd_decoder_init(struct tc_zstd_decoder *decoder, struct tc_input *input, uint64_t start,
                          uint64_t end, struct tc_error *error) {
    *decoder =
        (struct tc_zstd_decoder){.input = input, .at = start < end ? start : end, .end = end};
    decoder->stream = ZSTD_createDCtx();
    decoder->buffer = malloc(INPUT_STEP);
    if (!decoder->stream || !decoder->buffer)
        return tc_fail_memory(error);
    ZSTD_DCtx_setParameter(decoder->stream, ZSTD_d_windowLogMax, MAX_WINDOW_LOG);
    return true;
}

static bool refill(struct tc_zstd_decoder *decoder, struct tc_error *error) {
    uint64_t left = decoder->end - decoder->at;
    size_t step = left < INPUT_STEP ? left : INPUT_STEP;
    if (!tc_input_read(decoder->input, decoder->at, decoder->buffer, step, error))
        return false;
    decoder->at += step;
    decoder->filled = step;
    decoder->used = 0;
    /* Only a frame of the present format, not a legacy or skippable one. */
    static const unsigned char magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
    if (!decoder->started && step >= sizeof magic &&
        memcmp(decoder->buffer, magic, sizeof magic) != 0) {
        tc_fail(error, TC_INVALID, "zstd", "the compressed data is no zstd frame");
        return tc_error_at(error, decoder->at - step);
    }
    if (!decoder->started && step && ZSTD_getDictID_fromFrame(decoder->buffer, step) != 0)
        return tc_fail(error, TC_UNSUPPORTED, "zstd-dictionary",
                       "the compressed data needs a zstd dictionary");
    decoder->started = true;
    return true;
}

static bool decode_failed(struct tc_zstd_decoder *decoder, size_t code, struct tc_error *error) {
    switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_memory_allocation:
        return tc_fail_memory(error);
    case ZSTD_error_frameParameter_windowTooLarge:
        tc_fail(error, TC_UNSAFE, "zstd-window",
                "the compressed data needs a window over the limit of %d MiB",
                1 << (MAX_WINDOW_LOG - 20));
        return tc_error_hint(error, "this limit is fixed: compress it again without --long");
    default:
        tc_fail(error, TC_INVALID, "zstd", "the compressed data is corrupt (%s)",
                ZSTD_getErrorName(code));
        return tc_error_at(error, decoder->at - (decoder->filled - decoder->used));
    }
}

/* Decodes into *out until it is full or the frame or the input ends. */
static bool decode_some(struct tc_zstd_decoder *decoder, ZSTD_outBuffer *out,
                        struct tc_error *error) {
    if (decoder->used == decoder->filled && decoder->at < decoder->end && !refill(decoder, error))
        return false;
    ZSTD_inBuffer in = {decoder->buffer, decoder->filled, decoder->used};
    size_t before = out->pos;
    size_t left = ZSTD_decompressStream(decoder->stream, out, &in);
    bool stuck = in.pos == decoder->used && out->pos == before;
    decoder->used = in.pos;
    if (ZSTD_isError(left))
        return decode_failed(decoder, left, error);
    decoder->ended = left == 0;
    /* zstd does not report a truncated frame as an error: it asks for more. */
    if (stuck && !decoder->ended && decoder->at == decoder->end && decoder->used == decoder->filled)
        return tc_fail(error, TC_INVALID, "truncated", "the compressed data is cut short");
    return true;
}

bool tc_zstd_decode(struct tc_zstd_decoder *decoder, void *buffer, size_t length,
                    struct tc_error *error) {
    ZSTD_outBuffer out = {buffer, length, 0};
    while (out.pos < length) {
        if (decoder->ended)
            return tc_fail(error, TC_INVALID, "size-mismatch",
                           "the compressed data holds less than the header says");
        if (!decode_some(decoder, &out, error))
            return false;
    }
    return true;
}

bool tc_zstd_decode_some(struct tc_zstd_decoder *decoder, void *buffer, size_t length, size_t *got,
                         struct tc_error *error) {
    ZSTD_outBuffer out = {buffer, length, 0};
    bool ok = true;
    while (ok && out.pos < length && !decoder->ended)
        ok = decode_some(decoder, &out, error);
    *got = out.pos;
    return ok;
}

bool tc_zstd_decoder_end(struct tc_zstd_decoder *decoder, struct tc_error *error) {
    while (!decoder->ended) {
        char extra;
        ZSTD_outBuffer out = {&extra, 1, 0};
        if (!decode_some(decoder, &out, error))
            return false;
        if (out.pos)
            return tc_fail(error, TC_INVALID, "size-mismatch",
                           "the compressed data holds more than the header says");
    }
    if (decoder->used < decoder->filled || decoder->at < decoder->end) {
        tc_fail(error, TC_INVALID, "trailing-data", "something follows the compressed data");
        return tc_error_at(error, decoder->at - (decoder->filled - decoder->used));
    }
    return true;
}

void tc_zstd_decoder_release(struct tc_zstd_decoder *decoder) {
    ZSTD_freeDCtx(decoder->stream);
    free(decoder->buffer);
    *decoder = (struct tc_zstd_decoder){0};
}
