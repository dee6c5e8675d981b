/*
 * How the tensors of a ZeRO checkpoint are made of ranges of its files: layout.c has the parameters
 * of each stage, named.c frozen parameters, buffers and names for others, tensor.c what both are
 * made with.
 */
#ifndef TCONV_FORMATS_ZERO_LAYOUT_H
#define TCONV_FORMATS_ZERO_LAYOUT_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/pickle.h"
#include "formats/zero/zero.h"

/* Flat tensors that are read as if they were one, one behind the other. */
struct zero_flat {
    struct tc_reader *reader;
    uint32_t tensor;
    uint64_t first; /* element of the whole */
    uint64_t count;
};

struct zero_flats {
    struct zero_flat *list;
    size_t count;
    uint64_t total;
};

struct zero_layout {
    struct zero *zero;
    struct tc_error *error;
    const struct pickle_node **groups;  /* by rank: its list of flat tensors */
    const struct pickle_node *paddings; /* param_alignment_paddings of rank 0; NULL: none */
    struct zero_flats *flats;           /* by group in stages 1 and 2, by rank in stage 3 */
    size_t flat_count;
};

/* A parameter's name and shape. */
struct zero_parameter {
    struct tc_text name;
    uint64_t shape[TC_MAX_RANK];
    unsigned rank;
    uint64_t count;
};

/* Fails: the layout is not what it should be. */
bool zero_bad(struct zero_layout *layout, const char *what);
struct tc_arena *zero_arena(const struct zero_layout *layout);

/* Flat tensors */

/* Adds a tensor of a file to its reader's table, under its place among the others. */
bool zero_take_tensor(struct zero_layout *layout, struct tc_reader *reader,
                      struct pickle_node *node, uint32_t *position);
/* Finds each rank's list of flat tensors. */
bool zero_find_groups(struct zero_layout *layout);
/* Stages 1 and 2: each group over the ranks. */
bool zero_join_over_ranks(struct zero_layout *layout);
/* Stage 3: all groups of each rank. */
bool zero_join_over_groups(struct zero_layout *layout);
/* How many flat tensors the elements [from, from + count) are in. */
uint64_t zero_count_flats(const struct zero_flats *flats, uint64_t from, uint64_t count);

/* Tensors of the model */

bool zero_read_parameter(struct zero_layout *layout, const struct pickle_node *name,
                         const struct pickle_node *shape, struct zero_parameter *parameter);
/* A tensor without pieces yet; room for `most`. */
struct zero_tensor *zero_new_tensor(struct zero_layout *layout, enum tc_dtype stored,
                                    uint64_t count, uint64_t most);
/* Adds `count` elements of a stored tensor, from element `from` on, as those from `at` on. */
bool zero_add_piece(struct zero_layout *layout, struct zero_tensor *tensor, uint64_t at,
                    uint64_t count, struct tc_reader *reader, uint32_t stored, uint64_t from);
/* Adds elements [from, from + count) of joined flat tensors as those from `at` on. */
bool zero_add_range(struct zero_layout *layout, struct zero_tensor *tensor, uint64_t at,
                    const struct zero_flats *flats, uint64_t from, uint64_t count);
/* Adds the tensor that was made last to the table. */
bool zero_finish_tensor(struct zero_layout *layout, struct tc_text name, enum tc_dtype dtype,
                        const uint64_t *shape, unsigned rank);

/* What is not in the flat tensors */

bool zero_add_frozen(struct zero_layout *layout);
/* Those values of the module that are buffers, in the module's order. */
bool zero_add_buffers(struct zero_layout *layout);
/* Names in shared_params: {alias: name}. A name that there is not is passed over, as the script
 * does it. */
bool zero_add_shared(struct zero_layout *layout);

#endif
