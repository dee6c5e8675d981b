/*
 * What a model's config.json says of its quantised weights. Names, dtypes and shapes tell most of
 * it; the file only settles the size of blocks, by whose arithmetic values are computed, and the
 * dtype that the model computes in.
 */
#ifndef TCONV_CORE_FORMAT_QUANT_CONFIG_H
#define TCONV_CORE_FORMAT_QUANT_CONFIG_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"

/* The most bytes of a config. Honest ones have some 10 KB; lists of modules make them longer. */
#define TC_QUANT_CONFIG_LIMIT (UINT64_C(4) << 20)

enum tc_quant_method {
    TC_QUANT_UNKNOWN,    /* no such file, or nothing about quantisation in it */
    TC_QUANT_FP8,        /* transformers and DeepSeek: fp8 */
    TC_QUANT_MXFP8,      /* transformers: mxfp8 */
    TC_QUANT_MXFP4,      /* transformers: mxfp4, as gpt-oss has it */
    TC_QUANT_COMPRESSED, /* compressed-tensors */
    TC_QUANT_MODELOPT,   /* NVIDIA's Model Optimizer */
    TC_QUANT_OTHER,      /* weights that are not scaled in blocks */
};

/* How many sizes of blocks a config may give: compressed-tensors has one a group of modules. */
#define TC_QUANT_BLOCKS 8u

struct tc_quant_config {
    enum tc_quant_method method;
    unsigned block_count;                /* how many different sizes of blocks it gives */
    uint64_t blocks[TC_QUANT_BLOCKS][2]; /* each rows and columns */
    enum tc_dtype dtype;    /* of the model: F16, BF16 or F32; TC_NONE: it does not say */
    struct tc_text *spared; /* what it says of modules that are not quantised, by name or pattern */
    size_t spared_count;
    unsigned expressions;  /* how many regular expressions have been matched */
    uint64_t spared_tests; /* how many names have been compared */
};

/* Reads config.json, and hf_quant_config.json where that says nothing, from the folder of the
 * reader's file. It is no failure that there is none. Names are the arena's. */
bool tc_quant_config_read(const struct tc_reader *reader, struct tc_quant_config *config,
                          struct tc_arena *arena, struct tc_error *error);
/* Whether the config lists the module of this weight among those that are not quantised. */
bool tc_quant_config_spares(struct tc_quant_config *config, struct tc_text weight, bool *found,
                            struct tc_error *error);
/* Appends a config without what it says of quantised weights, which are plain now: the rest stays
 * as it stands, byte for byte. */
bool tc_quant_config_drop(struct tc_text config, struct tc_buffer *out, struct tc_error *error);

#endif
