#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/pickle/pickle.h"
#include "formats/pieces.h"
#include "formats/torch/object.h"
#include "formats/torch/torch.h"
#include "formats/zero/layout.h"
#include "formats/zero/zero.h"

bool zero_bad(struct zero_layout *layout, const char *what) {
    return tc_fail(layout->error, TC_INVALID, "zero-layout", "%s", what);
}

struct tc_arena *zero_arena(const struct zero_layout *layout) {
    return &layout->zero->reader->arena;
}

/* Flat tensors */

/* Adds a tensor of a file to its reader's table, under its place among the others. */
bool zero_take_tensor(struct zero_layout *layout, struct tc_reader *reader,
                      struct pickle_node *node, uint32_t *position) {
    struct tc_buffer name = {0};
    tc_buffer_addf(&name, "%zu", reader->table.count);
    char *copy = tc_buffer_ok(&name, layout->error)
                     ? tc_arena_copy(&reader->arena, name.bytes, name.length, layout->error)
                     : NULL;
    struct tc_text text = {copy, name.length};
    tc_buffer_release(&name);
    *position = (uint32_t)reader->table.count;
    return copy && torch_object_add(reader, text, node, layout->error);
}

static bool add_flat(struct zero_layout *layout, struct zero_flats *flats, struct tc_reader *reader,
                     struct pickle_node *node) {
    uint32_t position;
    if (!zero_take_tensor(layout, reader, node, &position))
        return false;
    const struct tc_tensor *tensor = &reader->table.tensors[position];
    if (tensor->dtype != TC_F32 || tensor->rank != 1)
        return zero_bad(layout, "a group of parameters is no flat tensor of F32");
    flats->list[flats->count++] = (struct zero_flat){
        .reader = reader, .tensor = position, .first = flats->total, .count = tensor->shape[0]};
    return tc_add(flats->total, tensor->shape[0], &flats->total) ||
           zero_bad(layout, "the groups of parameters overflow 64 bits");
}

/* Finds each rank's list of flat tensors. */
bool zero_find_groups(struct zero_layout *layout) {
    const struct zero_files *files = &layout->zero->optimiser;
    const char *key =
        layout->zero->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    layout->groups =
        tc_arena_array(zero_arena(layout), files->count, sizeof *layout->groups, layout->error);
    for (size_t rank = 0; layout->groups && rank < files->count; rank++) {
        const struct pickle_node *state =
            torch_find_key(files->list[rank].root, "optimizer_state_dict");
        layout->groups[rank] = torch_find_key(state, key);
        if (!pickle_is(layout->groups[rank], PICKLE_LIST))
            return zero_bad(layout, "a rank's file has no groups of parameters") ||
                   tc_error_in_file(layout->error, files->list[rank].reader->input->path);
        if (rank == 0)
            layout->paddings = torch_find_key(state, "param_alignment_paddings");
    }
    if (layout->paddings && layout->paddings->kind == PICKLE_NONE)
        layout->paddings = NULL;
    return layout->groups != NULL;
}

/* Stages 1 and 2: each group over the ranks. */
bool zero_join_over_ranks(struct zero_layout *layout) {
    struct zero *zero = layout->zero;
    layout->flat_count = layout->groups[0]->count;
    layout->flats = tc_arena_array(zero_arena(layout), layout->flat_count, sizeof *layout->flats,
                                   layout->error);
    for (size_t g = 0; layout->flats && g < layout->flat_count; g++) {
        struct zero_flats *flats = &layout->flats[g];
        flats->list = tc_arena_array(zero_arena(layout), zero->optimiser.count, sizeof *flats->list,
                                     layout->error);
        if (!flats->list)
            return false;
        for (size_t rank = 0; rank < zero->optimiser.count; rank++) {
            const struct pickle_node *groups = layout->groups[rank];
            struct tc_reader *reader = zero->optimiser.list[rank].reader;
            if (groups->count != layout->flat_count)
                return zero_bad(layout, "ranks have different numbers of groups");
            if (!add_flat(layout, flats, reader, groups->items[g]))
                return tc_error_in_file(layout->error, reader->input->path);
        }
    }
    return layout->flats != NULL;
}

/* Stage 3: all groups of each rank. */
bool zero_join_over_groups(struct zero_layout *layout) {
    struct zero *zero = layout->zero;
    layout->flat_count = zero->optimiser.count;
    layout->flats = tc_arena_array(zero_arena(layout), layout->flat_count, sizeof *layout->flats,
                                   layout->error);
    for (size_t rank = 0; layout->flats && rank < layout->flat_count; rank++) {
        const struct pickle_node *groups = layout->groups[rank];
        struct tc_reader *reader = zero->optimiser.list[rank].reader;
        struct zero_flats *flats = &layout->flats[rank];
        flats->list =
            tc_arena_array(zero_arena(layout), groups->count, sizeof *flats->list, layout->error);
        if (!flats->list)
            return false;
        for (size_t g = 0; g < groups->count; g++)
            if (!add_flat(layout, flats, reader, groups->items[g]))
                return tc_error_in_file(layout->error, reader->input->path);
    }
    return layout->flats != NULL;
}

/* Tensors of the model */

/* A tensor without pieces yet; room for `most`. */
struct zero_tensor *zero_new_tensor(struct zero_layout *layout, enum tc_dtype stored,
                                    uint64_t count, uint64_t most) {
    struct zero *zero = layout->zero;
    uint64_t limit = zero->options.limits.tensors;
    if (zero->count == zero->capacity) {
        size_t capacity = zero->capacity ? 2 * zero->capacity : 64;
        struct zero_tensor *grown = reallocarray(zero->tensors, capacity, sizeof *grown);
        if (!grown) {
            tc_fail_memory(layout->error);
            return NULL;
        }
        zero->tensors = grown;
        zero->capacity = capacity;
    }
    if (!tc_add(zero->pieces, most, &zero->pieces) || zero->pieces > limit) {
        tc_fail(layout->error, TC_UNSAFE, "tensor-limit", "more than %llu pieces of tensors",
                (unsigned long long)limit);
        tc_error_hint(layout->error, "raise the limit with --max-tensors if you trust this file");
        return NULL;
    }
    struct zero_tensor *tensor = &zero->tensors[zero->count];
    *tensor = (struct zero_tensor){.count = count, .stored = stored};
    tensor->pieces.rank = 1;
    tensor->pieces.element = tc_dtype_bits(stored) / 8;
    tensor->pieces.list =
        tc_arena_array(zero_arena(layout), most, sizeof *tensor->pieces.list, layout->error);
    tensor->sources =
        tc_arena_array(zero_arena(layout), most, sizeof *tensor->sources, layout->error);
    if (!tensor->pieces.list || !tensor->sources)
        return NULL;
    zero->count++;
    return tensor;
}

/* Adds `count` elements of a stored tensor, from element `from` on, as those from `at` on. */
bool zero_add_piece(struct zero_layout *layout, struct zero_tensor *tensor, uint64_t at,
                    uint64_t count, struct tc_reader *reader, uint32_t stored, uint64_t from) {
    uint64_t *box = tc_arena_array(zero_arena(layout), 2, sizeof *box, layout->error);
    if (!box)
        return false;
    size_t i = tensor->pieces.count++;
    box[0] = at;
    box[1] = count;
    tensor->pieces.list[i] = (struct piece){.start = box, .size = box + 1, .source = (uint32_t)i};
    tensor->sources[i] = (struct zero_source){
        .reader = reader, .tensor = stored, .start = from * tensor->pieces.element};
    return true;
}

/* The flat tensor that has an element: the last that begins at it or before, and is not empty.
 */
static size_t find_flat(const struct zero_flats *flats, uint64_t element) {
    size_t low = 0;
    size_t high = flats->count;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (flats->list[middle].first <= element)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* How many flat tensors the elements [from, from + count) are in. */
uint64_t zero_count_flats(const struct zero_flats *flats, uint64_t from, uint64_t count) {
    return count ? find_flat(flats, from + count - 1) - find_flat(flats, from) + 1 : 0;
}

/* Adds elements [from, from + count) of joined flat tensors as those from `at` on. */
bool zero_add_range(struct zero_layout *layout, struct zero_tensor *tensor, uint64_t at,
                    const struct zero_flats *flats, uint64_t from, uint64_t count) {
    for (size_t i = count ? find_flat(flats, from) : 0; count; i++) {
        const struct zero_flat *flat = &flats->list[i];
        uint64_t skip = from - flat->first;
        uint64_t here = flat->count - skip < count ? flat->count - skip : count;
        if (here && !zero_add_piece(layout, tensor, at, here, flat->reader, flat->tensor, skip))
            return false;
        at += here;
        from += here;
        count -= here;
    }
    return true;
}

/* Adds the tensor that was made last to the table. */
bool zero_finish_tensor(struct zero_layout *layout, struct tc_text name, enum tc_dtype dtype,
                        const uint64_t *shape, unsigned rank) {
    struct zero *zero = layout->zero;
    struct zero_tensor *made = &zero->tensors[zero->count - 1];
    struct tc_tensor tensor = {.offset = zero->count - 1,
                               .cookie = (uint32_t)(zero->count - 1),
                               .dtype = (uint8_t)dtype,
                               .rank = (uint8_t)rank};
    uint64_t count;
    uint64_t *own = tc_arena_array(zero_arena(layout), rank + 1, sizeof *own, layout->error);
    char *copy = tc_arena_copy(zero_arena(layout), name.bytes, name.length, layout->error);
    if (!own || !copy ||
        !tc_shape_measure(dtype, shape, rank, &count, &tensor.nbytes, layout->error))
        return false;
    if (rank)
        memcpy(own, shape, rank * sizeof *own);
    own[rank] = count;
    made->pieces.shape = own + rank;
    tensor.shape = own;
    tensor.name = (struct tc_text){copy, name.length};
    if (!pieces_settle(&made->pieces, layout->error))
        return false;
    for (size_t i = 0; i < made->pieces.count; i++) {
        const struct zero_source *source = &made->sources[i];
        tensor.sequential |= source->reader->table.tensors[source->tensor].sequential;
    }
    return tc_table_add(&zero->reader->table, &tensor, layout->error);
}

bool zero_read_parameter(struct zero_layout *layout, const struct pickle_node *name,
                         const struct pickle_node *shape, struct zero_parameter *parameter) {
    uint64_t nbytes;
    if (!pickle_is(name, PICKLE_TEXT))
        return zero_bad(layout, "a parameter's name is no text");
    parameter->name = pickle_text(name);
    bool sizes = torch_sizes(shape, parameter->shape, &parameter->rank);
    if (!sizes || parameter->rank > TC_MAX_RANK)
        return zero_bad(layout, "a parameter has no shape, or a bad one") ||
               tc_error_in_tensor(layout->error, name->text, name->length);
    return tc_shape_measure(TC_F32, parameter->shape, parameter->rank, &parameter->count, &nbytes,
                            layout->error) ||
           tc_error_in_tensor(layout->error, name->text, name->length);
}
