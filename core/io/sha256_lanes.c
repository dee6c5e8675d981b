#include "core/io/sha256_lanes.h"

#if defined(__x86_64__)

#include <string.h>

#define TARGET __attribute__((target("sha,sse4.1")))

static const uint32_t constants[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* Four words, the lowest first. (The compiler's header of these instructions asks for functions
 * that are banned here.) */
typedef uint32_t four __attribute__((vector_size(16)));
typedef int signed_four __attribute__((vector_size(16))); /* as the compiler names them */
typedef char sixteen __attribute__((vector_size(16)));

/* A stream's state in the order that the instructions want: the words f, e, b, a and h, g, d, c;
 * and 16 words of its message. */
struct stream {
    four feba;
    four hgdc;
    four words[4];
    const unsigned char *bytes;
};

TARGET static inline four load_words(const void *bytes) {
    four words;
    memcpy(&words, bytes, sizeof words);
    return words;
}

TARGET static inline void load(struct stream *stream, const struct tc_sha256_lane *lane) {
    four abcd = load_words(lane->state);
    four efgh = load_words(lane->state + 4);
    stream->feba = __builtin_shufflevector(efgh, abcd, 1, 0, 5, 4);
    stream->hgdc = __builtin_shufflevector(efgh, abcd, 3, 2, 7, 6);
    stream->bytes = lane->bytes;
}

TARGET static inline void store(const struct stream *stream, const struct tc_sha256_lane *lane) {
    four abcd = __builtin_shufflevector(stream->feba, stream->hgdc, 3, 2, 7, 6);
    four efgh = __builtin_shufflevector(stream->feba, stream->hgdc, 1, 0, 5, 4);
    memcpy(lane->state, &abcd, sizeof abcd);
    memcpy(lane->state + 4, &efgh, sizeof efgh);
}

TARGET static inline four load_message(const unsigned char *bytes) {
    sixteen little = (sixteen)load_words(bytes);
    return (four)__builtin_shufflevector(little, little, 3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15,
                                         14, 13, 12);
}

TARGET static inline four first_sum(four words, four next) {
    return (four)__builtin_ia32_sha256msg1((signed_four)words, (signed_four)next);
}

TARGET static inline four second_sum(four sum, four last) {
    return (four)__builtin_ia32_sha256msg2((signed_four)sum, (signed_four)last);
}

TARGET static inline four two_rounds(four state, four other, four words) {
    return (four)__builtin_ia32_sha256rnds2((signed_four)state, (signed_four)other,
                                            (signed_four)words);
}

/* The words of the message that rounds 4 × step to 4 × step + 3 take. */
TARGET static inline __attribute__((always_inline)) four next_words(struct stream *stream,
                                                                    unsigned step) {
    four *words = &stream->words[step % 4];
    if (step < 4) {
        *words = load_message(stream->bytes + (size_t)16 * step);
    } else {
        four last = stream->words[(step + 3) % 4];
        four sum = first_sum(*words, stream->words[(step + 1) % 4]);
        sum += __builtin_shufflevector(stream->words[(step + 2) % 4], last, 1, 2, 3, 4);
        *words = second_sum(sum, last);
    }
    return *words;
}

/* Adds a block to each stream: four rounds of one, then of the next, so that they overlap. */
TARGET static inline __attribute__((always_inline)) void add_block(struct stream *streams,
                                                                   size_t count) {
    four feba[TC_SHA256_LANES];
    four hgdc[TC_SHA256_LANES];
    for (size_t i = 0; i < count; i++) {
        feba[i] = streams[i].feba;
        hgdc[i] = streams[i].hgdc;
    }
#pragma GCC unroll 16
    for (unsigned step = 0; step < 16; step++) {
        four constant = load_words(constants + (size_t)4 * step);
#pragma GCC unroll 4
        for (size_t i = 0; i < count; i++) {
            struct stream *stream = &streams[i];
            four words = next_words(stream, step) + constant;
            stream->hgdc = two_rounds(stream->hgdc, stream->feba, words);
            words = __builtin_shufflevector(words, words, 2, 3, 2, 3);
            stream->feba = two_rounds(stream->feba, stream->hgdc, words);
        }
    }
    for (size_t i = 0; i < count; i++) {
        streams[i].feba += feba[i];
        streams[i].hgdc += hgdc[i];
        streams[i].bytes += TC_SHA256_BLOCK;
    }
}

/* With a `count` that the compiler knows, all of it stays in registers. */
TARGET static inline __attribute__((always_inline)) void
add_blocks(const struct tc_sha256_lane *lanes, size_t count, size_t blocks) {
    struct stream streams[TC_SHA256_LANES];
    for (size_t i = 0; i < count; i++)
        load(&streams[i], &lanes[i]);
    for (; blocks; blocks--)
        add_block(streams, count);
    for (size_t i = 0; i < count; i++)
        store(&streams[i], &lanes[i]);
}

TARGET static void add_to(const struct tc_sha256_lane *lanes, size_t count, size_t blocks) {
    switch (count) {
    case 1:
        add_blocks(lanes, 1, blocks);
        break;
    case 2:
        add_blocks(lanes, 2, blocks);
        break;
    case 3:
        add_blocks(lanes, 3, blocks);
        break;
    default:
        add_blocks(lanes, 4, blocks);
        break;
    }
}

void tc_sha256_lanes(struct tc_sha256_lane *lanes, size_t count) {
    while (count) {
        size_t least = lanes[0].blocks;
        for (size_t i = 1; i < count; i++)
            least = lanes[i].blocks < least ? lanes[i].blocks : least;
        if (least)
            add_to(lanes, count, least);
        size_t left = 0;
        for (size_t i = 0; i < count; i++) {
            struct tc_sha256_lane lane = lanes[i];
            lane.bytes += least * TC_SHA256_BLOCK;
            lane.blocks -= least;
            if (lane.blocks)
                lanes[left++] = lane;
        }
        count = left;
    }
}

#else

#include <stdlib.h>

void tc_sha256_lanes(struct tc_sha256_lane *lanes, size_t count) {
    (void)lanes;
    (void)count;
    abort();
}

#endif
