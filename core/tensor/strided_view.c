#include "core/tensor/strided_view.h"

#include <stdlib.h>
#include <string.h>

/* The memory of a tile. The larger it is, the longer are the runs that are read:
 * 16 MiB of a matrix with 16,384 columns of F32 give runs of 1 KiB. */
#define WINDOW_BYTES ((size_t)16 << 20)
#define RUN_BYTES ((size_t)1 << 20)
/* Where runs of at most SHORT_RUN bytes follow each other with gaps of at most
 * SMALL_GAP, AHEAD_BYTES are read at once: reading a small gap along takes no
 * longer than another read. */
#define AHEAD_BYTES ((size_t)1 << 18)
#define SMALL_GAP ((size_t)1 << 13)
#define SHORT_RUN ((size_t)1 << 14)
/* A storage up to this size is kept in memory as a whole. */
#define KEPT_BYTES ((size_t)4 << 20)
/* An innermost loop of fewer rounds is not worth a call of its own: several loops
 * become a block of up to MOST_HOPS elements that lie within BLOCK_BYTES. */
#define LONG_LOOP 64u
/* How many reads a view may take, not counting those that follow each other: this
 * many, and one more for each BYTES_PER_SCATTERED bytes. */
#define FREE_SCATTERED (UINT64_C(1) << 21)
#define BYTES_PER_SCATTERED 32u
#define READS_PER_AHEAD 16u /* reading ahead counts as this many reads */
#define MOST_HOPS 4096u
#define BLOCK_BYTES ((size_t)1 << 16)

static uint64_t trailing_bytes(const struct tc_view *view, unsigned axis) {
    uint64_t bytes = view->element;
    for (unsigned i = axis + 1; i < view->rank; i++)
        bytes *= view->shape[i]; /* no overflow: the size of the whole was checked */
    return bytes;
}

void tc_view_merge(struct tc_view *view) {
    unsigned rank = 0;
    for (unsigned i = 0; i < view->rank; i++) {
        uint64_t length = view->shape[i];
        uint64_t stride = view->stride[i];
        if (length == 1)
            continue;
        /* The product may overflow, but only in a view without elements. */
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

bool tc_view_reader_init(struct tc_view_reader *reader, const struct tc_view *view, tc_fetch *fetch,
                         void *context, struct tc_error *error) {
    *reader = (struct tc_view_reader){.view = *view, .fetch = fetch, .context = context};
    tc_view_merge(&reader->view);
    while (reader->axis + 1 < reader->view.rank &&
           trailing_bytes(&reader->view, reader->axis) > WINDOW_BYTES)
        reader->axis++;
    uint64_t row = trailing_bytes(&reader->view, reader->axis);
    reader->rows = row ? WINDOW_BYTES / row : 1;
    if (reader->rows == 0)
        reader->rows = 1;
    if (reader->rows > reader->view.shape[reader->axis])
        reader->rows = reader->view.shape[reader->axis];
    uint64_t window = row * reader->rows;
    /* A small storage is read once and kept: its view may show it many times. */
    reader->ahead_most = view->storage <= KEPT_BYTES ? view->storage : AHEAD_BYTES;
    reader->window = malloc(window ? window : 1);
    reader->run = malloc(RUN_BYTES);
    reader->ahead = malloc(reader->ahead_most ? reader->ahead_most : 1);
    reader->hops = malloc(MOST_HOPS * sizeof *reader->hops);
    return reader->window && reader->run && reader->ahead && reader->hops ? true
                                                                          : tc_fail_memory(error);
}

void tc_view_reader_release(struct tc_view_reader *reader) {
    free(reader->window);
    free(reader->run);
    free(reader->ahead);
    free(reader->hops);
    *reader = (struct tc_view_reader){0};
}

/* With a constant size the compiler needs no call to copy an element. */
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

/* Whether the whole storage is kept in memory once it has been read. */
static bool is_kept(const struct tc_view_reader *reader) {
    return reader->view.storage <= reader->ahead_most;
}

static bool read_ahead(struct tc_view_reader *reader, uint64_t offset, struct tc_error *error) {
    bool whole = is_kept(reader);
    uint64_t from = whole ? 0 : offset;
    uint64_t left = reader->view.storage - from;
    size_t size = left < reader->ahead_most ? left : reader->ahead_most;
    reader->ahead_size = 0;
    if (!reader->fetch(reader->context, from, reader->ahead, size, error))
        return false;
    reader->ahead_at = from;
    reader->ahead_size = size;
    return true;
}

/* Counts reads that do not follow the one before. Where nearly every element takes
 * one, which only overlapping views of many short axes with wide strides can
 * cause, the time would no longer be in proportion to the bytes. */
static bool count_scattered(struct tc_view_reader *reader, unsigned reads, struct tc_error *error) {
    uint64_t allowed = FREE_SCATTERED + reader->made / BYTES_PER_SCATTERED +
                       reader->view.storage / BYTES_PER_SCATTERED;
    reader->scattered += reads;
    if (reader->scattered <= allowed)
        return true;
    tc_fail(error, TC_UNSAFE, "view-limit",
            "the view's elements lie so scattered that each takes a read of its own");
    return tc_error_hint(error, "this limit is fixed: save the tensor as contiguous first");
}

/* Bytes of the storage, at most RUN_BYTES; valid until the next call. */
static const unsigned char *look(struct tc_view_reader *reader, uint64_t offset, size_t length,
                                 struct tc_error *error) {
    bool whole = is_kept(reader);
    bool follows = offset >= reader->fetched_to && offset - reader->fetched_to <= SMALL_GAP;
    reader->fetched_to = offset + length;
    bool held =
        offset >= reader->ahead_at && offset - reader->ahead_at + length <= reader->ahead_size;
    if (!held && (whole || (follows && length <= SHORT_RUN))) {
        if (!count_scattered(reader, READS_PER_AHEAD, error) || !read_ahead(reader, offset, error))
            return NULL;
        held = true;
    }
    if (held)
        return reader->ahead + (offset - reader->ahead_at);
    if (!count_scattered(reader, 1, error))
        return NULL;
    return reader->fetch(reader->context, offset, reader->run, length, error) ? reader->run : NULL;
}

/* `count` elements, `from_step` apart in the storage, to places `to_step`
 * apart in the window. */
static bool copy_run(struct tc_view_reader *reader, unsigned char *to, uint64_t to_step,
                     uint64_t from, uint64_t from_step, uint64_t count, struct tc_error *error) {
    unsigned element = reader->view.element;
    const unsigned char *bytes;
    if (from_step == element && to_step == element && count * element > SHORT_RUN)
        return reader->fetch(reader->context, from, to, count * element, error);
    while (count) {
        /* Elements far apart are fetched one by one rather than with what
         * lies between them. */
        uint64_t fit = from_step == 0     ? count
                       : from_step > 4096 ? 1
                                          : (RUN_BYTES - element) / from_step + 1;
        uint64_t step = count < fit ? count : fit;
        if (!(bytes = look(reader, from, (step - 1) * from_step + element, error)))
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

/* Copies all elements of a block. */
static inline void hop_of(unsigned char *to, const unsigned char *from, const struct tc_hop *hops,
                          size_t count, size_t element) {
    for (size_t i = 0; i < count; i++)
        memcpy(to + hops[i].to, from + hops[i].from, element);
}

static bool copy_block(struct tc_view_reader *reader, unsigned char *to, uint64_t from,
                       struct tc_error *error) {
    unsigned element = reader->view.element;
    const struct tc_hop *hops = reader->hops;
    size_t count = reader->hop_count;
    const unsigned char *bytes = look(reader, from, reader->hop_span, error);
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

/* The stride that loops are ordered by. Where the storage is in memory, that is
 * the smaller one of storage and window, so that both are accessed locally. */
static uint64_t hop_length(const struct tc_view_reader *reader, const struct loop *loop) {
    return is_kept(reader) && loop->to < loop->from ? loop->to : loop->from;
}

/* Orders the axes of the tile, the one with the smallest stride last, so that the
 * file is read forwards. */
static unsigned plan_loops(const struct tc_view_reader *reader, uint64_t rows, struct loop *loops) {
    const struct tc_view *view = &reader->view;
    unsigned used = 0;
    for (unsigned axis = reader->axis; axis < view->rank; axis++) {
        struct loop loop = {.count = axis == reader->axis ? rows : view->shape[axis],
                            .from = view->stride[axis],
                            .to = trailing_bytes(view, axis)};
        if (loop.count == 1)
            continue;
        unsigned place = used++;
        while (place > 0 && hop_length(reader, &loops[place - 1]) < hop_length(reader, &loop)) {
            loops[place] = loops[place - 1];
            place--;
        }
        loops[place] = loop;
    }
    if (used == 0)
        loops[used++] = (struct loop){.count = 1, .from = view->element, .to = view->element};
    return used;
}

/* Where the innermost loops are short, as in a view whose axes are all of length
 * 2, turns them into a list: where every element of the block lies, and where it
 * goes. Returns how many loops are left. */
static unsigned list_hops(struct tc_view_reader *reader, const struct loop *loops, unsigned depth) {
    reader->hop_count = 0;
    if (loops[depth - 1].count >= LONG_LOOP)
        return depth;
    size_t most = is_kept(reader) ? reader->ahead_most : BLOCK_BYTES;
    reader->hops[0] = (struct tc_hop){0, 0};
    reader->hop_span = reader->view.element;
    size_t count = 1;
    while (depth > 0) {
        const struct loop *loop = &loops[depth - 1];
        if (loop->count > MOST_HOPS / count ||
            (loop->from && loop->count - 1 > (most - reader->hop_span) / loop->from))
            break;
        for (size_t i = count; i < count * loop->count; i++) {
            const struct tc_hop *before = &reader->hops[i - count];
            reader->hops[i] = (struct tc_hop){before->from + (uint32_t)loop->from,
                                              before->to + (uint32_t)loop->to};
        }
        count *= loop->count;
        reader->hop_span += (size_t)((loop->count - 1) * loop->from);
        depth--;
    }
    reader->hop_count = count > 1 ? count : 0;
    return depth;
}

static bool fill_tile(struct tc_view_reader *reader, uint64_t from, uint64_t rows,
                      struct tc_error *error) {
    struct loop loops[TC_MAX_RANK];
    unsigned loop_count = plan_loops(reader, rows, loops);
    unsigned outer = list_hops(reader, loops, loop_count);
    bool block = reader->hop_count != 0;
    struct loop inner = loops[loop_count - 1];
    unsigned char *to = reader->window;
    if (!block)
        outer = loop_count - 1;
    for (;;) {
        if (block ? !copy_block(reader, to, from, error)
                  : !copy_run(reader, to, inner.to, from, inner.from, inner.count, error))
            return false;
        /* Advance the outer loops, like an odometer. */
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
static bool move_window(struct tc_view_reader *reader, uint64_t offset, struct tc_error *error) {
    const struct tc_view *view = &reader->view;
    uint64_t row_bytes = trailing_bytes(view, reader->axis);
    uint64_t row = offset / row_bytes;
    uint64_t length = view->shape[reader->axis];
    uint64_t first = row % length / reader->rows * reader->rows;
    uint64_t rows = length - first < reader->rows ? length - first : reader->rows;
    uint64_t from = view->start + first * view->stride[reader->axis];
    uint64_t outer = row / length;
    for (unsigned axis = reader->axis; axis > 0; axis--) {
        from += outer % view->shape[axis - 1] * view->stride[axis - 1];
        outer /= view->shape[axis - 1];
    }
    reader->window_size = 0;
    reader->made += rows * row_bytes;
    if (!fill_tile(reader, from, rows, error))
        return false;
    reader->window_at = (row / length * length + first) * row_bytes;
    reader->window_size = rows * row_bytes;
    return true;
}

bool tc_view_reader_read(struct tc_view_reader *reader, uint64_t offset, void *buffer,
                         size_t length, struct tc_error *error) {
    unsigned char *to = buffer;
    while (length) {
        if ((offset < reader->window_at || offset - reader->window_at >= reader->window_size) &&
            !move_window(reader, offset, error))
            return false;
        size_t skip = offset - reader->window_at;
        size_t step = reader->window_size - skip < length ? reader->window_size - skip : length;
        memcpy(to, reader->window + skip, step);
        to += step;
        offset += step;
        length -= step;
    }
    return true;
}
