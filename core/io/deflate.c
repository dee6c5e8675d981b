#include "core/io/deflate.h"

#include <stdlib.h>

#include "core/io/deflate_codec.h"

#define INPUT_STEP ((size_t)1 << 17)

/* A last block without content, in the fixed code. */
const unsigned char tc_deflate_end[TC_DEFLATE_END_BYTES] = {3, 0};

bool tc_deflater_init(struct tc_deflater *deflater, int level, struct tc_error *error) {
    deflater->packer = tc_packer_new(level);
    return deflater->packer || tc_fail_memory(error);
}

/* NOLINTBEGIN(readability-non-const-parameter): the span writes to `packed` */
bool tc_deflate_piece(struct tc_deflater *deflater, const unsigned char *bytes, size_t window,
                      size_t length, unsigned char *packed, size_t *packed_length,
                      struct tc_error *error) {
    /* NOLINTEND(readability-non-const-parameter) */
    struct tc_codec_span span = {
        .in = bytes, .in_left = length, .out = packed, .out_left = TC_DEFLATE_ROOM};
    bool ok =
        tc_packer_piece(deflater->packer, &span, window) && span.in_left == 0 && span.out_left > 0;
    *packed_length = TC_DEFLATE_ROOM - span.out_left;
    return ok || tc_fail(error, TC_INTERNAL, "deflate", "deflate failed");
}

void tc_deflater_release(struct tc_deflater *deflater) {
    tc_packer_free(deflater->packer);
    *deflater = (struct tc_deflater){0};
}

bool tc_inflater_init(struct tc_inflater *inflater, struct tc_input *input, uint64_t start,
                      uint64_t end, struct tc_error *error) {
    *inflater = (struct tc_inflater){.input = input, .at = start < end ? start : end, .end = end};
    inflater->unpacker = tc_unpacker_new();
    inflater->buffer = malloc(INPUT_STEP);
    inflater->next = inflater->buffer;
    return (inflater->unpacker && inflater->buffer) || tc_fail_memory(error);
}

/* Inflates until the output is full, or the stream or its range ends. */
static bool inflate_step(struct tc_inflater *inflater, struct tc_codec_span *span,
                         struct tc_error *error) {
    if (inflater->left == 0 && inflater->at < inflater->end) {
        uint64_t left = inflater->end - inflater->at;
        size_t step = left < INPUT_STEP ? left : INPUT_STEP;
        if (!tc_input_read(inflater->input, inflater->at, inflater->buffer, step, error))
            return false;
        inflater->at += step;
        inflater->next = inflater->buffer;
        inflater->left = step;
    }
    span->in = inflater->next;
    span->in_left = inflater->left;
    size_t room = span->out_left;
    enum tc_codec_result result = tc_unpacker_step(inflater->unpacker, span);
    bool stuck = span->in_left == inflater->left && span->out_left == room;
    inflater->next = span->in;
    inflater->left = span->in_left;
    inflater->ended = result == TC_CODEC_ENDED;
    if (result == TC_CODEC_CORRUPT) {
        tc_fail(error, TC_INVALID, "deflate", "the deflated data is corrupt");
        return tc_error_at(error, inflater->at - inflater->left);
    }
    if (stuck && !inflater->ended && (inflater->left || inflater->at == inflater->end))
        return tc_fail(error, TC_INVALID, "truncated", "the deflated data is cut short");
    return true;
}

/* Bytes read from the file that the stream did not need. */
static uint64_t unused_input(const struct tc_inflater *inflater) {
    return inflater->left + tc_unpacker_held(inflater->unpacker);
}

bool tc_inflate(struct tc_inflater *inflater, void *buffer, size_t length, struct tc_error *error) {
    size_t got;
    if (!tc_inflate_some(inflater, buffer, length, &got, error))
        return false;
    return got == length || tc_fail(error, TC_INVALID, "size-mismatch",
                                    "the deflated data holds less than it declares");
}

bool tc_inflate_some(struct tc_inflater *inflater, void *buffer, size_t length, size_t *got,
                     struct tc_error *error) {
    struct tc_codec_span span = {.out = buffer, .out_left = length};
    bool ok = true;
    while (ok && span.out_left && !inflater->ended)
        ok = inflate_step(inflater, &span, error);
    *got = length - span.out_left;
    return ok;
}

uint64_t tc_inflater_at(const struct tc_inflater *inflater) {
    return inflater->at - unused_input(inflater);
}

void tc_inflater_restart(struct tc_inflater *inflater, uint64_t start) {
    uint64_t first = inflater->at - inflater->left - (uint64_t)(inflater->next - inflater->buffer);
    tc_unpacker_reset(inflater->unpacker);
    inflater->ended = false;
    bool here = start >= first && start < inflater->at;
    inflater->next = inflater->buffer + (here ? start - first : 0);
    inflater->left = here ? inflater->at - start : 0;
    if (!here)
        inflater->at = start < inflater->end ? start : inflater->end;
}

bool tc_inflater_end(struct tc_inflater *inflater, struct tc_error *error) {
    while (!inflater->ended) {
        unsigned char extra;
        struct tc_codec_span span = {.out = &extra, .out_left = 1};
        if (!inflate_step(inflater, &span, error))
            return false;
        if (span.out_left == 0)
            return tc_fail(error, TC_INVALID, "size-mismatch",
                           "the deflated data holds more than it declares");
    }
    if (unused_input(inflater) || inflater->at < inflater->end) {
        tc_fail(error, TC_INVALID, "trailing-data", "something follows the deflated data");
        return tc_error_at(error, inflater->at - unused_input(inflater));
    }
    return true;
}

void tc_inflater_release(struct tc_inflater *inflater) {
    tc_unpacker_free(inflater->unpacker);
    free(inflater->buffer);
    *inflater = (struct tc_inflater){0};
}
