/*
 * DeepSpeed's ZeRO checkpoints: which files there are (files.c), and which ranges of them each
 * tensor is made of (layout.h). zero.c opens a checkpoint and reads it.
 */
#ifndef TCONV_FORMATS_ZERO_ZERO_H
#define TCONV_FORMATS_ZERO_ZERO_H

#include <pthread.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/pickle.h"
#include "formats/pieces.h"

/* A file of the tag's folder, open as one of torch's. The tensors that are taken out of it are in
 * its reader's table. */
struct zero_file {
    struct tc_text name;
    uint64_t rank;
    struct tc_reader *reader;
    struct pickle_node *root; /* what its pickle built */
};

struct zero_files {
    struct zero_file *list; /* by rank */
    size_t count;
};

/* Where the bytes of a piece are. */
struct zero_source {
    struct tc_reader *reader;
    uint32_t tensor; /* its position in the reader's table */
    uint64_t start;  /* byte of that tensor */
};

/* A tensor of the model: a stream of elements in pieces of one dimension. */
struct zero_tensor {
    struct pieces pieces;
    uint64_t count; /* elements: the only dimension of the pieces */
    struct zero_source *sources;
    enum tc_dtype stored; /* the dtype in the files; the table has what it becomes */
};

struct zero {
    struct tc_reader *reader;
    struct tc_format_options options; /* for the files */
    struct tc_input_pool pool;
    char *folder; /* the tag's, with a slash at its end; from malloc */
    struct zero_files optimiser;
    struct zero_files model;
    struct tc_input **inputs; /* of all files */
    size_t input_count;
    struct zero_tensor *tensors; /* by cookie */
    size_t count;
    size_t capacity;
    uint64_t pieces; /* of all tensors */
    uint64_t stage;
    pthread_mutex_t lock; /* for reading what does not lie raw */
    bool ready;
};

/* The most bytes of a file `latest`: those of a name, and white space. */
#define ZERO_TAG 512u
/* Whether the text is what a file `latest` holds: the name of a folder. Sets *tag to it, without
 * the white space around it. */
bool zero_is_tag(const char *text, size_t length, struct tc_text *tag);
/* files.c: opens the files, and checks their number. */
bool zero_open_files(struct zero *zero, struct tc_error *error);
/* layout.c: fills the reader's table. */
bool zero_make_table(struct zero *zero, struct tc_error *error);

#endif
