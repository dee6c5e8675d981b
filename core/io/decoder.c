#include "core/io/decoder.h"

#include <stdlib.h>

bool tc_decoder_init(struct tc_decoder *decoder, const struct tc_decoder_library *library,
                     struct tc_input *input, uint64_t start, uint64_t end, struct tc_error *error) {
    *decoder = (struct tc_decoder){.library = library};
    return tc_feed_init(&decoder->feed, input, start, end, error);
}

bool tc_decoder_bad(const struct tc_decoder *decoder, const char *code, const char *what,
                    struct tc_error *error) {
    tc_fail(error, TC_INVALID, code, "the %s data %s", decoder->library->name, what);
    return tc_error_at(error, tc_feed_place(&decoder->feed));
}

void tc_decoder_release(struct tc_decoder *decoder) {
    if (decoder->stream)
        decoder->library->end(decoder->stream);
    free(decoder->stream);
    tc_feed_release(&decoder->feed);
    *decoder = (struct tc_decoder){0};
}

bool tc_decoder_read_some(struct tc_decoder *decoder, void *buffer, size_t length, size_t *got,
                          struct tc_error *error) {
    const struct tc_decoder_library *library = decoder->library;
    struct tc_feed *feed = &decoder->feed;
    *got = 0;
    while (*got < length && !decoder->ended) {
        if (!tc_feed_fill(feed, error))
            return false;
        struct tc_decoder_step step = {.from = feed->next,
                                       .left = feed->left,
                                       .to = (unsigned char *)buffer + *got,
                                       .room = length - *got};
        enum tc_decoder_state state = library->step(decoder->stream, &step, error);
        size_t taken = feed->left - step.left;
        size_t made = length - *got - step.room;
        tc_feed_take(feed, taken);
        *got += made;
        decoder->ended = state == TC_DECODER_ENDED;
        if (state == TC_DECODER_FAILED)
            return false;
        if (state == TC_DECODER_CORRUPT)
            return tc_decoder_bad(decoder, library->code, "is corrupt", error);
        if (!taken && !made && !decoder->ended && tc_feed_is_empty(feed))
            return tc_decoder_bad(decoder, "truncated", "is cut short", error);
    }
    return true;
}

bool tc_decoder_read(struct tc_decoder *decoder, void *buffer, size_t length,
                     struct tc_error *error) {
    size_t got;
    return tc_decoder_read_some(decoder, buffer, length, &got, error) &&
           (got == length ||
            tc_decoder_bad(decoder, "size-mismatch", "holds less than it declares", error));
}

bool tc_decoder_follows(const struct tc_decoder *decoder) {
    return decoder->ended && !tc_feed_is_empty(&decoder->feed);
}

bool tc_decoder_next(struct tc_decoder *decoder, struct tc_error *error) {
    decoder->ended = false;
    return decoder->library->restart(decoder->stream, error);
}

bool tc_decoder_end(struct tc_decoder *decoder, struct tc_error *error) {
    char extra;
    size_t got;
    if (!tc_decoder_read_some(decoder, &extra, 1, &got, error))
        return false;
    if (got)
        return tc_decoder_bad(decoder, "size-mismatch", "holds more than it declares", error);
    return tc_feed_is_empty(&decoder->feed) ||
           tc_decoder_bad(decoder, "trailing-data", "is followed by other bytes", error);
}
