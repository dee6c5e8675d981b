/*
 * What the name of a file in a model's folder says:
 *
 *     model.safetensors                          weights
 *     model.fp16.safetensors                     a variant of them
 *     model-00001-of-00002.safetensors           a shard
 *     model.fp16-00001-of-00002.safetensors      a shard of a variant, in either way
 *     model-00001-of-00002.fp16.safetensors
 *     model.safetensors.index.json               the index of shards
 *     model.safetensors.index.fp16.json
 *     .metadata, latest                          the table of a checkpoint in several files
 *     shard-00001-model-00001-of-00002.safetensors   pieces of tensors, as DCP saves them
 *     optimizer.pt, training_args.bin            what belongs to a training
 */
#ifndef TCONV_FORMATS_MODEL_NAME_H
#define TCONV_FORMATS_MODEL_NAME_H

#include "core/base/text.h"
#include "core/format/backend.h"

/* Which usual name for weights a stem is. Weights of one family are the same ones,
 * written for several programs. */
enum model_family {
    MODEL_FAMILY_NONE, /* any other name */
    MODEL_FAMILY_TRANSFORMERS,
    MODEL_FAMILY_DIFFUSERS,
    MODEL_FAMILY_ADAPTER,
};

struct model_name {
    const struct tc_backend *backend; /* of the extension; NULL: no format that tconv reads */
    struct tc_text stem;              /* what is left without everything below */
    struct tc_text variant;           /* no bytes: none */
    struct tc_text extension;         /* with its dot; of an index that of its shards */
    enum model_family family;
    bool
        is_weights; /* the extension is one of weights, also of a format that tconv does not read */
    bool is_index;
    bool is_shard;
    bool is_table;   /* set by model_folder.c, which looks at the content */
    bool is_piece;   /* a shard whose tensors are pieces */
    uint32_t number; /* of a shard */
    uint32_t total;
};

/* `variant` is one to recognise in any name, or has no bytes; else it is recognised
 * behind a usual name alone, since other names have dots too. */
struct model_name model_name_parse(struct tc_text name, struct tc_text variant);
/* Whether the file holds what belongs to a training, and no weights: training_args.bin,
 * and all whose names start with optimizer, scheduler, rng_state and the like. */
bool model_name_is_training(struct tc_text name);
/* Whether the two may be the same weights: they have one stem, or are of one family. */
bool model_name_same_weights(const struct model_name *a, const struct model_name *b);

/* What weights of this name are called once they are of another format, where programs
 * that load them look for them: pytorch_model.bin becomes model.safetensors, and that
 * becomes pytorch_model.bin. `stem`, if not NULL, takes the place of the name's own. */
void model_name_converted(const struct model_name *name, const char *stem,
                          const struct tc_backend *target, struct tc_buffer *converted);

#endif
