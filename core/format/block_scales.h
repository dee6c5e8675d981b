/*
 * Weights whose scales are tensors of their own, a scale for each block of elements, as large
 * models are published (FP8, MXFP4, NVFP4 and others). They are recognised by names, dtypes and
 * shapes; docs/dtypes.md has the list. Weight and scales may be of different readers.
 */
#ifndef TCONV_CORE_FORMAT_BLOCK_SCALES_H
#define TCONV_CORE_FORMAT_BLOCK_SCALES_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/quant_config.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

/* How a weight's elements are stored. */
enum tc_scaled_codes {
    TC_CODES_F8,    /* F8_E4M3, one a byte */
    TC_CODES_FOUR,  /* E2M1, two a byte, the low half first */
    TC_CODES_SIX,   /* E2M3, four in three bytes, little-endian */
    TC_CODES_SWAPS, /* as FOUR in [.., N, G, 16]; the result is [.., 32 G, N] */
};

/* What is done with a scale before it is multiplied with the codes in F32, and with the product
 * before it is rounded to the result's dtype. */
enum tc_scaled_arithmetic {
    TC_SCALE_AS_IT_IS,     /* transformers, DeepSeek */
    TC_SCALE_EXPONENT,     /* a byte that is the exponent of a power of two */
    TC_SCALE_ROUNDS_FIRST, /* modelopt FP8: the scale is rounded to the result's dtype */
    TC_SCALE_OWN_PRODUCT,  /* compressed-tensors: the product is rounded to the scale's dtype */
    TC_SCALE_DIVIDED,      /* compressed-tensors NVFP4: divided by the global scale */
    TC_SCALE_DIVIDED_BF16, /* the same, rounded to BF16: what torch does with a 0-d global scale */
    TC_SCALE_TIMES_SECOND, /* modelopt NVFP4: times a second scale; code 8 is +0 */
};

struct tc_scaled_part {
    struct tc_reader *reader;
    const struct tc_tensor *tensor; /* NULL: there is none */
};

struct tc_scaled {
    const char *kind; /* for the ledger: "FP8 blocks" */
    enum tc_scaled_codes codes;
    enum tc_scaled_arithmetic arithmetic;
    bool grouped; /* the weight's last two dimensions are blocks and their 16 bytes */
    struct tc_scaled_part weight;
    struct tc_scaled_part scale;
    struct tc_scaled_part global; /* of the whole tensor */
    struct tc_text name;          /* of the result */
    uint64_t block[2];            /* rows and columns that share a scale; 0: all */
    enum tc_dtype dtype;          /* of the result, unless the user asks for another */
};

/* All inputs of a conversion. */
struct tc_block_scales {
    struct tc_reader *const *readers;
    size_t count;
    struct tc_quant_config *configs; /* by reader */
    bool *compressed;                /* by reader: it has weights of compressed-tensors */
};

enum tc_scaled_role {
    TC_ROLE_NONE,
    TC_ROLE_WEIGHT,
    TC_ROLE_SCALE,     /* left out: it is part of a weight, or of no use without its scale */
    TC_ROLE_SPARED,    /* could be a weight, but the config says that it is not quantised */
    TC_ROLE_LOOKALIKE, /* an ordinary tensor whose name could be a scale's */
};

/* Reads the configs; all memory is the arena's. */
bool tc_block_scales_init(struct tc_block_scales *scales, struct tc_reader *const *readers,
                          size_t count, struct tc_arena *arena, struct tc_error *error);
/* What a tensor is; fills *scaled for a weight. Fails where a scale is missing, does not fit, or
 * could be one of several, and where a scale has no weight. */
bool tc_block_scales_find(const struct tc_block_scales *scales, size_t reader,
                          const struct tc_tensor *tensor, enum tc_scaled_role *role,
                          struct tc_scaled *scaled, struct tc_error *error);

#endif
