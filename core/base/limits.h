/*
 * What a file may make us spend. Every bound is checked before memory is
 * taken, and the message that refuses a file names the option that raises it.
 */
#ifndef TCONV_CORE_BASE_LIMITS_H
#define TCONV_CORE_BASE_LIMITS_H

#include <stdint.h>

#define TC_MAX_RANK 64u
#define TC_MAX_NAME_BYTES 65536u
/* A header's nesting: tensors → entry → metadata is 4 deep in every format. */
#define TC_MAX_JSON_DEPTH 32u
/* Most bytes of a temporary file: what a pipe brings before it ends, or data
 * that was packed and is wanted out of order. The disk's free space is the
 * limit that is met first. */
#define TC_MAX_SPOOL (UINT64_C(1) << 40)
/* The hint where no option raises a limit, so that nobody looks for one. */
#define TC_FIXED_LIMIT "this limit is fixed: no honest file comes near it"
/* Shards of one index. Real models have at most a few hundred. */
#define TC_MAX_SHARDS 100000u
/* Decompression may multiply a file by this before --max-size counts it:
 * zeros deflate 1000-fold, honest weights hardly 10-fold. */
#define TC_FREE_EXPANSION 100u

/* What a file may make out of nothing where --max-size says nothing: so much,
 * and TC_FREE_EXPANSION times its own size, but at most so much. */
#define TC_LEAST_MADE (UINT64_C(256) << 20)
#define TC_MOST_MADE (UINT64_C(16) << 30)

/* A limit that the user did not name: it follows the file. */
#define TC_LIMIT_BY_FILE UINT64_MAX

struct tc_limits {
    uint64_t header; /* bytes; 0: each format's own default */
    uint64_t tensors;
    /* Of a reader's or a plan's tables; 0: none. The command's budget, which all
     * memory counts against, is core/memory's. */
    uint64_t memory;
    uint64_t made;   /* bytes made from nothing; ask tc_reader_made_limit */
    uint64_t pickle; /* bytes of a pickle, but for those of arrays in it */
};

#define TC_LIMITS_DEFAULT                                                                          \
    ((struct tc_limits){.header = 0,                                                               \
                        .tensors = 4000000,                                                        \
                        .memory = TC_LIMIT_BY_FILE,                                                \
                        .made = TC_LIMIT_BY_FILE,                                                  \
                        .pickle = UINT64_C(256) << 20})

#endif
