#include "core/tensor/strided_view.h"

#include <stdlib.h>
#include <string.h>

/* A tile's memory. The larger, the longer the runs that are read: 16 MiB of
 * a matrix with 16,384 columns of F32 gives runs of 1 KiB. */
#define WINDOW_BYTES ((size_t)16 << 20)
#define RUN_BYTES ((size_t)1 << 20)
/* Short runs that follow each other closely are read this much ahead: a gap of
 * so many bytes is copied in the time that a read of its own takes. */
#define AHEAD_BYTES ((size_t)1 << 18)
#define SMALL_GAP ((size_t)1 << 13)
#define SHORT_RUN ((size_t)1 << 14)
/* A storage up to this size is kept in memory as a whole. */
#define KEPT_BYTES ((size_t)4 << 20)
/* An innermost loop of fewer rounds is not worth its own call: several loops
 * make a block of up to so many elements, that lie within so many bytes. */
#define LONG_LOOP 64u
/* How many reads a view may take, beside those that follow each other. */
#define FREE_SCATTERED (UINT64_C(1) << 21)
#define BYTES_PER_SCATTERED 32u
#define READS_PER_AHEAD 16u /* what reading ahead costs */
#define MOST_HOPS 4096u
#define BLOCK_BYTES ((size_t)1 << 16)

static uint64_t trailing_bytes(const struct tc_view *view, unsigned axis) {
    uint64_t bytes = view->element;
    for (unsigned i = axis + 1; i < view->rank; i++)
        bytes *= view->shape[i]; /* no overflow: the whole was measured */
    return bytes;
}

/* Fewer axes that say the same: one of length 1 says nothing, and two are one
 * where a step of the outer is what all steps of the inner make together. A
 * view of rank 64 may have a plain run of bytes inside. */
static void merge_axes(struct tc_view *view) {
    unsigned rank = 0;
    for (unsigned i = 0; i < view->rank; i++) {
        uint64_t length = view->shape[i];
        uint64_t stride = view->stride[i];
        if (length == 1)
            continue;
        /* The product passes 2^64 where an axis has no elements at all. */
        uint64_t steps;
        bool joins = rank > 0 && !__builtin_mul_overflow(length, stride, &steps) &&
                     view->stride[rank - 1] == steps;
        if (joins) {
            view->shape[rank - 1] *= length;
            view->stride[rank - 1] = stride;
        } else {
            view->shape[rank] = length;
            view->stride[rank++] = stride;
        }
    }
    if (rank == 0) {
        view->shape[0] = 1;
        view->stride[0] = view->element;
        rank = 1;
    }
    view->rank = rank;
}

bool tc_view_reader_init(struct tc_view_reader *gather, const struct tc_view *view, tc_fetch *fetch,
                         void *context, struct tc_error *error) {
    *gather = (struct tc_view_reader){.view = *view, .fetch = fetch, .context = context};
    merge_axes(&gather->view);
    while (gather->axis + 1 < gather->view.rank &&
           trailing_bytes(&gather->view, gather->axis) > WINDOW_BYTES)
        gather->axis++;
    uint64_t row = trailing_bytes(&gather->view, gather->axis);
    gather->rows = row ? WINDOW_BYTES / row : 1;
    if (gather->rows == 0)
        gather->rows = 1;
    if (gather->rows > gather->view.shape[gather->axis])
        gather->rows = gather->view.shape[gather->axis];
    uint64_t window = row * gather->rows;
    /* A small storage is read once and kept: its view may show it many times. */
    gather->ahead_most = view->storage <= KEPT_BYTES ? view->storage : AHEAD_BYTES;
    gather->window = malloc(window ? window : 1);
    gather->run = malloc(RUN_BYTES);
    gather->ahead = malloc(gather->ahead_most ? gather->ahead_most : 1);
    gather->hops = malloc(MOST_HOPS * sizeof *gather->hops);
    return gather->window && gather->run && gather->ahead && gather->hops ? true
                                                                          : tc_fail_memory(error);
}

void tc_view_reader_release(struct tc_view_reader *gather) {
    free(gather->window);
    free(gather->run);
    free(gather->ahead);
    free(gather->hops);
    *gather = (struct tc_view_reader){0};
}

/* With a constant size a copy is a move or two, not a call. */
static inline void scatter_of(unsigned char *to, uint64_t to_step, const unsigned char *from,
                              uint64_t from_step, uint64_t count, size_t element) {
    for (uint64_t i = 0; i < count; i++)
        memcpy(to + i * to_step, from + i * from_step, element);
}

static void scatter(unsigned char *to, uint64_t to_step, const unsigned char *from,
                    uint64_t from_step, uint64_t count, unsigned element) {
    switch (element) {
    case 1:
        scatter_of(to, to_step, from, from_step, count, 1);
        break;
    case 2:
        scatter_of(to, to_step, from, from_step, count, 2);
        break;
    case 4:
        scatter_of(to, to_step, from, from_step, count, 4);
        break;
    case 8:
        scatter_of(to, to_step, from, from_step, count, 8);
        break;
    default:
        scatter_of(to, to_step, from, from_step, count, element);
    }
}

/* Whether all of the storage is in memory, once it was looked at. */
static bool is_kept(const struct tc_view_reader *gather) {
    return gather->view.storage <= gather->ahead_most;
}

static bool read_ahead(struct tc_view_reader *gather, uint64_t offset, struct tc_error *error) {
    bool whole = is_kept(gather);
    uint64_t from = whole ? 0 : offset;
    uint64_t left = gather->view.storage - from;
    size_t size = left < gather->ahead_most ? left : gather->ahead_most;
    gather->ahead_size = 0;
    if (!gather->fetch(gather->context, from, gather->ahead, size, error))
        return false;
    gather->ahead_at = from;
    gather->ahead_size = size;
    return true;
}

/* Counts a fetch that neither follows the last one nor was read ahead. Where
 * nearly every element takes one, as only overlapping views of many short and
 * wide axes can ask for, the time would not follow the bytes any more. */
static bool count_scattered(struct tc_view_reader *gather, unsigned reads, struct tc_error *error) {
    uint64_t allowed = FREE_SCATTERED + gather->made / BYTES_PER_SCATTERED +
                       gather->view.storage / BYTES_PER_SCATTERED;
    gather->scattered += reads;
    if (gather->scattered <= allowed)
        return true;
    tc_fail(error, TC_UNSAFE, "view-limit",
            "the view's elements lie so scattered that each takes a read of its own");
    return tc_error_hint(error, "this limit is fixed: save the tensor as contiguous first");
}

/* Bytes of the storage, at most RUN_BYTES, until the next call. */
static const unsigned char *look(struct tc_view_reader *gather, uint64_t offset, size_t length,
                                 struct tc_error *error) {
    bool whole = is_kept(gather);
    bool follows = offset >= gather->fetched_to && offset - gather->fetched_to <= SMALL_GAP;
    gather->fetched_to = offset + length;
    bool held =
        offset >= gather->ahead_at && offset - gather->ahead_at + length <= gather->ahead_size;
    if (!held && (whole || (follows && length <= SHORT_RUN))) {
        if (!count_scattered(gather, READS_PER_AHEAD, error) || !read_ahead(gather, offset, error))
            return NULL;
        held = true;
    }
    if (held)
        return gather->ahead + (offset - gather->ahead_at);
    if (!count_scattered(gather, 1, error))
        return NULL;
    return gather->fetch(gather->context, offset, gather->run, length, error) ? gather->run : NULL;
}

/* `count` elements, `from_step` apart in the storage, to places `to_step`
 * apart in the window. */
static bool copy_run(struct tc_view_reader *gather, unsigned char *to, uint64_t to_step,
                     uint64_t from, uint64_t from_step, uint64_t count, struct tc_error *error) {
    unsigned element = gather->view.element;
    const unsigned char *bytes;
    if (from_step == element && to_step == element && count * element > SHORT_RUN)
        return gather->fetch(gather->context, from, to, count * element, error);
    while (count) {
        /* Elements far apart are fetched one by one rather than with what
         * lies between them. */
        uint64_t fit = from_step == 0     ? count
                       : from_step > 4096 ? 1
                                          : (RUN_BYTES - element) / from_step + 1;
        uint64_t step = count < fit ? count : fit;
        if (!(bytes = look(gather, from, (step - 1) * from_step + element, error)))
            return false;
        if (from_step == element && to_step == element)
            memcpy(to, bytes, step * element);
        else
            scatter(to, to_step, bytes, from_step, step, element);
        to += step * to_step;
        from += step * from_step;
        count -= step;
    }
    return true;
}

/* All of a small block of elements that lie close together in the storage. */
static inline void hop_of(unsigned char *to, const unsigned char *from, const struct tc_hop *hops,
                          size_t count, size_t element) {
    for (size_t i = 0; i < count; i++)
        memcpy(to + hops[i].to, from + hops[i].from, element);
}

static bool copy_block(struct tc_view_reader *gather, unsigned char *to, uint64_t from,
                       struct tc_error *error) {
    unsigned element = gather->view.element;
    const struct tc_hop *hops = gather->hops;
    size_t count = gather->hop_count;
    const unsigned char *bytes = look(gather, from, gather->hop_span, error);
    if (!bytes)
        return false;
    switch (element) {
    case 1:
        hop_of(to, bytes, hops, count, 1);
        break;
    case 2:
        hop_of(to, bytes, hops, count, 2);
        break;
    case 4:
        hop_of(to, bytes, hops, count, 4);
        break;
    case 8:
        hop_of(to, bytes, hops, count, 8);
        break;
    default:
        hop_of(to, bytes, hops, count, element);
    }
    return true;
}

struct loop {
    uint64_t count;
    uint64_t from; /* bytes between neighbours in the storage */
    uint64_t to;   /* and in the window */
    uint64_t at;
};

/* What a loop jumps over in a round. Where the storage is in memory, both sides
 * count, so that neither is touched in a new place with every element. */
static uint64_t hop_length(const struct tc_view_reader *gather, const struct loop *loop) {
    return is_kept(gather) && loop->to < loop->from ? loop->to : loop->from;
}

/* Axes of the tile, the one densest in the storage last, so that the file is
 * read forwards. */
static unsigned plan_loops(const struct tc_view_reader *gather, uint64_t rows, struct loop *loops) {
    const struct tc_view *view = &gather->view;
    unsigned used = 0;
    for (unsigned axis = gather->axis; axis < view->rank; axis++) {
        struct loop loop = {.count = axis == gather->axis ? rows : view->shape[axis],
                            .from = view->stride[axis],
                            .to = trailing_bytes(view, axis)};
        if (loop.count == 1)
            continue;
        unsigned place = used++;
        while (place > 0 && hop_length(gather, &loops[place - 1]) < hop_length(gather, &loop)) {
            loops[place] = loops[place - 1];
            place--;
        }
        loops[place] = loop;
    }
    if (used == 0)
        loops[used++] = (struct loop){.count = 1, .from = view->element, .to = view->element};
    return used;
}

/* Where the innermost loops are short, as in a view whose axes are all of
 * length 2, the work of each round is in a list: where every element of the
 * block lies, and where it goes. Takes the loops that went into it off. */
static unsigned list_hops(struct tc_view_reader *gather, const struct loop *loops, unsigned depth) {
    gather->hop_count = 0;
    if (loops[depth - 1].count >= LONG_LOOP)
        return depth;
    size_t most = is_kept(gather) ? gather->ahead_most : BLOCK_BYTES;
    gather->hops[0] = (struct tc_hop){0, 0};
    gather->hop_span = gather->view.element;
    size_t count = 1;
    while (depth > 0) {
        const struct loop *loop = &loops[depth - 1];
        if (loop->count > MOST_HOPS / count ||
            (loop->from && loop->count - 1 > (most - gather->hop_span) / loop->from))
            break;
        for (size_t i = count; i < count * loop->count; i++) {
            const struct tc_hop *before = &gather->hops[i - count];
            gather->hops[i] = (struct tc_hop){before->from + (uint32_t)loop->from,
                                              before->to + (uint32_t)loop->to};
        }
        count *= loop->count;
        gather->hop_span += (size_t)((loop->count - 1) * loop->from);
        depth--;
    }
    gather->hop_count = count > 1 ? count : 0;
    return depth;
}

static bool fill_tile(struct tc_view_reader *gather, uint64_t from, uint64_t rows,
                      struct tc_error *error) {
    struct loop loops[TC_MAX_RANK];
    unsigned loop_count = plan_loops(gather, rows, loops);
    unsigned outer = list_hops(gather, loops, loop_count);
    bool block = gather->hop_count != 0;
    struct loop inner = loops[loop_count - 1];
    unsigned char *to = gather->window;
    if (!block)
        outer = loop_count - 1;
    for (;;) {
        if (block ? !copy_block(gather, to, from, error)
                  : !copy_run(gather, to, inner.to, from, inner.from, inner.count, error))
            return false;
        /* Count up over the outer loops, like an odometer. */
        unsigned level = outer;
        while (level > 0) {
            struct loop *loop = &loops[level - 1];
            from += loop->from;
            to += loop->to;
            if (++loop->at < loop->count)
                break;
            from -= loop->from * loop->count;
            to -= loop->to * loop->count;
            loop->at = 0;
            level--;
        }
        if (level == 0)
            return true;
    }
}

/* Makes the window cover the stream's byte `offset`. */
static bool move_window(struct tc_view_reader *gather, uint64_t offset, struct tc_error *error) {
    const struct tc_view *view = &gather->view;
    uint64_t row_bytes = trailing_bytes(view, gather->axis);
    uint64_t row = offset / row_bytes;
    uint64_t length = view->shape[gather->axis];
    uint64_t first = row % length / gather->rows * gather->rows;
    uint64_t rows = length - first < gather->rows ? length - first : gather->rows;
    uint64_t from = view->start + first * view->stride[gather->axis];
    uint64_t outer = row / length;
    for (unsigned axis = gather->axis; axis > 0; axis--) {
        from += outer % view->shape[axis - 1] * view->stride[axis - 1];
        outer /= view->shape[axis - 1];
    }
    gather->window_size = 0;
    gather->made += rows * row_bytes;
    if (!fill_tile(gather, from, rows, error))
        return false;
    gather->window_at = (row / length * length + first) * row_bytes;
    gather->window_size = rows * row_bytes;
    return true;
}

bool tc_view_reader_read(struct tc_view_reader *gather, uint64_t offset, void *buffer,
                         size_t length, struct tc_error *error) {
    unsigned char *to = buffer;
    while (length) {
        if ((offset < gather->window_at || offset - gather->window_at >= gather->window_size) &&
            !move_window(gather, offset, error))
            return false;
        size_t skip = offset - gather->window_at;
        size_t step = gather->window_size - skip < length ? gather->window_size - skip : length;
        memcpy(to, gather->window + skip, step);
        to += step;
        offset += step;
        length -= step;
    }
    return true;
}
