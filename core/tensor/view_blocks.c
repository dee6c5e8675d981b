#include "core/tensor/view_blocks.h"

#include <math.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/tensor/permute.h"

/* A call to read or write takes as long as copying some hundred bytes: pieces are at least this
 * long, unless a block has few of them. */
#define LEAST_PIECE 256u
#define FEW_PIECES 256u
/* Rows of the scratch that start a multiple of this apart share places in a cache. */
#define CACHE_WAY 4096u
#define CACHE_LINE 64u

/* One block: where it starts and how far it goes along each axis. */
struct box {
    uint64_t first[TC_MAX_RANK];
    uint64_t extent[TC_MAX_RANK];
};

/* How a block is read: `runs` runs of `span` bytes. Axes up to `inner` in the blocks' order lie
 * within a run; `step` is an axis's stride in the scratch. */
struct reading {
    unsigned inner;
    uint64_t span;
    uint64_t runs;
    uint64_t pitch; /* bytes between runs in the scratch */
    uint64_t step[TC_MAX_RANK];
};

static void order_axes(struct tc_view_blocks *blocks) {
    const struct tc_view *view = &blocks->view;
    for (unsigned axis = 0; axis < view->rank; axis++) {
        unsigned place = axis;
        for (; place > 0 && view->stride[blocks->order[place - 1]] > view->stride[axis]; place--)
            blocks->order[place] = blocks->order[place - 1];
        blocks->order[place] = axis;
    }
}

/* Makes an axis of the blocks longer, as there is room for `room` times as many elements; false
 * where it is not whole, or no room is left. */
static bool grow(struct tc_view_blocks *blocks, unsigned axis, uint64_t *room) {
    uint64_t length = blocks->view.shape[axis], extent = blocks->extent[axis];
    uint64_t times = (length - 1) / extent + 1;
    bool whole = times <= *room;
    blocks->extent[axis] = whole ? length : extent * *room;
    *room /= whole ? times : *room;
    return whole && *room > 1;
}

/* Chooses how far a block goes: first along the axes that lie together in the storage, up to the
 * square root of its elements; then along those that lie together in the stream. */
static void choose_extents(struct tc_view_blocks *blocks, size_t most) {
    const struct tc_view *view = &blocks->view;
    uint64_t room = most / view->element;
    uint64_t half = (uint64_t)sqrt((double)room);
    for (unsigned axis = 0; axis < view->rank; axis++)
        blocks->extent[axis] = 1;
    uint64_t wanted = half;
    for (unsigned i = 0; i < view->rank; i++)
        if (view->stride[blocks->order[i]] && !grow(blocks, blocks->order[i], &wanted))
            break;
    uint64_t used = 1;
    for (unsigned axis = 0; axis < view->rank; axis++)
        used *= blocks->extent[axis]; /* at most `half`, and so no overflow */
    room /= used;
    bool more = room > 1;
    for (unsigned axis = view->rank; axis > 0 && more; axis--)
        more = grow(blocks, axis - 1, &room);
    more = room > 1;
    for (unsigned i = 0; i < view->rank && more; i++)
        more = grow(blocks, blocks->order[i], &room);
    /* All blocks along an axis are about as long: a short last one would be read in short runs. */
    for (unsigned axis = 0; axis < view->rank; axis++) {
        uint64_t along = (view->shape[axis] - 1) / blocks->extent[axis] + 1;
        blocks->extent[axis] = (view->shape[axis] - 1) / along + 1;
    }
}

/* Plans the reading of a box; false where its size overflows. */
static bool plan_reading(const struct tc_view_blocks *blocks, const uint64_t *extent,
                         struct reading *reading) {
    const struct tc_view *view = &blocks->view;
    uint64_t size;
    *reading = (struct reading){.span = view->element, .runs = 1};
    for (; reading->inner < view->rank; reading->inner++) {
        unsigned axis = blocks->order[reading->inner];
        uint64_t stride = view->stride[axis];
        /* A small gap is read along. */
        if (extent[axis] > 1 && stride > reading->span + reading->span / 4)
            break;
        reading->step[axis] = stride;
        reading->span += (extent[axis] - 1) * stride; /* within the storage */
    }
    reading->pitch = reading->span;
    if (reading->inner < view->rank && reading->span % CACHE_WAY == 0)
        reading->pitch += CACHE_LINE;
    size = reading->pitch;
    for (unsigned i = reading->inner; i < view->rank; i++) {
        reading->step[blocks->order[i]] = size;
        reading->runs *= extent[blocks->order[i]];
        if (!tc_mul(size, extent[blocks->order[i]], &size))
            return false;
    }
    return true;
}

/* Bytes of the pieces in which a box goes to the stream, and the axis that they end with. */
static uint64_t piece_of(const struct tc_view *view, const uint64_t *extent, unsigned *first) {
    uint64_t piece = view->element;
    unsigned axis = view->rank;
    while (axis > 0 && (axis == view->rank || extent[axis] == view->shape[axis]))
        piece *= extent[--axis];
    *first = axis;
    return piece;
}

bool tc_view_blocks_plan(struct tc_view_blocks *blocks, const struct tc_view *view, size_t most) {
    struct reading reading;
    unsigned first;
    uint64_t bytes = view->element;
    *blocks = (struct tc_view_blocks){.view = *view, .count = 1};
    tc_view_merge(&blocks->view);
    view = &blocks->view;
    for (unsigned axis = 0; axis < view->rank; axis++)
        if (view->shape[axis] == 0)
            return false;
    order_axes(blocks);
    choose_extents(blocks, most);
    for (unsigned axis = 0; axis < view->rank; axis++) {
        bytes *= blocks->extent[axis];
        blocks->count *= (view->shape[axis] - 1) / blocks->extent[axis] + 1;
    }
    if (!plan_reading(blocks, blocks->extent, &reading) || bytes > most)
        return false;
    uint64_t piece = piece_of(view, blocks->extent, &first);
    blocks->largest = bytes;
    /* Blocks at the ends may have no gap that is worth reading along, and then have more runs. */
    uint64_t scratch;
    if (!tc_mul(reading.runs, reading.pitch + CACHE_LINE, &scratch) ||
        scratch > most + (uint64_t)most / 2)
        return false;
    blocks->scratch = most + most / 2 + TC_PERMUTE_SLACK;
    return (reading.span >= LEAST_PIECE || reading.runs <= FEW_PIECES) &&
           (piece >= LEAST_PIECE || bytes / piece <= FEW_PIECES);
}

/* Blocks that follow each other lie beside each other in the stream. */
static void find_box(const struct tc_view_blocks *blocks, uint64_t number, struct box *box) {
    const struct tc_view *view = &blocks->view;
    for (unsigned axis = view->rank; axis > 0; axis--) {
        uint64_t extent = blocks->extent[axis - 1], length = view->shape[axis - 1];
        uint64_t along = (length - 1) / extent + 1;
        uint64_t first = number % along * extent;
        box->first[axis - 1] = first;
        box->extent[axis - 1] = length - first < extent ? length - first : extent;
        number /= along;
    }
}

/* Reads the runs of a box into the scratch. */
static bool fetch_box(const struct tc_view_blocks *blocks, const struct box *box,
                      const struct reading *reading, tc_fetch *fetch, void *context,
                      unsigned char *scratch, struct tc_error *error) {
    const struct tc_view *view = &blocks->view;
    uint64_t at[TC_MAX_RANK] = {0};
    uint64_t from = view->start;
    for (unsigned axis = 0; axis < view->rank; axis++)
        from += box->first[axis] * view->stride[axis];
    for (uint64_t run = 0; run < reading->runs; run++, scratch += reading->pitch) {
        if (!fetch(context, from, scratch, reading->span, error))
            return false;
        for (unsigned i = reading->inner; i < view->rank; i++) {
            unsigned axis = blocks->order[i];
            from += view->stride[axis];
            if (++at[axis] < box->extent[axis])
                break;
            from -= view->stride[axis] * box->extent[axis];
            at[axis] = 0;
        }
    }
    return true;
}

bool tc_view_blocks_read(const struct tc_view_blocks *blocks, uint64_t number, tc_fetch *fetch,
                         void *context, unsigned char *scratch, unsigned char *bytes,
                         struct tc_error *error) {
    const struct tc_view *view = &blocks->view;
    struct box box;
    struct reading reading;
    struct tc_axis axes[TC_MAX_RANK];
    find_box(blocks, number, &box);
    if (!plan_reading(blocks, box.extent, &reading) ||
        reading.runs * reading.pitch > blocks->scratch - TC_PERMUTE_SLACK)
        return tc_fail(error, TC_INTERNAL, "view-block", "a block of a view is too large");
    if (!fetch_box(blocks, &box, &reading, fetch, context, scratch, error))
        return false;
    uint64_t to = view->element;
    for (unsigned axis = view->rank; axis > 0; axis--) {
        axes[axis - 1] = (struct tc_axis){box.extent[axis - 1], reading.step[axis - 1], to};
        to *= box.extent[axis - 1];
    }
    tc_permute(axes, view->rank, view->element, scratch, bytes);
    return true;
}

uint64_t tc_view_blocks_size(const struct tc_view_blocks *blocks, uint64_t number) {
    uint64_t bytes = blocks->view.element;
    struct box box;
    find_box(blocks, number, &box);
    for (unsigned axis = 0; axis < blocks->view.rank; axis++)
        bytes *= box.extent[axis];
    return bytes;
}

bool tc_view_blocks_put(const struct tc_view_blocks *blocks, uint64_t number,
                        const unsigned char *bytes, tc_view_put *put, void *context,
                        struct tc_error *error) {
    const struct tc_view *view = &blocks->view;
    uint64_t at[TC_MAX_RANK] = {0};
    uint64_t step[TC_MAX_RANK];
    uint64_t offset = 0, stride = view->element;
    struct box box;
    unsigned first;
    find_box(blocks, number, &box);
    for (unsigned axis = view->rank; axis > 0; axis--) {
        step[axis - 1] = stride;
        offset += box.first[axis - 1] * stride;
        stride *= view->shape[axis - 1];
    }
    size_t piece = piece_of(view, box.extent, &first);
    for (;;) {
        if (!put(context, offset, bytes, piece, error))
            return false;
        bytes += piece;
        unsigned axis = first;
        for (; axis > 0; axis--) {
            offset += step[axis - 1];
            if (++at[axis - 1] < box.extent[axis - 1])
                break;
            offset -= step[axis - 1] * box.extent[axis - 1];
            at[axis - 1] = 0;
        }
        if (axis == 0)
            return true;
    }
}
