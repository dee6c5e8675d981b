/*
 * Views that are not in C order (Fortran order, permuted or zero strides): gives
 * their C-order stream, tile by tile in bounded memory. A tile is as many whole
 * rows as fit the window. Its source is read in runs along the axis with the
 * smallest stride or, where that axis is short, in blocks over several axes, so
 * that the cost is in proportion to the bytes, whatever the rank. One thread at a
 * time may use a reader; release it also where its init failed.
 */
#ifndef TCONV_CORE_TENSOR_STRIDED_VIEW_H
#define TCONV_CORE_TENSOR_STRIDED_VIEW_H

#include "core/base/error.h"
#include "core/base/limits.h"

/* Where the view's bytes come from: `length` bytes at `offset` of a storage. */
typedef bool tc_fetch(void *context, uint64_t offset, void *buffer, size_t length,
                      struct tc_error *error);

struct tc_view {
    unsigned rank;
    unsigned element; /* bytes; at most 16 */
    uint64_t shape[TC_MAX_RANK];
    uint64_t stride[TC_MAX_RANK]; /* bytes */
    uint64_t start;               /* offset of the first element in the storage */
    uint64_t storage;             /* bytes of the storage */
};

/* The offset of one element of a block, in the storage and in the window. */
struct tc_hop {
    uint32_t from;
    uint32_t to;
};

struct tc_view_reader {
    struct tc_view view;
    tc_fetch *fetch;
    void *context;
    unsigned char *window; /* C-order bytes [window_at, window_at + window_size) */
    uint64_t window_at;
    size_t window_size;
    unsigned char *run;
    unsigned char *ahead; /* storage bytes [ahead_at, ahead_at + ahead_size) */
    uint64_t ahead_at;
    size_t ahead_size;
    size_t ahead_most;
    uint64_t fetched_to; /* where the last fetch ended */
    struct tc_hop *hops; /* the elements of a block */
    size_t hop_count;    /* 0: runs instead of blocks */
    uint64_t made;       /* bytes of all windows so far */
    uint64_t scattered;  /* reads so far that did not follow the one before */
    size_t hop_span;     /* bytes of the storage that a block spans */
    unsigned axis;       /* tiles are ranges of this axis, whole in all later ones */
    uint64_t rows;       /* of a tile */
};

/* Reduces the rank: drops axes of length 1, and merges two neighbours where a step of the outer
 * axis is as long as the whole inner axis. Even a view of rank 64 may turn out to be one run of
 * bytes. */
void tc_view_merge(struct tc_view *view);
/* The caller must have checked that no element lies outside the storage. */
bool tc_view_reader_init(struct tc_view_reader *reader, const struct tc_view *view, tc_fetch *fetch,
                         void *context, struct tc_error *error);
/* Bytes of the C-order stream; fastest when offsets ascend. */
bool tc_view_reader_read(struct tc_view_reader *reader, uint64_t offset, void *buffer,
                         size_t length, struct tc_error *error);
void tc_view_reader_release(struct tc_view_reader *reader);

#endif
