/*
 * The .npy header, shared by npy.c and npz.c, and the stream of an array's
 * elements in C order and little-endian.
 */
#ifndef TCONV_FORMATS_NPY_H
#define TCONV_FORMATS_NPY_H

#include "core/format.h"
#include "core/gather.h"

#define NPY_DTYPES                                                                                 \
    (TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_F32) | TC_SET(TC_F64) |        \
     TC_SET(TC_C64) | TC_SET(TC_C128))
#define NPY_MAX_RANK TC_MAX_RANK

struct npy_header {
    const uint64_t *shape; /* the arena's */
    uint64_t nbytes;
    uint64_t data; /* where the elements start */
    uint8_t dtype;
    uint8_t rank;
    bool swap;
    bool fortran;
};

/* Reads and checks a header through `fetch`; `size` is the file's or member's,
 * `base` where it lies in the input, for messages. */
bool npy_header_read(struct tc_reader *reader, tc_fetch *fetch, void *context, uint64_t size,
                     uint64_t base, struct npy_header *header, struct tc_error *error);

/* The text that np.save writes, prefix included. */
bool npy_header_write(struct tc_buffer *text, enum tc_dtype dtype, const uint64_t *shape,
                      unsigned rank, struct tc_error *error);

/* Puts the parts of big-endian elements in order, in place. `offset` is that
 * of the first byte in the stream: a read may start inside an element. */
struct npy_stream {
    struct tc_gather gather;
    bool gathering;
};
/* Bytes of the C-order little-endian stream; `fetch` gives the elements' bytes
 * as stored, from offset 0. */
bool npy_stream_read(struct npy_stream *stream, const struct npy_header *header, tc_fetch *fetch,
                     void *context, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error);
void npy_stream_release(struct npy_stream *stream);

#endif
