/*
 * Which tensors of a checkpoint share a storage. Of those that do, one may cover all others: it is
 * in C order, starts first and ends last. The others are then views of it.
 */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"
#include "formats/torch/tree.h"
#include "formats/torch/walk.h"

static bool describe(struct torch_walk *walk, const struct pickle_node *node,
                     struct torch_place *place) {
    struct torch_described tensor;
    if (!torch_describe(walk, node, &tensor))
        return false;
    const struct torch_shape *shape = &tensor.shape;
    if (!tensor.dense || shape->conjugate || shape->negative || shape->dtype == TC_F4 ||
        shape->rank > TC_MAX_RANK)
        return true;
    uint64_t count = tc_shape_count(shape->size, shape->rank);
    place->storage = shape->storage;
    place->part = shape->base;
    place->offset = place->end = shape->offset;
    for (unsigned i = 0; i < shape->rank && count; i++)
        place->end += (shape->size[i] - 1) * shape->stride[i];
    place->end += 1;
    place->dtype = (uint8_t)shape->dtype;
    place->shared = count > 0;
    place->contiguous = torch_is_dense(shape);
    return true;
}

static int compare(const void *a, const void *b, void *context) {
    const struct torch_place *places = context;
    uint32_t i = *(const uint32_t *)a;
    uint32_t j = *(const uint32_t *)b;
    const struct torch_place *x = &places[i];
    const struct torch_place *y = &places[j];
    const uint64_t keys[][2] = {
        {!x->shared, !y->shared}, {x->storage, y->storage}, {x->part, y->part}, {i, j}};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (keys[k][0] != keys[k][1])
            return keys[k][0] < keys[k][1] ? -1 : 1;
    return 0;
}

/* Finds the one that covers the others of a storage, `order` being in that of the checkpoint. */
static void find_base(struct torch_place *places, const uint32_t *order, size_t count) {
    const struct torch_place *first = &places[order[0]];
    uint64_t low = first->offset;
    uint64_t high = first->end;
    for (size_t i = 1; i < count; i++) {
        const struct torch_place *place = &places[order[i]];
        low = place->offset < low ? place->offset : low;
        high = place->end > high ? place->end : high;
    }
    for (size_t b = 0; b < count; b++) {
        const struct torch_place *base = &places[order[b]];
        if (!base->contiguous || base->offset != low || base->end != high ||
            base->dtype != first->dtype)
            continue;
        for (size_t i = 0; i < count; i++)
            if (i != b && places[order[i]].dtype == base->dtype)
                places[order[i]].base = order[b] + 1;
        return;
    }
}

struct torch_place *torch_tree_places(struct torch_walk *walk) {
    const struct torch *torch = walk->torch;
    size_t count = torch->taken_count;
    struct torch_place *places = calloc(count + 1, sizeof *places);
    uint32_t *order = calloc(count + 1, sizeof *order);
    bool ok = (places && order) || tc_fail_memory(walk->error);
    for (size_t i = 0; i < count && ok; i++) {
        order[i] = (uint32_t)i;
        ok = describe(walk, torch->taken[i].node, &places[i]);
    }
    if (ok)
        qsort_r(order, count, sizeof *order, compare, places);
    for (size_t first = 0; first < count && ok;) {
        const struct torch_place *one = &places[order[first]];
        size_t end = first + 1;
        while (end < count && places[order[end]].shared && one->shared &&
               places[order[end]].storage == one->storage && places[order[end]].part == one->part)
            end++;
        if (end - first > 1)
            find_base(places, order + first, end - first);
        first = end;
    }
    free(order);
    if (!ok) {
        free(places);
        places = NULL;
    }
    return places;
}
