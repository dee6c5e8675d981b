/* Deflate and checksums by zlib, which every machine has. */
#include <stdlib.h>
#include <zlib.h>

#include "core/base/little_endian.h"
#include "core/io/deflate.h"
#include "core/io/deflate_codec.h"

/* zlib's counts have 32 bits. */
#define STEP ((size_t)1 << 30)
/* The largest window, 2^15 bytes; negative: raw deflate, without zlib's header. */
#define RAW_WINDOW (-15)
#define MEMORY_LEVEL 8 /* zlib's own default */

uint32_t tc_crc32(uint32_t crc, const void *bytes, size_t length) {
    return length ? (uint32_t)crc32_z(crc, bytes, length)
                  : crc; /* zlib would start anew for NULL */
}

uint32_t tc_adler32(uint32_t sum, const void *bytes, size_t length) {
    return length ? (uint32_t)adler32_z(sum, bytes, length) : sum;
}

/*
 * zlib has no CRC-32C. This one takes eight bytes at a time: a CRC is linear, so that of a word is
 * the exclusive or of those of its sixteen nibbles, each with zeros in place of the others. A row
 * has the CRCs of all values of a nibble at one position, made from those of its four bits.
 */
#define ROW(a, b, c, d)                                                                            \
    {                                                                                              \
        0, a, b, (a) ^ (b), c, (a) ^ (c), (b) ^ (c), (a) ^ (b) ^ (c), d, (a) ^ (d), (b) ^ (d),     \
            (a) ^ (b) ^ (d), (c) ^ (d), (a) ^ (c) ^ (d), (b) ^ (c) ^ (d), (a) ^ (b) ^ (c) ^ (d)    \
    }
static const uint32_t sums[16][16] = {
    ROW(0x493C7D27u, 0x9278FA4Eu, 0x211D826Du, 0x423B04DAu),
    ROW(0x847609B4u, 0x0D006599u, 0x1A00CB32u, 0x34019664u),
    ROW(0x68032CC8u, 0xD0065990u, 0xA5E0C5D1u, 0x4E2DFD53u),
    ROW(0x9C5BFAA6u, 0x3D5B83BDu, 0x7AB7077Au, 0xF56E0EF4u),
    ROW(0xEF306B19u, 0xDB8CA0C3u, 0xB2F53777u, 0x6006181Fu),
    ROW(0xC00C303Eu, 0x85F4168Du, 0x0E045BEBu, 0x1C08B7D6u),
    ROW(0x38116FACu, 0x7022DF58u, 0xE045BEB0u, 0xC5670B91u),
    ROW(0x8F2261D3u, 0x1BA8B557u, 0x37516AAEu, 0x6EA2D55Cu),
    ROW(0xDD45AAB8u, 0xBF672381u, 0x7B2231F3u, 0xF64463E6u),
    ROW(0xE964B13Du, 0xD725148Bu, 0xABA65FE7u, 0x52A0C93Fu),
    ROW(0xA541927Eu, 0x4F6F520Du, 0x9EDEA41Au, 0x38513EC5u),
    ROW(0x70A27D8Au, 0xE144FB14u, 0xC76580D9u, 0x8B277743u),
    ROW(0x13A29877u, 0x274530EEu, 0x4E8A61DCu, 0x9D14C3B8u),
    ROW(0x3FC5F181u, 0x7F8BE302u, 0xFF17C604u, 0xFBC3FAF9u),
    ROW(0xF26B8303u, 0xE13B70F7u, 0xC79A971Fu, 0x8AD958CFu),
    ROW(0x105EC76Fu, 0x20BD8EDEu, 0x417B1DBCu, 0x82F63B78u),
};

static uint32_t sum_of_word(uint64_t word) {
    uint32_t sum = 0;
    for (unsigned nibble = 0; nibble < 16; nibble++)
        sum ^= sums[nibble][word >> 4 * nibble & 0xF];
    return sum;
}

uint32_t tc_crc32c(uint32_t crc, const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    crc = ~crc;
    for (; length >= 8; at += 8, length -= 8)
        crc = sum_of_word(crc ^ tc_load(at, 8));
    for (; length; at++, length--) {
        crc ^= *at;
        /* The last two rows are those of a word's last byte, which nothing follows. */
        crc = crc >> 8 ^ sums[14][crc & 0xF] ^ sums[15][crc >> 4 & 0xF];
    }
    return ~crc;
}

struct tc_packer {
    z_stream stream;
};

struct tc_packer *tc_packer_new(int level) {
    struct tc_packer *packer = calloc(1, sizeof *packer);
    if (packer && deflateInit2(&packer->stream, level, Z_DEFLATED, RAW_WINDOW, MEMORY_LEVEL,
                               Z_DEFAULT_STRATEGY) != Z_OK) {
        free(packer);
        return NULL;
    }
    return packer;
}

/* Lets a stream work on the span; give_back then updates the span. */
static void lend(z_stream *stream, const struct tc_codec_span *span) {
    stream->next_in = (Bytef *)(uintptr_t)span->in; /* zlib does not write to it */
    stream->avail_in = (uInt)(span->in_left < STEP ? span->in_left : STEP);
    stream->next_out = span->out;
    stream->avail_out = (uInt)(span->out_left < STEP ? span->out_left : STEP);
}

/* Z_BUF_ERROR says that nothing could be done for want of input or room. */
static enum tc_codec_result give_back(const z_stream *stream, struct tc_codec_span *span,
                                      int result) {
    span->in_left -= (size_t)(stream->next_in - span->in);
    span->in = stream->next_in;
    span->out_left -= (size_t)(stream->next_out - span->out);
    span->out = stream->next_out;
    if (result == Z_STREAM_END)
        return TC_CODEC_ENDED;
    return result == Z_OK || result == Z_BUF_ERROR ? TC_CODEC_MORE : TC_CODEC_CORRUPT;
}

bool tc_packer_piece(struct tc_packer *packer, struct tc_codec_span *span, size_t window) {
    if (deflateReset(&packer->stream) != Z_OK ||
        (window && deflateSetDictionary(&packer->stream, span->in - window, (uInt)window) != Z_OK))
        return false;
    lend(&packer->stream, span);
    return give_back(&packer->stream, span, deflate(&packer->stream, Z_SYNC_FLUSH)) ==
           TC_CODEC_MORE;
}

void tc_packer_free(struct tc_packer *packer) {
    if (packer)
        deflateEnd(&packer->stream);
    free(packer);
}

struct tc_unpacker {
    z_stream stream;
};

struct tc_unpacker *tc_unpacker_new(void) {
    struct tc_unpacker *unpacker = calloc(1, sizeof *unpacker);
    if (unpacker && inflateInit2(&unpacker->stream, RAW_WINDOW) != Z_OK) {
        free(unpacker);
        return NULL;
    }
    return unpacker;
}

void tc_unpacker_reset(struct tc_unpacker *unpacker) {
    inflateReset(&unpacker->stream);
}

enum tc_codec_result tc_unpacker_step(struct tc_unpacker *unpacker, struct tc_codec_span *span) {
    lend(&unpacker->stream, span);
    return give_back(&unpacker->stream, span, inflate(&unpacker->stream, Z_NO_FLUSH));
}

/* zlib takes no byte that it does not need. */
size_t tc_unpacker_held(const struct tc_unpacker *unpacker) {
    (void)unpacker;
    return 0;
}

void tc_unpacker_free(struct tc_unpacker *unpacker) {
    if (unpacker)
        inflateEnd(&unpacker->stream);
    free(unpacker);
}
