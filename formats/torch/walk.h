/*
 * The walk over what a pickle built, for the modules that make it: walk.c goes from
 * value to value, children.c says what is inside of each, keys.c makes names, tensor.c
 * adds the values that are tensors. Each function that fails has filled walk->error.
 */
#ifndef TCONV_FORMATS_TORCH_WALK_H
#define TCONV_FORMATS_TORCH_WALK_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/metadata.h"
#include "core/tensor/sparse_group.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"

/* A value whose children are being visited. */
struct torch_frame {
    struct pickle_node *node;
    size_t path;    /* how long walk->path is up to and including its name */
    uint32_t next;  /* position in `items` of the next child */
    uint32_t level; /* how deep it is nested */
    bool named;     /* its children are called NAME.KEY, not KEY */
    bool entered;
    bool members;    /* only tensors in it are added; other values are not metadata */
    bool attributes; /* a module's own attributes: its submodules have their own frames */
};

struct torch_walk {
    struct torch *torch;
    struct tc_error *error;
    struct torch_frame *frames;
    size_t depth;
    size_t capacity;
    struct tc_buffer path;
    bool named;       /* the path is a name, even if it is empty */
    uint64_t visits;  /* of values, each as often as it is reached */
    uint64_t text;    /* bytes of metadata */
    uint64_t renamed; /* tensors whose name another had already */
    struct tc_text renamed_first;
    uint64_t surrogates;               /* texts with lone surrogates */
    const struct pickle_node *current; /* the value that is visited */
};

static inline struct tc_arena *torch_walk_arena(const struct torch_walk *walk) {
    return &walk->torch->reader->arena;
}
/* The name of what is being walked; "tensor" where it has none. */
struct tc_text torch_walk_path(const struct torch_walk *walk);

/* Adds the value's name to the error, if it has one; returns false. */
bool torch_walk_here(struct torch_walk *walk);
bool torch_walk_bad(struct torch_walk *walk, const char *what);
/* Leaves the value out, and reports its name and the reason. */
bool torch_walk_skip(struct torch_walk *walk, enum tc_skip what, const char *reason, ...)
    __attribute__((format(printf, 3, 4)));
/* Clears an error that concerns this value alone, which is left out; false where it
 * must stay. */
bool torch_walk_forgive(struct torch_walk *walk);
/* Counts visits of values; fails where there are more than a pickle of its size may
 * cause. */
bool torch_walk_charge(struct torch_walk *walk, uint64_t values);
/* Fails because a limit is passed. */
bool torch_walk_over(struct torch_walk *walk, const char *what, uint64_t limit);
/* The factor by which limits are higher where the user raised --max-pickle. */
uint64_t torch_walk_scale(const struct torch_walk *walk);

/* children.c */

/* A value inside the one that is walked. */
struct torch_child {
    struct pickle_node *node;      /* NULL: nothing here */
    const struct pickle_node *key; /* of a dict; NULL: none */
    bool members;
    bool attributes;
};
/* The next child of the innermost frame; the path is its name. False behind the
 * last. */
bool torch_next_child(struct torch_walk *walk, struct torch_frame *frame,
                      struct torch_child *child);
/* Whether it is a list, tuple, dict or set. */
bool torch_is_container(const struct pickle_node *node);
/* Whether a state is (dict, slots), as that of objects with __slots__ is. */
bool torch_has_slots(const struct pickle_node *state);

/* keys.c */

/* Appends a key's name to the path: text and integers as they are, for any other key
 * its position in the dict. */
void torch_add_key(struct torch_walk *walk, const struct pickle_node *key, uint32_t place);
/* A name for the current path with which none of these endings makes a name that
 * exists already: where one does, NAME~1 and so on. */
bool torch_take_name(struct torch_walk *walk, const char *const *endings, size_t count,
                     struct tc_text *name);
/* Reserves a name that no tensor of the table has, such as that of a sparse tensor,
 * which the table has as several. */
bool torch_keep_name(struct torch_walk *walk, struct tc_text name);
/* Makes the keys of the file's metadata unique in the same way. */
bool torch_settle_metadata(struct torch_walk *walk);

/* tensor.c */

/* Adds the tensor that a call stands for to the table, or leaves it out. */
bool torch_add_call(struct torch_walk *walk, const struct pickle_node *node);
/* Leaves out a kind of tensor that is not supported, named by its function. */
bool torch_skip_known(struct torch_walk *walk, const struct pickle_node *function);
/* The storage in the torch file that is the argument of a call of
 * torch.storage._load_from_bytes; NULL where there is none. */
struct pickle_node *torch_nested_storage(struct torch_walk *walk, const struct pickle_node *call);
/* Adds a storage that no tensor wraps, as a tensor of one dimension. */
bool torch_add_storage_node(struct torch_walk *walk, const struct pickle_node *node);
/* What a pickle says of a tensor besides its elements. */
struct torch_described {
    const struct pickle_node *inner;      /* the call that makes it, without its wrappers */
    const struct pickle_node *attributes; /* a dict that has items; NULL: none */
    bool dense;                           /* it is strided; else there is no shape */
    bool parameter;
    bool requires_grad;
    bool other; /* it has a class or a state that no plain tensor has */
    struct torch_shape shape;
};
bool torch_describe(struct torch_walk *walk, const struct pickle_node *node,
                    struct torch_described *tensor);
/* The layout that torch calls torch.sparse_coo and so on; NULL: none. */
const struct tc_sparse_layout *torch_find_layout(const struct pickle_node *named);
/* Adds metadata to that of the file or of a tensor; releases the buffer. */
bool torch_add_metadata(struct torch_walk *walk, struct tc_metadata *metadata, struct tc_text key,
                        struct tc_buffer *value);

#endif
