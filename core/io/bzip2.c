#include "core/io/bzip2.h"

#include <bzlib.h>
#include <stdlib.h>
#include <string.h>

/* libbz2 counts in 32 bits. */
#define MOST_ROOM ((size_t)1 << 30)

static enum tc_decoder_state step_stream(void *state, struct tc_decoder_step *step,
                                         struct tc_error *error) {
    bz_stream *stream = state;
    unsigned room = (unsigned)(step->room < MOST_ROOM ? step->room : MOST_ROOM);
    stream->next_in = (char *)(uintptr_t)step->from; /* libbz2 does not write to it */
    stream->avail_in = (unsigned)step->left;         /* a small piece of the feed */
    stream->next_out = (char *)step->to;
    stream->avail_out = room;
    int result = BZ2_bzDecompress(stream);
    step->left = stream->avail_in;
    step->room -= room - stream->avail_out;
    if (result == BZ_MEM_ERROR) {
        tc_fail_memory(error);
        return TC_DECODER_FAILED;
    }
    return result == BZ_OK           ? TC_DECODER_GOES_ON
           : result == BZ_STREAM_END ? TC_DECODER_ENDED
                                     : TC_DECODER_CORRUPT;
}

static void end_stream(void *stream) {
    BZ2_bzDecompressEnd(stream);
}

static bool restart_stream(void *stream, struct tc_error *error) {
    BZ2_bzDecompressEnd(stream);
    memset(stream, 0, sizeof(bz_stream));
    return BZ2_bzDecompressInit(stream, 0, 0) == BZ_OK || tc_fail_memory(error);
}

static const struct tc_decoder_library library = {.name = "bzip2",
                                                  .code = "bzip2",
                                                  .step = step_stream,
                                                  .restart = restart_stream,
                                                  .end = end_stream};

bool tc_bzip2_init(struct tc_decoder *decoder, struct tc_input *input, uint64_t start, uint64_t end,
                   struct tc_error *error) {
    if (!tc_decoder_init(decoder, &library, input, start, end, error))
        return false;
    decoder->stream = calloc(1, sizeof(bz_stream));
    return decoder->stream ? restart_stream(decoder->stream, error) : tc_fail_memory(error);
}
