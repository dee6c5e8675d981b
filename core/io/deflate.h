/*
 * Deflate and the checksums of archives. The work is done by ISA-L, or by zlib
 * where a machine has no ISA-L; core/io/deflate_codec.h is what both provide. The
 * library changes the speed and the compressed bytes, never what is read. Either
 * takes a few hundred KiB of memory. One thread at a time may use a deflater or
 * an inflater; release it also where its init failed.
 */
#ifndef TCONV_CORE_IO_DEFLATE_H
#define TCONV_CORE_IO_DEFLATE_H

#include "core/base/error.h"
#include "core/io/input.h"

#define TC_DEFLATE_DEFAULT_LEVEL 6
#define TC_DEFLATE_MAX_LEVEL 9

/* Both start from 0 and continue from an earlier result. zip has CRC-32, TFRecord
 * CRC-32C (Castagnoli). */
uint32_t tc_crc32(uint32_t crc, const void *bytes, size_t length);
uint32_t tc_crc32c(uint32_t crc, const void *bytes, size_t length);
/* The checksum of zlib's format; starts from 1. */
uint32_t tc_adler32(uint32_t sum, const void *bytes, size_t length);

/*
 * Deflating in pieces, which different threads may pack at the same time: each ends at a byte and
 * is no last block, so that the pieces of a stream follow each other in the file, and
 * tc_deflate_end follows them. A piece may refer back to the window before it, which its packer
 * must be given.
 */
#define TC_DEFLATE_PIECE ((size_t)768 << 10) /* the most bytes of a piece */
#define TC_DEFLATE_WINDOW ((size_t)32 << 10)
#define TC_DEFLATE_ROOM ((size_t)1 << 20) /* what a piece takes at most, once it is packed */
#define TC_DEFLATE_END_BYTES 2u
extern const unsigned char tc_deflate_end[TC_DEFLATE_END_BYTES];

struct tc_deflater {
    struct tc_packer *packer;
};

/* Levels 1 to 9, as zlib's; ISA-L has three. */
bool tc_deflater_init(struct tc_deflater *deflater, int level, struct tc_error *error);
/* Packs `length` bytes, of which `window` precede in the same memory, into TC_DEFLATE_ROOM bytes.
 */
bool tc_deflate_piece(struct tc_deflater *deflater, const unsigned char *bytes, size_t window,
                      size_t length, unsigned char *packed, size_t *packed_length,
                      struct tc_error *error);
void tc_deflater_release(struct tc_deflater *deflater);

/* Reads one raw deflate stream from a range of a file. */
struct tc_inflater {
    struct tc_unpacker *unpacker;
    struct tc_input *input;
    uint64_t at; /* offset in the file of what was not read yet */
    uint64_t end;
    unsigned char *buffer;
    const unsigned char *next; /* in the buffer: what the unpacker has not taken yet */
    size_t left;
    bool ended;
};

bool tc_inflater_init(struct tc_inflater *inflater, struct tc_input *input, uint64_t start,
                      uint64_t end, struct tc_error *error);
bool tc_inflate(struct tc_inflater *inflater, void *buffer, size_t length, struct tc_error *error);
/* Up to `length` bytes, for a stream whose length is not known: *got is less only
 * at its end. */
bool tc_inflate_some(struct tc_inflater *inflater, void *buffer, size_t length, size_t *got,
                     struct tc_error *error);
/* Where the stream ended in its file; call it only then. */
uint64_t tc_inflater_at(const struct tc_inflater *inflater);
/* Starts another stream of the same range; what was read from the file already is
 * not read again. */
void tc_inflater_restart(struct tc_inflater *inflater, uint64_t start);
/* Fails unless the stream ends here, and the range with it. */
bool tc_inflater_end(struct tc_inflater *inflater, struct tc_error *error);
void tc_inflater_release(struct tc_inflater *inflater);

#endif
