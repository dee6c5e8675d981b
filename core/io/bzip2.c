#include "core/io/bzip2.h"

#include <bzlib.h>
#include <stdlib.h>
#include <string.h>

/* libbz2 counts in 32 bits. */
#define MOST_STEP ((size_t)1 << 30)

static bool bad(const struct tc_bzip2_decoder *decoder, const char *code, const char *what,
                struct tc_error *error) {
    tc_fail(error, TC_INVALID, code, "the bzip2 data %s", what);
    return tc_error_at(error, tc_feed_place(&decoder->feed));
}

bool tc_bzip2_decoder_init(struct tc_bzip2_decoder *decoder, struct tc_input *input, uint64_t start,
                           uint64_t end, struct tc_error *error) {
    *decoder = (struct tc_bzip2_decoder){0};
    if (!tc_feed_init(&decoder->feed, input, start, end, error))
        return false;
    bz_stream *stream = calloc(1, sizeof *stream);
    if (!stream || BZ2_bzDecompressInit(stream, 0, 0) != BZ_OK) {
        free(stream);
        return tc_fail_memory(error);
    }
    decoder->stream = stream;
    return true;
}

/* Decodes until the output is full, or the stream or its range ends. */
static bool decode_some(struct tc_bzip2_decoder *decoder, struct tc_error *error) {
    bz_stream *stream = decoder->stream;
    struct tc_feed *feed = &decoder->feed;
    unsigned room = stream->avail_out;
    if (!tc_feed_fill(feed, error))
        return false;
    stream->next_in = (char *)(uintptr_t)feed->next; /* it only reads */
    stream->avail_in = (unsigned)feed->left;
    int result = BZ2_bzDecompress(stream);
    size_t taken = feed->left - stream->avail_in;
    tc_feed_take(feed, taken);
    decoder->ended = result == BZ_STREAM_END;
    if (result == BZ_MEM_ERROR)
        return tc_fail_memory(error);
    if (result != BZ_OK && result != BZ_STREAM_END)
        return bad(decoder, "bzip2", "is corrupt", error);
    bool stuck = taken == 0 && stream->avail_out == room && !decoder->ended;
    return stuck && tc_feed_is_empty(feed) ? bad(decoder, "truncated", "is cut short", error)
                                           : true;
}

bool tc_bzip2_decode(struct tc_bzip2_decoder *decoder, void *buffer, size_t length,
                     struct tc_error *error) {
    bz_stream *stream = decoder->stream;
    char *to = buffer;
    while (length) {
        size_t step = length < MOST_STEP ? length : MOST_STEP;
        stream->next_out = to;
        stream->avail_out = (unsigned)step;
        while (stream->avail_out) {
            if (decoder->ended)
                return bad(decoder, "size-mismatch", "holds less than it declares", error);
            if (!decode_some(decoder, error))
                return false;
        }
        to += step;
        length -= step;
    }
    return true;
}

bool tc_bzip2_decode_some(struct tc_bzip2_decoder *decoder, void *buffer, size_t length,
                          size_t *got, struct tc_error *error) {
    bz_stream *stream = decoder->stream;
    unsigned step = (unsigned)(length < MOST_STEP ? length : MOST_STEP);
    stream->next_out = buffer;
    stream->avail_out = step;
    bool ok = true;
    while (ok && stream->avail_out && !decoder->ended)
        ok = decode_some(decoder, error);
    *got = step - stream->avail_out;
    return ok;
}

bool tc_bzip2_follows(const struct tc_bzip2_decoder *decoder) {
    return decoder->ended && !tc_feed_is_empty(&decoder->feed);
}

bool tc_bzip2_next(struct tc_bzip2_decoder *decoder, struct tc_error *error) {
    BZ2_bzDecompressEnd(decoder->stream);
    memset(decoder->stream, 0, sizeof(bz_stream));
    decoder->ended = false;
    return BZ2_bzDecompressInit(decoder->stream, 0, 0) == BZ_OK || tc_fail_memory(error);
}

bool tc_bzip2_decoder_end(struct tc_bzip2_decoder *decoder, struct tc_error *error) {
    bz_stream *stream = decoder->stream;
    char extra;
    stream->next_out = &extra;
    stream->avail_out = 1;
    while (!decoder->ended) {
        if (!decode_some(decoder, error))
            return false;
        if (stream->avail_out == 0)
            return bad(decoder, "size-mismatch", "holds more than it declares", error);
    }
    return tc_feed_is_empty(&decoder->feed) ||
           bad(decoder, "trailing-data", "ends before its place does", error);
}

void tc_bzip2_decoder_release(struct tc_bzip2_decoder *decoder) {
    if (decoder->stream)
        BZ2_bzDecompressEnd(decoder->stream);
    free(decoder->stream);
    tc_feed_release(&decoder->feed);
    *decoder = (struct tc_bzip2_decoder){0};
}
