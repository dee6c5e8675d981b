/*
 * The walk over what a pickle holds, shared by its parts: tree.c goes
 * from value to value, keys.c makes names, tensor.c understands the
 * values that are tensors. Each function that fails has filled walk->error.
 */
#ifndef TCONV_FORMATS_TORCH_WALK_H
#define TCONV_FORMATS_TORCH_WALK_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/metadata.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"

struct torch_frame {
    struct pickle_node *node;
    size_t path;    /* length of its name */
    uint32_t next;  /* position in `items` of the next child */
    uint32_t level; /* how deep it is nested */
    bool named;     /* what is inside it is called NAME.KEY, not KEY */
    bool entered;
    bool members;    /* only tensors count: what else is in it says nothing */
    bool attributes; /* a module's own: its parts have frames of their own */
};

struct torch_walk {
    struct torch *torch;
    struct tc_error *error;
    struct torch_frame *frames;
    size_t depth;
    size_t capacity;
    struct tc_buffer path;
    bool named;       /* the path is a name, be it an empty one */
    uint64_t visits;  /* of values, each as often as it is reached */
    uint64_t text;    /* bytes of metadata */
    uint64_t renamed; /* tensors whose name another had already */
    struct tc_text renamed_first;
    uint64_t surrogates; /* texts with half a character */
};

static inline struct tc_arena *torch_walk_arena(const struct torch_walk *walk) {
    return &walk->torch->reader->arena;
}
/* The name of what is being walked; "tensor" where it has none. */
struct tc_text torch_walk_path(const struct torch_walk *walk);

/* Names the place where the error is; the outermost value has none. */
bool torch_walk_here(struct torch_walk *walk);
bool torch_walk_bad(struct torch_walk *walk, const char *what);
/* Leaves the value out by its name. */
bool torch_walk_skip(struct torch_walk *walk, enum tc_skip what, const char *reason, ...)
    __attribute__((format(printf, 3, 4)));
/* Passes over a failure that concerns this value alone. */
bool torch_walk_forgive(struct torch_walk *walk);
/* Counts values against what a pickle of its length may hold. */
bool torch_walk_charge(struct torch_walk *walk, uint64_t values);
bool torch_walk_over(struct torch_walk *walk, const char *what, uint64_t limit);
/* How much higher limits are where the user raised --max-pickle. */
uint64_t torch_walk_scale(const struct torch_walk *walk);

/* keys.c */

/* A key that comes again has the last value in the first place, as in Python. */
bool torch_settle_dict(struct torch_walk *walk, struct pickle_node *dict);
/* Appends what the key is called: text and integers as they are, any other key
 * by its place in the dict. */
void torch_add_key(struct torch_walk *walk, const struct pickle_node *key, uint32_t place);
/* A name for the path that is not taken with any of these endings; the later
 * one of two gets NAME~1 and so on. */
bool torch_take_name(struct torch_walk *walk, const char *const *endings, size_t count,
                     struct tc_text *name);
/* Keeps a name that no tensor of the table has by itself. */
bool torch_keep_name(struct torch_walk *walk, struct tc_text name);
/* Metadata keys, one each, in the same way. */
bool torch_settle_metadata(struct torch_walk *walk);

/* tensor.c */

/* The tensor that a call stands for, added to the table, or left out. */
bool torch_add_call(struct torch_walk *walk, const struct pickle_node *node);
/* Leaves out a kind of tensor that is known by its function alone. */
bool torch_skip_known(struct torch_walk *walk, const struct pickle_node *function);
/* The storage in the file that a call of torch.storage._load_from_bytes holds;
 * NULL where there is none. */
struct pickle_node *torch_nested_storage(struct torch_walk *walk, const struct pickle_node *call);
/* A storage by itself: its elements in a row. */
bool torch_add_storage_node(struct torch_walk *walk, const struct pickle_node *node);
/* Metadata of a file or tensor; takes the buffer. */
bool torch_add_metadata(struct torch_walk *walk, struct tc_metadata *metadata, struct tc_text key,
                        struct tc_buffer *value);

#endif
