/*
 * Which ranges of the files each tensor is made of, as DeepSpeed's own script has it.
 *
 * Stages 1 and 2: single_partition_of_fp32_groups is a list of flat tensors, one a group of
 * parameters. Those of a group are joined over the ranks; its parameters lie in that one behind the
 * other, in the order of param_shapes, each with its padding behind it. What is left over at the
 * end is less than what rounding up to a multiple of twice the ranks explains.
 *
 * Stage 3: the flat tensors of a rank (fp32_flat_groups) are joined. Each parameter takes equally
 * many numbers of every rank, from the same place on; what is behind its last element is padding.
 *
 * Frozen parameters and buffers are in the model file; with stage 3 frozen ones are cut as the
 * others are. Names in shared_params stand for other parameters.
 */

#include "formats/zero/layout.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "formats/torch/object.h"
#include "formats/torch/torch.h"

/* The i-th group of parameters: a dict of names and shapes. Older files have one dict alone. */
static const struct pickle_node *shapes_of(const struct pickle_node *shapes, size_t i) {
    const struct pickle_node *group =
        pickle_is(shapes, PICKLE_DICT) ? (i ? NULL : shapes) : pickle_item(shapes, i);
    return pickle_is(group, PICKLE_DICT) ? group : NULL;
}

static size_t count_groups(const struct pickle_node *shapes) {
    return pickle_is(shapes, PICKLE_DICT) ? 1 : pickle_is(shapes, PICKLE_LIST) ? shapes->count : 0;
}

/* The padding behind a parameter: param_alignment_paddings[group][i] of rank 0. */
static bool read_padding(struct zero_layout *layout, size_t group, size_t i, uint64_t *padding) {
    const struct pickle_node *node = pickle_item(pickle_item(layout->paddings, group), i);
    *padding = 0;
    if (!layout->paddings)
        return true;
    if (!pickle_is(node, PICKLE_INT) || node->integer < 0)
        return zero_bad(layout, "the padding behind a parameter is no number");
    *padding = (uint64_t)node->integer;
    return true;
}

/* Adds a parameter that lies at this element of its group. */
static bool add_whole(struct zero_layout *layout, const struct zero_flats *flats, uint64_t at,
                      const struct zero_parameter *parameter) {
    if (!tc_range_within(at, parameter->count, flats->total))
        return zero_bad(layout, "its group has fewer numbers than its parameters");
    struct zero_tensor *tensor = zero_new_tensor(layout, TC_F32, parameter->count,
                                                 zero_count_flats(flats, at, parameter->count));
    return tensor && zero_add_range(layout, tensor, 0, flats, at, parameter->count) &&
           zero_finish_tensor(layout, parameter->name, TC_F32, parameter->shape, parameter->rank);
}

static bool add_group(struct zero_layout *layout, const struct pickle_node *shapes, size_t group) {
    const struct zero_flats *flats = &layout->flats[group];
    const struct pickle_node *paddings = pickle_item(layout->paddings, group);
    uint64_t multiple = 2 * (uint64_t)layout->zero->optimiser.count;
    uint64_t at = 0;
    if (paddings && paddings->kind == PICKLE_LIST && paddings->count != shapes->count / 2)
        return zero_bad(layout, "a group has another number of paddings than of parameters");
    for (size_t i = 0; i + 1 < shapes->count; i += 2) {
        struct zero_parameter parameter;
        uint64_t padding;
        if (!zero_read_parameter(layout, shapes->items[i], shapes->items[i + 1], &parameter))
            return false;
        if (!read_padding(layout, group, i / 2, &padding) ||
            !add_whole(layout, flats, at, &parameter))
            return tc_error_in_tensor(layout->error, parameter.name.bytes, parameter.name.length);
        at += parameter.count;
        if (!tc_add(at, padding, &at))
            return zero_bad(layout, "the paddings of parameters overflow 64 bits");
    }
    uint64_t used = at / multiple + (at % multiple != 0);
    uint64_t there = flats->total / multiple + (flats->total % multiple != 0);
    if (used == there)
        return true;
    return tc_fail(layout->error, TC_INVALID, "zero-layout",
                   "group %zu has %llu numbers, its parameters and their paddings %llu", group,
                   (unsigned long long)flats->total, (unsigned long long)at);
}

/* Stages 1 and 2. */
static bool add_groups(struct zero_layout *layout, const struct pickle_node *shapes) {
    if (!zero_join_over_ranks(layout))
        return false;
    if (count_groups(shapes) != layout->flat_count)
        return zero_bad(layout,
                        "there are as many groups of parameters as of numbers, or should be");
    for (size_t g = 0; g < layout->flat_count; g++) {
        const struct pickle_node *group = shapes_of(shapes, g);
        if (!group || !pickle_settle((struct pickle_node *)(uintptr_t)group, zero_arena(layout),
                                     layout->error))
            return group ? false : zero_bad(layout, "param_shapes holds no dict");
        if (!add_group(layout, group, g))
            return false;
    }
    return true;
}

/* Adds a parameter of which each rank has `each` numbers from this one on. */
static bool add_shared_out(struct zero_layout *layout, uint64_t at, uint64_t each,
                           const struct zero_parameter *parameter) {
    uint64_t most = 0;
    for (size_t rank = 0; rank < layout->flat_count; rank++) {
        uint64_t before = each * rank;
        uint64_t left = parameter->count > before ? parameter->count - before : 0;
        if (!tc_range_within(at, each, layout->flats[rank].total))
            return zero_bad(layout, "a rank has fewer numbers than its share of the parameters");
        most += zero_count_flats(&layout->flats[rank], at, left < each ? left : each);
    }
    struct zero_tensor *tensor = zero_new_tensor(layout, TC_F32, parameter->count, most);
    for (size_t rank = 0; tensor && rank < layout->flat_count; rank++) {
        uint64_t before = each * rank;
        uint64_t left = parameter->count > before ? parameter->count - before : 0;
        if (!zero_add_range(layout, tensor, before, &layout->flats[rank], at,
                            left < each ? left : each))
            return false;
    }
    return tensor &&
           zero_finish_tensor(layout, parameter->name, TC_F32, parameter->shape, parameter->rank);
}

/* The share of a rank, rounded up; it can't overflow, since the count is one of F32 in memory. */
static uint64_t share_of(uint64_t count, size_t ranks) {
    return count / ranks + (count % ranks != 0);
}

static bool add_in_stage3(struct zero_layout *layout, const struct pickle_node *shapes,
                          uint64_t *at) {
    for (size_t i = 0; i + 1 < shapes->count; i += 2) {
        struct zero_parameter parameter;
        if (!zero_read_parameter(layout, shapes->items[i], shapes->items[i + 1], &parameter))
            return false;
        uint64_t each = share_of(parameter.count, layout->flat_count);
        if (!add_shared_out(layout, *at, each, &parameter))
            return tc_error_in_tensor(layout->error, parameter.name.bytes, parameter.name.length);
        *at += each;
    }
    return true;
}

/* Stage 3. */
static bool add_shares(struct zero_layout *layout, const struct pickle_node *shapes) {
    uint64_t at = 0;
    size_t groups = count_groups(shapes);
    if (!zero_join_over_groups(layout))
        return false;
    if (!groups)
        return zero_bad(layout, "the model file has no param_shapes");
    for (size_t g = 0; g < groups; g++) {
        const struct pickle_node *group = shapes_of(shapes, g);
        if (!group || !pickle_settle((struct pickle_node *)(uintptr_t)group, zero_arena(layout),
                                     layout->error))
            return group ? false : zero_bad(layout, "param_shapes holds no dict");
        if (!add_in_stage3(layout, group, &at))
            return false;
    }
    for (size_t rank = 0; rank < layout->flat_count; rank++)
        if (layout->flats[rank].total != at)
            return tc_fail(layout->error, TC_INVALID, "zero-layout",
                           "rank %zu has %llu numbers, its share of the parameters %llu", rank,
                           (unsigned long long)layout->flats[rank].total, (unsigned long long)at);
    return true;
}

/* Layers of experts that stage 3 cut have rules of their own: a list of dicts, of which one says
 * so. */
static bool check_kind(struct zero_layout *layout) {
    for (size_t f = 0; f < layout->zero->model.count; f++) {
        const struct pickle_node *root = layout->zero->model.list[f].root;
        const struct pickle_node *layers = torch_find_key(root, "ds_autoep_layers");
        layers = layers ? layers : torch_find_key(root, "autoep_layers");
        for (size_t i = 0; pickle_is(layers, PICKLE_LIST) && i < layers->count; i++) {
            const struct pickle_node *kind = torch_find_key(layers->items[i], "checkpoint_format");
            if (pickle_is(kind, PICKLE_TEXT) &&
                tc_text_equal(pickle_text(kind), TC_TEXT("zero3_partitioned")))
                return tc_fail(layout->error, TC_UNSUPPORTED, "zero-parallel",
                               "layers of experts that are cut by ranks (ds_autoep_layers) are not "
                               "supported");
        }
    }
    return true;
}

bool zero_make_table(struct zero *zero, struct tc_error *error) {
    struct zero_layout layout = {.zero = zero, .error = error};
    struct pickle_node *shapes = torch_find_key(zero->model.list[0].root, "param_shapes");
    bool ok = check_kind(&layout) && zero_find_groups(&layout) && zero_add_buffers(&layout) &&
              zero_add_frozen(&layout) &&
              (zero->stage == 3 ? add_shares(&layout, shapes) : add_groups(&layout, shapes)) &&
              zero_add_shared(&layout);
    for (size_t i = 0; ok && i < zero->optimiser.count; i++)
        ok = torch_object_finish(zero->optimiser.list[i].reader, error);
    for (size_t i = 0; ok && i < zero->model.count; i++)
        ok = torch_object_finish(zero->model.list[i].reader, error);
    return ok || tc_error_in_file(error, zero->model.list[0].reader->input->path);
}
