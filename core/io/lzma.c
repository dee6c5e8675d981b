#include "core/io/lzma.h"

#include <lzma.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/little_endian.h"

#define PROPERTIES_BYTES 5u
#define HEAD_BYTES (4u + PROPERTIES_BYTES)
/* What a decoder of a file may take: its dictionary and its own tables. */
#define MOST_MEMORY (TC_LZMA_MOST_DICTIONARY + (UINT64_C(16) << 20))

static lzma_stream *new_stream(struct tc_error *error) {
    lzma_stream *stream = calloc(1, sizeof *stream);
    if (stream)
        *stream = (lzma_stream)LZMA_STREAM_INIT;
    else
        tc_fail_memory(error);
    return stream;
}

static bool bad(const struct tc_lzma_decoder *decoder, const char *code, const char *what,
                struct tc_error *error) {
    tc_fail(error, TC_INVALID, code, "the LZMA data %s", what);
    return tc_error_at(error, tc_feed_place(&decoder->feed));
}

/* The first property byte is (pb * 5 + lp) * 9 + lc; four of the dictionary's
 * size follow. */
static bool read_properties(struct tc_lzma_decoder *decoder, uint64_t size,
                            lzma_options_lzma *options, struct tc_error *error) {
    unsigned char head[HEAD_BYTES];
    struct tc_feed *feed = &decoder->feed;
    if (feed->end - feed->at < HEAD_BYTES)
        return bad(decoder, "truncated", "is cut short", error);
    if (!tc_input_read(feed->input, feed->at, head, HEAD_BYTES, error))
        return false;
    uint64_t dictionary = tc_load(head + 5, 4);
    if (tc_load(head + 2, 2) != PROPERTIES_BYTES || head[4] >= 9 * 5 * 5)
        return bad(decoder, "lzma", "has bad properties", error);
    if (dictionary > size)
        dictionary = size;
    if (dictionary > TC_LZMA_MOST_DICTIONARY)
        return tc_fail(error, TC_UNSUPPORTED, "lzma-dictionary",
                       "LZMA with a dictionary of %llu bytes (at most %llu are supported)",
                       (unsigned long long)dictionary, (unsigned long long)TC_LZMA_MOST_DICTIONARY);
    *options = (lzma_options_lzma){
        .dict_size = dictionary < LZMA_DICT_SIZE_MIN ? LZMA_DICT_SIZE_MIN : (uint32_t)dictionary,
        .lc = head[4] % 9u,
        .lp = head[4] / 9u % 5u,
        .pb = head[4] / 45u,
        .ext_flags = LZMA_LZMA1EXT_ALLOW_EOPM,
    };
    lzma_set_ext_size(*options, size);
    feed->at += HEAD_BYTES;
    return options->lc + options->lp <= LZMA_LCLP_MAX ||
           tc_fail(error, TC_UNSUPPORTED, "lzma", "LZMA with lc + lp beyond 4");
}

bool tc_lzma_decoder_init(struct tc_lzma_decoder *decoder, struct tc_input *input, uint64_t start,
                          uint64_t end, uint64_t size, struct tc_error *error) {
    lzma_options_lzma options;
    *decoder = (struct tc_lzma_decoder){0};
    if (!tc_feed_init(&decoder->feed, input, start, end, error) ||
        !read_properties(decoder, size, &options, error))
        return false;
    lzma_stream *stream = new_stream(error);
    if (!stream)
        return false;
    decoder->stream = stream;
    const lzma_filter filters[] = {{.id = LZMA_FILTER_LZMA1EXT, .options = &options},
                                   {.id = LZMA_VLI_UNKNOWN}};
    lzma_ret result = lzma_raw_decoder(stream, filters);
    if (result == LZMA_OK)
        return true;
    return result == LZMA_MEM_ERROR ? tc_fail_memory(error)
                                    : bad(decoder, "lzma", "has bad properties", error);
}

bool tc_lzma_next(struct tc_lzma_decoder *decoder, struct tc_error *error) {
    decoder->ended = false;
    return lzma_auto_decoder(decoder->stream, MOST_MEMORY, 0) == LZMA_OK || tc_fail_memory(error);
}

bool tc_lzma_decoder_init_file(struct tc_lzma_decoder *decoder, struct tc_input *input,
                               uint64_t start, uint64_t end, struct tc_error *error) {
    *decoder = (struct tc_lzma_decoder){0};
    if (!tc_feed_init(&decoder->feed, input, start, end, error))
        return false;
    decoder->stream = new_stream(error);
    return decoder->stream && tc_lzma_next(decoder, error);
}

/* Decodes until the output is full, or the stream or its range ends. */
static bool decode_some(struct tc_lzma_decoder *decoder, struct tc_error *error) {
    lzma_stream *stream = decoder->stream;
    struct tc_feed *feed = &decoder->feed;
    size_t room = stream->avail_out;
    if (!tc_feed_fill(feed, error))
        return false;
    stream->next_in = feed->next;
    stream->avail_in = feed->left;
    lzma_ret result = lzma_code(stream, LZMA_RUN);
    size_t taken = feed->left - stream->avail_in;
    tc_feed_take(feed, taken);
    decoder->ended = result == LZMA_STREAM_END;
    if (result == LZMA_MEM_ERROR)
        return tc_fail_memory(error);
    if (result == LZMA_MEMLIMIT_ERROR)
        return tc_fail(error, TC_UNSUPPORTED, "lzma-dictionary",
                       "LZMA with a dictionary of over %llu bytes is not supported",
                       (unsigned long long)TC_LZMA_MOST_DICTIONARY);
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR)
        return bad(decoder, "lzma", "is corrupt", error);
    bool stuck = taken == 0 && stream->avail_out == room && !decoder->ended;
    return stuck && tc_feed_is_empty(feed) ? bad(decoder, "truncated", "is cut short", error)
                                           : true;
}

bool tc_lzma_decode(struct tc_lzma_decoder *decoder, void *buffer, size_t length,
                    struct tc_error *error) {
    lzma_stream *stream = decoder->stream;
    stream->next_out = buffer;
    stream->avail_out = length;
    while (stream->avail_out) {
        if (decoder->ended)
            return bad(decoder, "size-mismatch", "holds less than it declares", error);
        if (!decode_some(decoder, error))
            return false;
    }
    return true;
}

bool tc_lzma_decode_some(struct tc_lzma_decoder *decoder, void *buffer, size_t length, size_t *got,
                         struct tc_error *error) {
    lzma_stream *stream = decoder->stream;
    stream->next_out = buffer;
    stream->avail_out = length;
    bool ok = true;
    while (ok && stream->avail_out && !decoder->ended)
        ok = decode_some(decoder, error);
    *got = length - stream->avail_out;
    return ok;
}

bool tc_lzma_follows(const struct tc_lzma_decoder *decoder) {
    return decoder->ended && !tc_feed_is_empty(&decoder->feed);
}

bool tc_lzma_decoder_end(struct tc_lzma_decoder *decoder, struct tc_error *error) {
    lzma_stream *stream = decoder->stream;
    unsigned char extra;
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

void tc_lzma_decoder_release(struct tc_lzma_decoder *decoder) {
    if (decoder->stream)
        lzma_end(decoder->stream);
    free(decoder->stream);
    tc_feed_release(&decoder->feed);
    *decoder = (struct tc_lzma_decoder){0};
}
