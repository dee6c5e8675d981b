/*
 * How the items of a file are written where a tree nests them: which share a storage, and which
 * stand in the pickle. What a tree says to be a view is one only where its bytes are still those of
 * the other tensor: either may have been changed since.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/format/tree.h"
#include "core/io/chunk_pipe.h"
#include "core/io/spool.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/strided_view.h"
#include "core/tensor/table.h"
#include "formats/torch/pickler.h"
#include "formats/torch/write_tree.h"
#include "formats/zip/write.h"

#define STEP ((size_t)1 << 18)

/* Whether an item has its tensor's own bytes, all of them. */
static bool is_whole(const struct tc_item *item) {
    return !item->densify && !item->dequantise && item->dtype == item->tensor->dtype &&
           item->taken == item->tensor->nbytes;
}

static bool fetch_tensor(void *context, uint64_t offset, void *buffer, size_t length,
                         struct tc_error *error) {
    const struct tc_item *item = context;
    return tc_reader_read(item->reader, item->tensor, offset, buffer, length, error);
}

/* The view that strides in elements make of a tensor in C order. */
static void make_view(const struct tc_item *item, const struct tc_tree_tensor *tensor,
                      uint64_t storage, struct tc_view *view) {
    unsigned element = tc_dtype_bits(item->dtype) / 8;
    *view = (struct tc_view){.rank = item->rank,
                             .element = element,
                             .start = tensor->offset * element,
                             .storage = storage};
    for (unsigned i = 0; i < item->rank; i++) {
        view->shape[i] = item->shape[i];
        view->stride[i] = item->shape[i] > 1 ? tensor->stride[i] * element : 0;
    }
}

/* Compares an item's bytes with those that it would have as a view. */
static bool compare_view(const struct tc_item *item, const struct tc_item *base,
                         const struct tc_tree_tensor *tensor, bool *same, struct tc_error *error) {
    struct tc_view view;
    struct tc_view_reader reader = {0};
    unsigned char *bytes = malloc(2 * STEP);
    if (!bytes)
        return tc_fail_memory(error);
    make_view(item, tensor, base->nbytes, &view);
    bool ok = tc_view_reader_init(&reader, &view, fetch_tensor, (void *)base, error);
    *same = true;
    for (uint64_t at = 0; at < item->nbytes && ok && *same; at += STEP) {
        size_t step = item->nbytes - at < STEP ? item->nbytes - at : STEP;
        ok = tc_reader_read(item->reader, item->tensor, at, bytes, step, error) &&
             tc_view_reader_read(&reader, at, bytes + STEP, step, error);
        *same = ok && memcmp(bytes, bytes + STEP, step) == 0;
    }
    tc_view_reader_release(&reader);
    free(bytes);
    return ok;
}

/* Whether an item can share another's storage. Tensors that must be read from their start are not
 * compared: that would unpack one of them again and again. */
static bool is_view(const struct tc_tree *tree, const struct tc_item *item,
                    const struct tc_item *base, const struct tc_tree_tensor *tensor, bool *same,
                    struct tc_error *error) {
    *same =
        item->dtype == base->dtype && item->dtype != TC_F4 &&
        item->nbytes / (tc_dtype_bits(item->dtype) / 8) == tc_shape_count(item->shape, item->rank);
    if (!*same || tree->own)
        return true;
    *same =
        is_whole(item) && is_whole(base) && !item->tensor->sequential && !base->tensor->sequential;
    return !*same || compare_view(item, base, tensor, same, error);
}

/* Whether strides only put the axes into another order, without gaps. */
static bool is_permutation(const struct tc_item *item, const struct tc_tree_tensor *tensor) {
    uint64_t span = 1;
    if (!tensor->stride || tensor->base.bytes || item->dtype == TC_F4 ||
        !tc_tree_is_dense(item->shape, tensor->stride, item->rank))
        return false;
    for (unsigned i = 0; i < item->rank; i++)
        span += (item->shape[i] - 1) * tensor->stride[i];
    return span == tc_shape_count(item->shape, item->rank);
}

/* The tensors of a sparse or quantised one are found by their places in the table. */
struct plan_slots {
    struct tc_writer *writer;
    const struct tc_tree *tree;
    const struct tc_item *items;
    struct torch_slot *slots;
    const size_t *places;
    struct tc_error *error;
};

static size_t item_of(const struct plan_slots *plan, const struct tc_tree_tensor *tensor,
                      unsigned part) {
    return plan->places[tensor->position[part]] - 1;
}

static bool slot_sparse(struct plan_slots *plan, const struct tc_tree_tensor *tensor) {
    struct torch_group *group = tc_arena_alloc(&plan->writer->arena, sizeof *group, plan->error);
    if (!group)
        return false;
    group->layout = tensor->layout;
    group->parent = tensor->name;
    group->coalesced = tensor->layout->compressed ? NULL : &tensor->coalesced;
    for (unsigned i = 0; i < tensor->parts; i++) {
        group->parts[i] = item_of(plan, tensor, i);
        plan->slots[group->parts[i]].group = group;
    }
    plan->slots[group->parts[tensor->parts - 1]].silent = true;
    return true;
}

static bool slot_quantised(struct plan_slots *plan, const struct tc_tree_tensor *tensor) {
    struct torch_quantised *how = tc_arena_alloc(&plan->writer->arena, sizeof *how, plan->error);
    struct tc_buffer scheme = {0};
    tc_buffer_add_string(&scheme, "torch\n");
    tc_buffer_add_text(&scheme, tensor->scheme);
    char *copy = how && tc_buffer_ok(&scheme, plan->error)
                     ? tc_arena_copy(&plan->writer->arena, scheme.bytes, scheme.length, plan->error)
                     : NULL;
    tc_buffer_release(&scheme);
    if (!copy)
        return false;
    *how = (struct torch_quantised){.scheme = copy,
                                    .scale = tensor->scale,
                                    .zero_point = tensor->zero_point,
                                    .channels = tensor->channels};
    if (tensor->channels) {
        how->scales = item_of(plan, tensor, 1);
        how->zero_points = item_of(plan, tensor, 2);
    }
    plan->slots[item_of(plan, tensor, 0)].quantised = how;
    return true;
}

static bool slot_dense(struct plan_slots *plan, const struct tc_tree_tensor *tensor) {
    size_t index = item_of(plan, tensor, 0);
    const struct tc_item *item = &plan->items[index];
    struct torch_slot *slot = &plan->slots[index];
    if (!tensor->shares) {
        if (is_permutation(item, tensor) && !item->tied)
            slot->strided = tensor;
        return true;
    }
    bool same;
    size_t base = item_of(plan, tensor->shares, 0);
    if (!is_view(plan->tree, item, &plan->items[base], tensor, &same, plan->error))
        return false;
    if (same) {
        slot->view = tensor;
        slot->base = base;
        slot->silent = true;
    }
    return true;
}

static bool slot_node(struct plan_slots *plan, const struct tc_tree_node *node) {
    switch ((enum tc_tree_kind)node->kind) {
    case TC_TREE_TENSOR:
    case TC_TREE_PARAMETER:
        return slot_dense(plan, node->tensor);
    case TC_TREE_SPARSE:
        return slot_sparse(plan, node->tensor);
    case TC_TREE_QUANTISED:
        return slot_quantised(plan, node->tensor);
    case TC_TREE_ARRAY:
    case TC_TREE_SCALAR:
        plan->slots[item_of(plan, node->tensor, 0)].silent = true;
        return true;
    default:
        return true;
    }
}

bool torch_write_tree_slots(struct tc_writer *writer, struct torch_slot *slots, size_t **places,
                            struct tc_error *error) {
    const struct tc_plan *plan = writer->plan;
    const struct tc_table *table = &plan->readers[0]->table;
    struct plan_slots state = {.writer = writer,
                               .tree = plan->tree,
                               .items = plan->items + writer->file->first,
                               .slots = slots,
                               .error = error};
    *places = tc_arena_array(&writer->arena, table->count, sizeof **places, error);
    if (!*places)
        return false;
    for (size_t i = 0; i < writer->file->count; i++)
        (*places)[state.items[i].tensor - table->tensors] = i + 1;
    state.places = *places;
    for (size_t i = 0; i < plan->tree->count; i++)
        if (!slot_node(&state, &plan->tree->nodes[i]))
            return false;
    /* What others are views of lies in C order. */
    for (size_t i = 0; i < writer->file->count; i++)
        if (slots[i].view)
            slots[slots[i].base].strided = NULL;
    return true;
}

/* Strided storages */

static bool fetch_spool(void *context, uint64_t offset, void *buffer, size_t length,
                        struct tc_error *error) {
    return tc_spool_read(context, offset, buffer, length, error);
}

/* The axes in the order of their strides, the largest first: what lies one after the other in the
 * storage is the C order of that view. */
static void reorder(const struct tc_item *item, const struct tc_tree_tensor *strided,
                    struct tc_view *view) {
    unsigned element = tc_dtype_bits(item->dtype) / 8;
    uint64_t stride[TC_MAX_RANK] = {0};
    unsigned order[TC_MAX_RANK];
    uint64_t step = element;
    *view = (struct tc_view){.rank = item->rank, .element = element, .storage = item->nbytes};
    for (unsigned i = item->rank; i > 0; i--) {
        stride[i - 1] = step;
        step *= item->shape[i - 1];
    }
    for (unsigned i = 0; i < item->rank; i++) {
        unsigned at = i;
        for (; at > 0 && strided->stride[order[at - 1]] < strided->stride[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (unsigned i = 0; i < item->rank; i++) {
        view->shape[i] = item->shape[order[i]];
        view->stride[i] = item->shape[order[i]] > 1 ? stride[order[i]] : 0;
    }
}

static bool fill_spool(struct tc_spool *spool, struct tc_source *source, struct tc_error *error) {
    struct tc_chunk *chunk;
    enum tc_next next;
    bool ok = true;
    while ((next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK) {
        ok = ok && tc_spool_add(spool, chunk->bytes, chunk->length, error);
        tc_chunk_release(chunk);
    }
    return ok && next == TC_NEXT_END;
}

bool torch_write_strided(struct zip_writer *zip, const struct tc_item *item,
                         const struct tc_tree_tensor *strided, struct tc_source *source,
                         struct tc_error *error) {
    struct tc_spool spool = {0};
    struct tc_view view;
    struct tc_view_reader reader = {0};
    unsigned char *bytes = malloc(STEP);
    if (!bytes || !tc_spool_open(&spool, item->nbytes, error)) {
        bool ok = bytes ? false : tc_fail_memory(error);
        free(bytes);
        return ok;
    }
    reorder(item, strided, &view);
    bool ok = fill_spool(&spool, source, error) &&
              tc_view_reader_init(&reader, &view, fetch_spool, &spool, error);
    for (uint64_t at = 0; at < item->nbytes && ok; at += STEP) {
        size_t step = item->nbytes - at < STEP ? item->nbytes - at : STEP;
        ok = tc_view_reader_read(&reader, at, bytes, step, error) &&
             zip_member_write(zip, bytes, step, error);
    }
    tc_view_reader_release(&reader);
    tc_spool_release(&spool);
    free(bytes);
    return ok;
}
