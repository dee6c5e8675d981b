/*
 * A view that is not in C order, cut into blocks: each is read in long runs, rearranged in memory,
 * and goes to its place in the C-order stream in long runs, too. So all of it is read once and
 * written once, in bounded memory, by any number of threads; but the stream is not made from its
 * start to its end, so that only an output that can be written anywhere takes it
 * (core/tensor/strided_view.h is for the others).
 */
#ifndef TCONV_CORE_TENSOR_VIEW_BLOCKS_H
#define TCONV_CORE_TENSOR_VIEW_BLOCKS_H

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/tensor/strided_view.h"

struct tc_view_blocks {
    struct tc_view view;          /* with as few axes as it can have */
    uint64_t extent[TC_MAX_RANK]; /* of a block */
    uint64_t count;               /* of blocks */
    size_t scratch;               /* bytes that reading a block takes besides its own */
    size_t largest;               /* bytes of a whole block */
    unsigned order[TC_MAX_RANK];  /* the axes by their strides, the smallest first */
};

/* Where a piece of a block goes: bytes at an offset of the stream. */
typedef bool tc_view_put(void *context, uint64_t offset, const unsigned char *bytes, size_t length,
                         struct tc_error *error);

/* Blocks of at most so many bytes. False where the view has no elements, or would have to be read
 * or written in pieces so short that a block takes too many of them. */
bool tc_view_blocks_plan(struct tc_view_blocks *blocks, const struct tc_view *view, size_t most);
/* Reads block `number` into `bytes`, which has room for `largest`, by way of `scratch`. Any thread
 * may call it, if its fetch allows that. */
bool tc_view_blocks_read(const struct tc_view_blocks *blocks, uint64_t number, tc_fetch *fetch,
                         void *context, unsigned char *scratch, unsigned char *bytes,
                         struct tc_error *error);
/* Bytes of a block. */
uint64_t tc_view_blocks_size(const struct tc_view_blocks *blocks, uint64_t number);
/* Puts the pieces of a block that was read, one after the other. */
bool tc_view_blocks_put(const struct tc_view_blocks *blocks, uint64_t number,
                        const unsigned char *bytes, tc_view_put *put, void *context,
                        struct tc_error *error);

#endif
