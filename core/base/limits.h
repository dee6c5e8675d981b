/*
 * Limits on the memory and work that an input file can cause. Every limit is
 * checked before memory is taken, and the message that refuses a file names the
 * option that raises the limit.
 */
#ifndef TCONV_CORE_BASE_LIMITS_H
#define TCONV_CORE_BASE_LIMITS_H

#include <stdint.h>

#define TC_MAX_RANK 64u
#define TC_MAX_NAME_BYTES 65536u
/* A header's nesting: tensors → entry → metadata is 4 deep in every format. */
#define TC_MAX_JSON_DEPTH 32u
/* Most bytes of a temporary file, which holds what came through a pipe, or
 * decompressed data that is read out of order. In practice the disk's free
 * space is the limit that is met first. */
#define TC_MAX_SPOOL (UINT64_C(1) << 40)
/* The hint for limits that no option raises, so that nobody looks for one. */
#define TC_FIXED_LIMIT "this limit is fixed: no honest file comes near it"
/* The most shards of one index. Real models have at most a few hundred. */
#define TC_MAX_SHARDS 100000u
/* The most entries of one folder that is looked through for a model. Real ones have
 * some dozens; a folder with a file for each tensor has as many as the model has tensors, and
 * those with many experts have 150,000. */
#define TC_MAX_FOLDER_ENTRIES 1000000u
/* Folders in folders that are copied with a model. */
#define TC_MAX_FOLDER_DEPTH 64u
/* How many times its size a file may grow by decompression before --max-size
 * counts it: zeros deflate 1000-fold, real weights hardly 10-fold. */
#define TC_FREE_EXPANSION 100u

/* "Made" bytes are those that tensors have and the file does not: zeros, or one
 * value or stretch of data repeated many times. Without --max-size, a file may
 * make TC_LEAST_MADE plus TC_FREE_EXPANSION times its own size, but at most
 * TC_MOST_MADE. */
#define TC_LEAST_MADE (UINT64_C(256) << 20)
#define TC_MOST_MADE (UINT64_C(16) << 30)

/* A limit that the user did not set: it follows from the file's size. */
#define TC_LIMIT_BY_FILE UINT64_MAX

struct tc_limits {
    uint64_t header; /* bytes; 0: each format's own default */
    uint64_t tensors;
    /* Bytes of a reader's or a plan's tables; 0: no limit. The budget that all
     * memory of the command counts against is in core/base/memory.h. */
    uint64_t memory;
    uint64_t made;   /* bytes that the file does not have; ask tc_reader_made_limit */
    uint64_t pickle; /* bytes of a pickle, not counting the data of arrays in it */
};

#define TC_LIMITS_DEFAULT                                                                          \
    ((struct tc_limits){.header = 0,                                                               \
                        .tensors = 4000000,                                                        \
                        .memory = TC_LIMIT_BY_FILE,                                                \
                        .made = TC_LIMIT_BY_FILE,                                                  \
                        .pickle = UINT64_C(256) << 20})

#endif
