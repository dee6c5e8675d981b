/*
 * Rearranges elements in memory: any permutation of axes, with repeated elements where a stride of
 * the source is 0. Both sides are meant to fit a core's caches; core/tensor/view_blocks.h cuts
 * larger ones into such pieces.
 */
#ifndef TCONV_CORE_TENSOR_PERMUTE_H
#define TCONV_CORE_TENSOR_PERMUTE_H

#include <stddef.h>
#include <stdint.h>

struct tc_axis {
    uint64_t count;
    uint64_t from; /* bytes between neighbours in the source; 0: the same element again */
    uint64_t to;   /* and in the target */
};

/* How many bytes behind the last element of the source are read, and not used. */
#define TC_PERMUTE_SLACK 16u

/* Elements have at most 16 bytes. The axes may be in any order; those of the target do not overlap.
 * `axes` is changed. Any thread may call it. */
void tc_permute(struct tc_axis *axes, unsigned rank, unsigned element, const unsigned char *from,
                unsigned char *to);

#endif
