#include "core/gather.h"

#include <stdlib.h>
#include <string.h>

/* A tile's memory. The larger, the longer the runs that are read: 16 MiB of
 * a matrix with 16,384 columns of F32 gives runs of 1 KiB. */
#define WINDOW_BYTES ((size_t)16 << 20)
#define RUN_BYTES ((size_t)1 << 20)
/* Short runs that follow each other closely are read this much ahead. */
#define AHEAD_BYTES ((size_t)1 << 18)
#define SHORT_RUN ((size_t)1 << 14)

static uint64_t trailing_bytes(const struct tc_view *view, unsigned axis) {
    uint64_t bytes = view->element;
    for (unsigned i = axis + 1; i < view->rank; i++)
        bytes *= view->shape[i]; /* no overflow: the whole was measured */
    return bytes;
}

bool tc_gather_init(struct tc_gather *gather, const struct tc_view *view, tc_fetch *fetch,
                    void *context, struct tc_error *error) {
    *gather = (struct tc_gather){.view = *view, .fetch = fetch, .context = context};
    if (gather->view.rank == 0) {
        gather->view.rank = 1;
        gather->view.shape[0] = 1;
    }
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
    gather->window = malloc(window ? window : 1);
    gather->run = malloc(RUN_BYTES);
    gather->ahead = malloc(AHEAD_BYTES);
    return gather->window && gather->run && gather->ahead ? true : tc_fail_memory(error);
}

void tc_gather_release(struct tc_gather *gather) {
    free(gather->window);
    free(gather->run);
    free(gather->ahead);
    *gather = (struct tc_gather){0};
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

static bool fetch(struct tc_gather *gather, uint64_t offset, void *buffer, size_t length,
                  struct tc_error *error) {
    if (length > SHORT_RUN)
        return gather->fetch(gather->context, offset, buffer, length, error);
    bool follows = offset >= gather->fetched_to && offset - gather->fetched_to <= AHEAD_BYTES / 4;
    gather->fetched_to = offset + length;
    bool held =
        offset >= gather->ahead_at && offset - gather->ahead_at + length <= gather->ahead_size;
    if (!held) {
        if (!follows)
            return gather->fetch(gather->context, offset, buffer, length, error);
        uint64_t left = gather->view.storage - offset;
        gather->ahead_size = 0;
        size_t size = left < AHEAD_BYTES ? left : AHEAD_BYTES;
        if (!gather->fetch(gather->context, offset, gather->ahead, size, error))
            return false;
        gather->ahead_at = offset;
        gather->ahead_size = size;
    }
    memcpy(buffer, gather->ahead + (offset - gather->ahead_at), length);
    return true;
}

/* `count` elements, `from_step` apart in the storage, to places `to_step`
 * apart in the window. */
static bool copy_run(struct tc_gather *gather, unsigned char *to, uint64_t to_step, uint64_t from,
                     uint64_t from_step, uint64_t count, struct tc_error *error) {
    unsigned element = gather->view.element;
    if (from_step == 0) {
        if (!fetch(gather, from, gather->run, element, error))
            return false;
        scatter(to, to_step, gather->run, 0, count, element);
        return true;
    }
    if (from_step == element && to_step == element)
        return fetch(gather, from, to, count * element, error);
    while (count) {
        /* Elements far apart are fetched one by one rather than with what
         * lies between them. */
        uint64_t fit = from_step > 4096 ? 1 : (RUN_BYTES - element) / from_step + 1;
        uint64_t step = count < fit ? count : fit;
        if (!fetch(gather, from, gather->run, (step - 1) * from_step + element, error))
            return false;
        scatter(to, to_step, gather->run, from_step, step, element);
        to += step * to_step;
        from += step * from_step;
        count -= step;
    }
    return true;
}

struct loop {
    uint64_t count;
    uint64_t from; /* bytes between neighbours in the storage */
    uint64_t to;   /* and in the window */
    uint64_t at;
};

/* Axes of the tile, the one densest in the storage last, so that the file is
 * read forwards. */
static unsigned plan_loops(const struct tc_gather *gather, uint64_t rows, struct loop *loops) {
    const struct tc_view *view = &gather->view;
    unsigned used = 0;
    for (unsigned axis = gather->axis; axis < view->rank; axis++) {
        struct loop loop = {.count = axis == gather->axis ? rows : view->shape[axis],
                            .from = view->stride[axis],
                            .to = trailing_bytes(view, axis)};
        if (loop.count == 1)
            continue;
        unsigned place = used++;
        while (place > 0 && loops[place - 1].from < loop.from) {
            loops[place] = loops[place - 1];
            place--;
        }
        loops[place] = loop;
    }
    if (used == 0)
        loops[used++] = (struct loop){.count = 1, .from = view->element, .to = view->element};
    return used;
}

static bool fill_tile(struct tc_gather *gather, uint64_t from, uint64_t rows,
                      struct tc_error *error) {
    struct loop loops[TC_MAX_RANK];
    unsigned depth = plan_loops(gather, rows, loops);
    struct loop inner = loops[depth - 1];
    unsigned char *to = gather->window;
    for (;;) {
        if (!copy_run(gather, to, inner.to, from, inner.from, inner.count, error))
            return false;
        /* Count up over the outer loops, like an odometer. */
        unsigned level = depth - 1;
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
static bool move_window(struct tc_gather *gather, uint64_t offset, struct tc_error *error) {
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
    if (!fill_tile(gather, from, rows, error))
        return false;
    gather->window_at = (row / length * length + first) * row_bytes;
    gather->window_size = rows * row_bytes;
    return true;
}

bool tc_gather_read(struct tc_gather *gather, uint64_t offset, void *buffer, size_t length,
                    struct tc_error *error) {
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
