/*
 * Writes pickles of protocol 2: plain values and tensors, with the names of a fixed table alone.
 * The buffer keeps track of failed allocations (tc_buffer_ok).
 */
#ifndef TCONV_FORMATS_TORCH_PICKLER_H
#define TCONV_FORMATS_TORCH_PICKLER_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/tree.h"
#include "core/plan/plan.h"
#include "core/tensor/sparse_group.h"

#define PICKLER_MAX_MEMO 64

/* A sparse tensor, with the positions of its tensors in the output file. */
struct torch_group {
    const struct tc_sparse_layout *layout;
    struct tc_text parent;
    size_t parts[4];
    const bool *coalesced; /* whether it is; NULL: not known */
};

/* A quantised tensor; where each channel has a scale, with the positions of the scales and zero
 * points in the output file. */
struct torch_quantised {
    const char *scheme; /* as a global: "torch\nper_tensor_affine" */
    double scale;
    int64_t zero_point; /* or the axis */
    bool channels;
    size_t scales;
    size_t zero_points;
};

/* How an item is written. */
struct torch_slot {
    uint64_t number;                         /* of its storage */
    const struct torch_group *group;         /* the sparse tensor it belongs to; NULL: none */
    const struct torch_quantised *quantised; /* NULL: it is not */
    const struct tc_tree_tensor *view;       /* it is this view of another's storage; NULL: no */
    size_t base;                             /* of a view: the item whose storage that is */
    const struct tc_tree_tensor *strided;    /* its storage has these strides; NULL: C order */
    bool silent; /* it has no storage: the shape of a sparse tensor, a view, numpy's array */
    bool part;   /* it is a part of a quantised tensor, and stands in the pickle with it */
};

struct torch_pickler {
    struct tc_writer *writer;
    const struct tc_item *items;
    const struct torch_slot *slots;
    struct tc_buffer text;
    bool script;
    const char *memo[PICKLER_MAX_MEMO]; /* texts and globals that were written, by memo key */
    unsigned memo_count;
};

/* write_quantised.c: sets the slots of quantised tensors and of their parts; `names` has the items
 * by their names. */
bool torch_find_quantised(const struct tc_item *items, size_t count,
                          const struct tc_name_map *names, struct tc_arena *arena,
                          struct torch_slot *slots, struct tc_error *error);
/* Whether any item may be one. */
bool torch_has_quantised(const struct tc_item *items, size_t count);

void pickler_byte(struct torch_pickler *pickler, unsigned byte);
void pickler_little(struct torch_pickler *pickler, uint64_t value, unsigned bytes);
void pickler_integer(struct torch_pickler *pickler, uint64_t value);
void pickler_signed(struct torch_pickler *pickler, int64_t value);
/* An integer past 64 bits, by its digits, of which there are at most TC_TREE_MAX_DIGITS. */
void pickler_long(struct torch_pickler *pickler, struct tc_text digits);
void pickler_real(struct torch_pickler *pickler, double value);
void pickler_boolean(struct torch_pickler *pickler, bool value);
void pickler_text(struct torch_pickler *pickler, struct tc_text text);
/* Bytes, as protocol 2 has them: a call of _codecs.encode. */
void pickler_bytes(struct torch_pickler *pickler, const void *bytes, size_t length);
/* The text that stands for bytes in there, and behind it the name of the codec: the arguments. */
void pickler_latin1(struct torch_pickler *pickler, const void *bytes, size_t length,
                    const char *codec);
/* Writes a global, given as "module\nname". */
void pickler_global(struct torch_pickler *pickler, const char *global);
/* Writes a text or global the first time, and later refers to it by the memo. A global
 * has a newline in it. The text must outlive the pickler. */
void pickler_shared(struct torch_pickler *pickler, const char *text);
void pickler_begin_tuple(struct torch_pickler *pickler, size_t count);
void pickler_end_tuple(struct torch_pickler *pickler, size_t count);
void pickler_sizes(struct torch_pickler *pickler, const uint64_t *sizes, size_t count);
/* An OrderedDict without items. */
void pickler_empty_dict(struct torch_pickler *pickler);

/* The tensor of an item: the function that makes it, and the tuple of its arguments. */
void pickler_tensor_function(struct torch_pickler *pickler, size_t index);
void pickler_tensor_arguments(struct torch_pickler *pickler, size_t index, bool requires_grad);
/* All of that: a dense tensor, a quantised one, a sparse one. */
void pickler_dense(struct torch_pickler *pickler, size_t index);
void pickler_quantised(struct torch_pickler *pickler, size_t index);
bool pickler_sparse(struct torch_pickler *pickler, const struct torch_group *group,
                    struct tc_error *error);

#endif
