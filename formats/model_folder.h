/*
 * Which files of a folder are the model. Decided from a list of names, sizes and
 * kinds, wherever that comes from (core/io/listing.h), and where names do not
 * decide from the first bytes of files:
 *
 *     model_folder_find(&folder, &listing, &wanted, &error)
 *     … folder.models[0] is the one to read; model_open opens it …
 *     model_folder_release(&folder)
 *
 * In this order: what transformers takes (model.safetensors, its index,
 * pytorch_model.bin, its index), then the same of diffusers, then other usual names,
 * then the table of a checkpoint in several files (.metadata), then any file, index
 * or set of shards of a format that tconv reads, a format in which nothing can be
 * hidden before one of pickles; at last a folder of .npy files of one tensor each. Files of a
 * training (optimizer and the like) are no weights.
 */
#ifndef TCONV_FORMATS_MODEL_FOLDER_H
#define TCONV_FORMATS_MODEL_FOLDER_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/io/input.h"
#include "core/io/listing.h"
#include "formats/model_name.h"

enum model_form {
    MODEL_FILE,   /* one file: the weights, or an index */
    MODEL_SHARDS, /* STEM-N-of-M without an index */
    MODEL_ARRAYS, /* a file a tensor, which has the file's name */
    MODEL_PIECES, /* files that hold pieces of tensors (dcp/hf.h) */
};

struct model {
    enum model_form form;
    struct model_name name;           /* of its first file */
    const struct tc_backend *backend; /* of its weights, as names or content show it */
    bool by_content;                  /* as content shows it: the name says another, or none */
    struct tc_text *files;            /* one file, or all shards or arrays in their order */
    size_t count;
    uint64_t size;    /* of these files */
    uint32_t missing; /* of shards without index: how many are not there */
};

/* What the user asks for. */
struct model_wanted {
    const struct tc_backend *format; /* NULL: any */
    const char *variant;             /* such as "fp16"; NULL: none is preferred */
    /* Opens a file of the folder, to look at its first bytes; NULL: only names count. */
    struct tc_input *(*open)(void *context, const char *name, struct tc_error *error);
    void *context;
};

struct model_folder {
    struct tc_arena arena;
    struct model *models; /* all that could be meant, the one to read first */
    size_t count;
};

/* Fails where there is no model, and says what there is instead. The listing must be
 * sorted, and outlive the result. To be released also on failure. */
bool model_folder_find(struct model_folder *folder, const struct tc_listing *listing,
                       const struct model_wanted *wanted, struct tc_error *error);
void model_folder_release(struct model_folder *folder);
/* Where several models could be meant: says which one is read, and how another is. */
void model_folder_tell(const struct model_folder *folder, struct tc_buffer *text);

#endif
