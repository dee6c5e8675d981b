/*
 * What core/io/deflate.c needs of a deflate library. It is defined in
 * deflate_isal.c and in deflate_zlib.c, of which the build compiles one (the
 * option `isal`). Both also define the checksums of core/io/deflate.h.
 */
#ifndef TCONV_CORE_IO_DEFLATE_CODEC_H
#define TCONV_CORE_IO_DEFLATE_CODEC_H

#include <stdbool.h>
#include <stddef.h>

/* The input and the room for output of a step, which advances both. */
struct tc_codec_span {
    const unsigned char *in;
    size_t in_left;
    unsigned char *out;
    size_t out_left;
};

enum tc_codec_result { TC_CODEC_MORE, TC_CODEC_ENDED, TC_CODEC_CORRUPT };

/* NULL where there is no memory. */
struct tc_packer *tc_packer_new(int level);
/* Packs all input as a piece by itself, which ends at a byte and is not the last. It may refer back
 * to `window` bytes, which lie before the input. False where the library failed; where there was
 * too little room, none is left. */
bool tc_packer_piece(struct tc_packer *packer, struct tc_codec_span *span, size_t window);
void tc_packer_free(struct tc_packer *packer);

/* NULL where there is no memory. */
struct tc_unpacker *tc_unpacker_new(void);
/* Prepares for another stream. */
void tc_unpacker_reset(struct tc_unpacker *unpacker);
/* Unpacks until there is no input, no room or the stream ends. */
enum tc_codec_result tc_unpacker_step(struct tc_unpacker *unpacker, struct tc_codec_span *span);
/* At the stream's end: how many bytes of input it took but did not need. */
size_t tc_unpacker_held(const struct tc_unpacker *unpacker);
void tc_unpacker_free(struct tc_unpacker *unpacker);

#endif
