/*
 * The tree of a checkpoint (core/format/tree.h), made from what its pickle built: tree.c goes from
 * value to value, tree_values.c writes those that hold no others, tree_tensors.c says which tensors
 * share a storage, tree_sets.c has the order of a set's members.
 */
#ifndef TCONV_FORMATS_TORCH_TREE_H
#define TCONV_FORMATS_TORCH_TREE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"
#include "formats/torch/walk.h"

/* A backend's tree. */
bool torch_tree(struct tc_reader *reader, struct tc_buffer *text, const char **why,
                struct tc_error *error);

/* What a tree says of one of torch->taken, a dense tensor. */
struct torch_place {
    uint64_t storage; /* its number, and where the file has parts of storages, which of them */
    uint64_t part;
    uint64_t offset;
    uint64_t end;
    uint32_t base; /* 1 + the position of the tensor whose storage it shares; 0: none */
    uint8_t dtype;
    bool shared; /* it may share its storage */
    bool contiguous;
};

/* Finds for each tensor of torch->taken the one whose storage it shares, which covers all others
 * of that storage. NULL on failure; from malloc. */
struct torch_place *torch_tree_places(struct torch_walk *walk);

/* The members of a set, in the order of their representations in Python; NULL on failure. */
struct pickle_node **torch_tree_sorted(const struct pickle_node *set, struct tc_arena *arena,
                                       struct tc_error *error);

#endif
