/*
 * What a file may make us spend. Every bound is checked before memory is
 * taken, and the message that refuses a file names the option that raises it.
 */
#ifndef TCONV_CORE_LIMITS_H
#define TCONV_CORE_LIMITS_H

#include <stdint.h>

#define TC_MAX_RANK 64u
#define TC_MAX_NAME_BYTES 65536u
/* A header's nesting: tensors → entry → metadata is 4 deep in every format. */
#define TC_MAX_JSON_DEPTH 32u
/* Entries of one metadata map: a hundred times what the fullest real file has. */
#define TC_MAX_METADATA 1000000u
/* Shards of one index. Real models have at most a few hundred. */
#define TC_MAX_SHARDS 100000u
/* Decompression may multiply a file by this before --max-size counts it:
 * zeros deflate 1000-fold, honest weights hardly 10-fold. */
#define TC_FREE_EXPANSION 100u

struct tc_limits {
    uint64_t header; /* bytes; 0: each format's own default */
    uint64_t tensors;
    uint64_t memory; /* tables and buffers */
    uint64_t made;   /* bytes made from nothing */
    uint64_t pickle; /* bytes of a pickle, but for those of arrays in it */
};

#define TC_LIMITS_DEFAULT                                                                          \
    ((struct tc_limits){.header = 0,                                                               \
                        .tensors = 4000000,                                                        \
                        .memory = UINT64_C(2) << 30,                                               \
                        .made = UINT64_C(16) << 30,                                                \
                        .pickle = UINT64_C(256) << 20})

#endif
