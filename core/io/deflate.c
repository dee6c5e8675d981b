#include "core/io/deflate.h"

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <limits.h>
#include <stdlib.h>

#define INPUT_STEP ((size_t)1 << 17)
#define OUTPUT_STEP ((size_t)1 << 17)

uint32_t tc_crc32(uint32_t crc, const void *bytes, size_t length) {
    return crc32_gzip_refl(crc, bytes, length);
}

/* ISA-L leaves both complements of the standard to its caller, and counts in
 * int. */
uint32_t tc_crc32c(uint32_t crc, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    crc = ~crc;
    while (length) {
        int step = length < INT_MAX ? (int)length : INT_MAX;
        crc = crc32_iscsi((unsigned char *)(uintptr_t)at, step, crc); /* it only reads */
        at += step;
        length -= (size_t)step;
    }
    return ~crc;
}

uint32_t tc_adler32(uint32_t sum, const void *bytes, size_t length) {
    return isal_adler32(sum, bytes, length);
}

static const struct level {
    uint32_t level;
    uint32_t buffer;
} levels[] = {{1, ISAL_DEF_LVL1_DEFAULT}, {2, ISAL_DEF_LVL2_DEFAULT}, {3, ISAL_DEF_LVL3_DEFAULT}};

bool tc_deflater_init(struct tc_deflater *deflater, int level, tc_deflate_sink *sink, void *context,
                      struct tc_error *error) {
    *deflater = (struct tc_deflater){.sink = sink, .context = context};
    const struct level *chosen = &levels[level <= 1 ? 0 : level <= 3 ? 1 : 2];
    deflater->stream = malloc(sizeof *deflater->stream);
    deflater->level_buffer = malloc(chosen->buffer);
    deflater->output = malloc(OUTPUT_STEP);
    if (!deflater->stream || !deflater->level_buffer || !deflater->output)
        return tc_fail_memory(error);
    isal_deflate_init(deflater->stream);
    deflater->stream->level = chosen->level;
    deflater->stream->level_buf = deflater->level_buffer;
    deflater->stream->level_buf_size = chosen->buffer;
    return true;
}

static bool deflate_step(struct tc_deflater *deflater, struct tc_error *error) {
    struct isal_zstream *stream = deflater->stream;
    stream->next_out = deflater->output;
    stream->avail_out = (uint32_t)OUTPUT_STEP;
    if (isal_deflate(stream) != COMP_OK)
        return tc_fail(error, TC_INTERNAL, "deflate", "deflate failed");
    size_t made = OUTPUT_STEP - stream->avail_out;
    return made == 0 || deflater->sink(deflater->context, deflater->output, made, error);
}

bool tc_deflate(struct tc_deflater *deflater, const void *bytes, size_t length,
                struct tc_error *error) {
    struct isal_zstream *stream = deflater->stream;
    stream->next_in = (uint8_t *)(uintptr_t)bytes; /* ISA-L does not write to it */
    stream->avail_in = (uint32_t)length;           /* chunks are a few MiB at most */
    while (stream->avail_in)
        if (!deflate_step(deflater, error))
            return false;
    return true;
}

bool tc_deflater_finish(struct tc_deflater *deflater, struct tc_error *error) {
    struct isal_zstream *stream = deflater->stream;
    stream->end_of_stream = 1;
    stream->avail_in = 0;
    do {
        if (!deflate_step(deflater, error))
            return false;
    } while (stream->internal_state.state != ZSTATE_END);
    return true;
}

void tc_deflater_release(struct tc_deflater *deflater) {
    free(deflater->stream);
    free(deflater->level_buffer);
    free(deflater->output);
    *deflater = (struct tc_deflater){0};
}

bool tc_inflater_init(struct tc_inflater *inflater, struct tc_input *input, uint64_t start,
                      uint64_t end, struct tc_error *error) {
    *inflater = (struct tc_inflater){.input = input, .at = start, .end = end};
    inflater->state = malloc(sizeof *inflater->state);
    inflater->buffer = malloc(INPUT_STEP);
    if (!inflater->state || !inflater->buffer)
        return tc_fail_memory(error);
    isal_inflate_init(inflater->state);
    return true;
}

/* Inflates until the output is full, or the stream or its range ends. */
static bool inflate_some(struct tc_inflater *inflater, struct tc_error *error) {
    struct inflate_state *state = inflater->state;
    if (state->avail_in == 0 && inflater->at < inflater->end) {
        uint64_t left = inflater->end - inflater->at;
        size_t step = left < INPUT_STEP ? left : INPUT_STEP;
        if (!tc_input_read(inflater->input, inflater->at, inflater->buffer, step, error))
            return false;
        inflater->at += step;
        state->next_in = inflater->buffer;
        state->avail_in = (uint32_t)step;
    }
    uint32_t in_before = state->avail_in;
    uint32_t out_before = state->avail_out;
    int result = isal_inflate(state);
    if (result != ISAL_DECOMP_OK) {
        tc_fail(error, TC_INVALID, "deflate", "the deflated data is corrupt");
        return tc_error_at(error, inflater->at - state->avail_in);
    }
    bool stuck = state->avail_in == in_before && state->avail_out == out_before;
    if (stuck && state->block_state != ISAL_BLOCK_FINISH &&
        (state->avail_in || inflater->at == inflater->end))
        return tc_fail(error, TC_INVALID, "truncated", "the deflated data is cut short");
    return true;
}

/* Bytes taken from the file that the stream did not need: those not handed
 * over yet, and whole bytes in ISA-L's bit buffer. */
static uint64_t unused_input(const struct tc_inflater *inflater) {
    const struct inflate_state *state = inflater->state;
    uint64_t held = state->read_in_length > 0 ? (uint64_t)state->read_in_length / 8 : 0;
    return state->avail_in + held;
}

bool tc_inflate(struct tc_inflater *inflater, void *buffer, size_t length, struct tc_error *error) {
    struct inflate_state *state = inflater->state;
    unsigned char *at = buffer;
    while (length) {
        /* avail_out is 32 bits wide. */
        uint32_t step = length < (1u << 30) ? (uint32_t)length : 1u << 30;
        state->next_out = at;
        state->avail_out = step;
        while (state->avail_out) {
            if (state->block_state == ISAL_BLOCK_FINISH)
                return tc_fail(error, TC_INVALID, "size-mismatch",
                               "the deflated data holds less than it declares");
            if (!inflate_some(inflater, error))
                return false;
        }
        at += step;
        length -= step;
    }
    return true;
}

bool tc_inflate_some(struct tc_inflater *inflater, void *buffer, size_t length, size_t *got,
                     struct tc_error *error) {
    struct inflate_state *state = inflater->state;
    uint32_t step = length < (1u << 30) ? (uint32_t)length : 1u << 30;
    bool ok = true;
    state->next_out = buffer;
    state->avail_out = step;
    while (ok && state->avail_out && state->block_state != ISAL_BLOCK_FINISH)
        ok = inflate_some(inflater, error);
    *got = step - state->avail_out;
    return ok;
}

uint64_t tc_inflater_at(const struct tc_inflater *inflater) {
    return inflater->at - unused_input(inflater);
}

void tc_inflater_restart(struct tc_inflater *inflater, uint64_t start) {
    struct inflate_state *state = inflater->state;
    size_t filled =
        state->next_in ? (size_t)(state->next_in - inflater->buffer) + state->avail_in : 0;
    uint64_t first = inflater->at - filled;
    isal_inflate_init(state);
    if (start < first || start >= inflater->at) {
        inflater->at = start;
        return;
    }
    state->next_in = inflater->buffer + (start - first);
    state->avail_in = (uint32_t)(inflater->at - start);
}

bool tc_inflater_end(struct tc_inflater *inflater, struct tc_error *error) {
    struct inflate_state *state = inflater->state;
    while (state->block_state != ISAL_BLOCK_FINISH) {
        unsigned char extra;
        state->next_out = &extra;
        state->avail_out = 1;
        if (!inflate_some(inflater, error))
            return false;
        if (state->avail_out == 0)
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
    free(inflater->state);
    free(inflater->buffer);
    *inflater = (struct tc_inflater){0};
}
