/*
 * Deflate and the checksums of archives. The work is done by ISA-L, or where a
 * machine has none by zlib: core/io/deflate_codec.h is what the two have to
 * offer. Which one it is shows in the speed and in the packed bytes, never in
 * what is read. Memory is a few hundred KiB either way.
 */
#ifndef TCONV_CORE_IO_DEFLATE_H
#define TCONV_CORE_IO_DEFLATE_H

#include "core/base/error.h"
#include "core/io/input.h"

#define TC_DEFLATE_DEFAULT_LEVEL 6
#define TC_DEFLATE_MAX_LEVEL 9

/* Both start from 0 and go on from what they gave before. CRC-32 is zip's,
 * CRC-32C (Castagnoli) TFRecord's. */
uint32_t tc_crc32(uint32_t crc, const void *bytes, size_t length);
uint32_t tc_crc32c(uint32_t crc, const void *bytes, size_t length);
/* zlib's; starts from 1. */
uint32_t tc_adler32(uint32_t sum, const void *bytes, size_t length);

typedef bool tc_deflate_sink(void *context, const void *bytes, size_t length,
                             struct tc_error *error);

struct tc_deflater {
    struct tc_packer *packer;
    unsigned char *output;
    tc_deflate_sink *sink;
    void *context;
};

/* Levels 1 to 9, as zlib's; ISA-L has three. */
bool tc_deflater_init(struct tc_deflater *deflater, int level, tc_deflate_sink *sink, void *context,
                      struct tc_error *error);
bool tc_deflate(struct tc_deflater *deflater, const void *bytes, size_t length,
                struct tc_error *error);
bool tc_deflater_finish(struct tc_deflater *deflater, struct tc_error *error);
void tc_deflater_release(struct tc_deflater *deflater);

/* Reads one raw deflate stream from a range of a file. */
struct tc_inflater {
    struct tc_unpacker *unpacker;
    struct tc_input *input;
    uint64_t at; /* behind what was read from the file */
    uint64_t end;
    unsigned char *buffer;
    const unsigned char *next; /* in the buffer: what the unpacker has not taken yet */
    size_t left;
    bool ended;
};

bool tc_inflater_init(struct tc_inflater *inflater, struct tc_input *input, uint64_t start,
                      uint64_t end, struct tc_error *error);
bool tc_inflate(struct tc_inflater *inflater, void *buffer, size_t length, struct tc_error *error);
/* As much as there is up to `length`, for a stream that does not say how long it
 * is: *got is less only at its end. */
bool tc_inflate_some(struct tc_inflater *inflater, void *buffer, size_t length, size_t *got,
                     struct tc_error *error);
/* Where the stream ended in its file; only at its end. */
uint64_t tc_inflater_at(const struct tc_inflater *inflater);
/* Another stream of the same range: what was read already is not read again. */
void tc_inflater_restart(struct tc_inflater *inflater, uint64_t start);
/* The stream must end here, and the range with it. */
bool tc_inflater_end(struct tc_inflater *inflater, struct tc_error *error);
void tc_inflater_release(struct tc_inflater *inflater);

#endif
