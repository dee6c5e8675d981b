#include "core/io/lzma.h"

#include <lzma.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/little_endian.h"
#include "core/io/feed.h"

#define PROPERTIES_BYTES 5u
#define HEAD_BYTES (4u + PROPERTIES_BYTES)
/* What the decoder of a file may take: its dictionary and its own tables. */
#define MOST_MEMORY (TC_LZMA_MOST_DICTIONARY + (UINT64_C(16) << 20))

static lzma_stream *new_stream(struct tc_error *error) {
    lzma_stream *stream = calloc(1, sizeof *stream);
    if (stream)
        *stream = (lzma_stream)LZMA_STREAM_INIT;
    else
        tc_fail_memory(error);
    return stream;
}

static enum tc_decoder_state step_stream(void *state, struct tc_decoder_step *step,
                                         struct tc_error *error) {
    lzma_stream *stream = state;
    stream->next_in = step->from;
    stream->avail_in = step->left;
    stream->next_out = step->to;
    stream->avail_out = step->room;
    lzma_ret result = lzma_code(stream, LZMA_RUN);
    step->left = stream->avail_in;
    step->room = stream->avail_out;
    switch (result) {
    case LZMA_OK:
    case LZMA_BUF_ERROR:
        return TC_DECODER_GOES_ON;
    case LZMA_STREAM_END:
        return TC_DECODER_ENDED;
    case LZMA_MEM_ERROR:
        tc_fail_memory(error);
        return TC_DECODER_FAILED;
    case LZMA_MEMLIMIT_ERROR:
        tc_fail(error, TC_UNSUPPORTED, "lzma-dictionary",
                "LZMA with a dictionary of over %llu bytes is not supported",
                (unsigned long long)TC_LZMA_MOST_DICTIONARY);
        return TC_DECODER_FAILED;
    default:
        return TC_DECODER_CORRUPT;
    }
}

static bool restart_stream(void *stream, struct tc_error *error) {
    return lzma_auto_decoder(stream, MOST_MEMORY, 0) == LZMA_OK || tc_fail_memory(error);
}

static void end_stream(void *stream) {
    lzma_end(stream);
}

static const struct tc_decoder_library library = {.name = "LZMA",
                                                  .code = "lzma",
                                                  .step = step_stream,
                                                  .restart = restart_stream,
                                                  .end = end_stream};

/* The first property byte is (pb * 5 + lp) * 9 + lc; four of the dictionary's
 * size follow. */
static bool read_properties(struct tc_decoder *decoder, uint64_t size, lzma_options_lzma *options,
                            struct tc_error *error) {
    unsigned char head[HEAD_BYTES];
    struct tc_feed *feed = &decoder->feed;
    if (feed->end - feed->at < HEAD_BYTES)
        return tc_decoder_bad(decoder, "truncated", "is cut short", error);
    if (!tc_input_read(feed->input, feed->at, head, HEAD_BYTES, error))
        return false;
    uint64_t dictionary = tc_load(head + 5, 4);
    if (tc_load(head + 2, 2) != PROPERTIES_BYTES || head[4] >= 9 * 5 * 5)
        return tc_decoder_bad(decoder, "lzma", "has bad properties", error);
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

bool tc_lzma_init(struct tc_decoder *decoder, struct tc_input *input, uint64_t start, uint64_t end,
                  uint64_t size, struct tc_error *error) {
    lzma_options_lzma options;
    if (!tc_decoder_init(decoder, &library, input, start, end, error) ||
        !read_properties(decoder, size, &options, error))
        return false;
    decoder->stream = new_stream(error);
    if (!decoder->stream)
        return false;
    const lzma_filter filters[] = {{.id = LZMA_FILTER_LZMA1EXT, .options = &options},
                                   {.id = LZMA_VLI_UNKNOWN}};
    lzma_ret result = lzma_raw_decoder(decoder->stream, filters);
    if (result == LZMA_OK)
        return true;
    return result == LZMA_MEM_ERROR ? tc_fail_memory(error)
                                    : tc_decoder_bad(decoder, "lzma", "has bad properties", error);
}

bool tc_lzma_init_file(struct tc_decoder *decoder, struct tc_input *input, uint64_t start,
                       uint64_t end, struct tc_error *error) {
    if (!tc_decoder_init(decoder, &library, input, start, end, error))
        return false;
    decoder->stream = new_stream(error);
    return decoder->stream && restart_stream(decoder->stream, error);
}
