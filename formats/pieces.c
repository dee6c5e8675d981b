#include "formats/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/limits.h"

/* Along how many dimensions the pieces of one tensor may be cut: meshes of machines have up to
 * four. Each doubles the corners that a check looks at. */
#define MAX_CUT_DIMENSIONS 8u
/* Runs of this length are read by themselves; shorter ones several at a time, since a piece has
 * them one behind the other. */
#define LONG_RUN ((uint64_t)16 << 10)
#define SCRATCH ((size_t)256 << 10)

uint64_t pieces_bytes(const struct pieces *pieces, const struct piece *piece) {
    uint64_t bytes = pieces->element;
    for (unsigned d = 0; d < pieces->rank; d++)
        bytes *= piece->size[d];
    return bytes;
}

/* Whether all boxes lie inside the tensor, and how many elements they have in all. */
static bool check_inside(const struct pieces *pieces, uint64_t *total, struct tc_error *error) {
    *total = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct piece *piece = &pieces->list[i];
        uint64_t volume = 1; /* at most the tensor's, once it is known to lie inside */
        for (unsigned d = 0; d < pieces->rank; d++) {
            if (!tc_range_within(piece->start[d], piece->size[d], pieces->shape[d]))
                return tc_fail(error, TC_INVALID, "piece",
                               "a piece lies outside the tensor: [%llu, +%llu) of dimension %u, "
                               "which has %llu",
                               (unsigned long long)piece->start[d],
                               (unsigned long long)piece->size[d], d,
                               (unsigned long long)pieces->shape[d]);
            volume *= piece->size[d];
        }
        if (!tc_add(*total, volume, total))
            *total = UINT64_MAX;
    }
    return true;
}

/* The dimensions along which some piece is not as long as the tensor. */
static bool find_cuts(const struct pieces *pieces, unsigned *cuts, unsigned *count,
                      struct tc_error *error) {
    *count = 0;
    for (unsigned d = 0; d < pieces->rank; d++) {
        size_t i = 0;
        while (i < pieces->count && pieces->list[i].size[d] == pieces->shape[d])
            i++;
        if (i == pieces->count)
            continue;
        if (*count == MAX_CUT_DIMENSIONS) {
            tc_fail(error, TC_UNSAFE, "piece-limit",
                    "a tensor is cut along more than %u dimensions", MAX_CUT_DIMENSIONS);
            return tc_error_hint(error, TC_FIXED_LIMIT);
        }
        cuts[(*count)++] = d;
    }
    return true;
}

/* A corner of a piece: its number, and above that a bit for each cut dimension, which is set where
 * the corner is at the far end. */
#define FAR_SHIFT 48

struct corners {
    const struct pieces *pieces;
    const unsigned *cuts;
    unsigned count;
};

static uint64_t corner_at(const struct corners *corners, uint64_t corner, unsigned cut) {
    const struct piece *piece = &corners->pieces->list[corner & ((UINT64_C(1) << FAR_SHIFT) - 1)];
    unsigned d = corners->cuts[cut];
    bool far = corner >> (FAR_SHIFT + cut) & 1;
    return piece->start[d] + (far ? piece->size[d] : 0);
}

static int compare_corners(const void *a, const void *b, void *context) {
    const struct corners *corners = context;
    for (unsigned cut = 0; cut < corners->count; cut++) {
        uint64_t x = corner_at(corners, *(const uint64_t *)a, cut);
        uint64_t y = corner_at(corners, *(const uint64_t *)b, cut);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

/* +1 or -1, by the number of its far ends. */
static int64_t sign_of(uint64_t corner) {
    return __builtin_parityll(corner >> FAR_SHIFT) ? -1 : 1;
}

/* What the signs of the corners at the place of this one must add up to: that of the whole
 * tensor's own corner, or 0 where it has none. */
static int64_t expected_sum(const struct corners *corners, uint64_t corner) {
    int64_t sign = 1;
    for (unsigned cut = 0; cut < corners->count; cut++) {
        uint64_t at = corner_at(corners, corner, cut);
        if (at == corners->pieces->shape[corners->cuts[cut]])
            sign = -sign;
        else if (at != 0)
            return 0;
    }
    return sign;
}

/* Whether every element is in exactly one piece. How many pieces hold an element is the sum of the
 * signs of all corners that are not behind it in any dimension; so two sets of boxes cover
 * everything equally often where their corners, with their signs, are the same. The other set is
 * the tensor as one box. This takes the time of a sort, however the boxes lie. */
static bool corners_fit(const struct corners *corners, uint64_t *list, size_t total) {
    size_t outer = 0; /* places of corners of the tensor itself */
    qsort_r(list, total, sizeof *list, compare_corners, (void *)(uintptr_t)corners);
    for (size_t from = 0; from < total;) {
        int64_t sum = 0;
        size_t to = from;
        while (to < total && (to == from || compare_corners(&list[from], &list[to],
                                                            (void *)(uintptr_t)corners) == 0))
            sum += sign_of(list[to++]);
        int64_t expected = expected_sum(corners, list[from]);
        if (sum != expected)
            return false;
        outer += expected != 0;
        from = to;
    }
    return outer == (size_t)1 << corners->count;
}

static bool check_corners(const struct pieces *pieces, bool *fit, struct tc_error *error) {
    unsigned cuts[MAX_CUT_DIMENSIONS];
    struct corners corners = {.pieces = pieces, .cuts = cuts};
    if (!find_cuts(pieces, cuts, &corners.count, error))
        return false;
    size_t each = (size_t)1 << corners.count;
    uint64_t *list = calloc(pieces->count, each * sizeof *list);
    if (!list)
        return tc_fail_memory(error);
    size_t total = 0;
    for (size_t i = 0; i < pieces->count; i++)
        for (size_t far = 0; far < each; far++)
            list[total++] = (uint64_t)far << FAR_SHIFT | i;
    *fit = corners_fit(&corners, list, total);
    free(list);
    return true;
}

static int by_first(const void *a, const void *b) {
    const struct piece *x = a;
    const struct piece *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

/* Sorts the pieces by where they begin in the tensor's stream. */
static void place(struct pieces *pieces) {
    for (size_t i = 0; i < pieces->count; i++) {
        struct piece *piece = &pieces->list[i];
        uint64_t first = 0;
        uint64_t last = 0;
        for (unsigned d = 0; d < pieces->rank; d++) {
            first = first * pieces->shape[d] + piece->start[d];
            last = last * pieces->shape[d] + piece->start[d] + piece->size[d] - 1;
        }
        piece->first = first * pieces->element;
        piece->end = (last + 1) * pieces->element;
    }
    if (pieces->count)
        qsort(pieces->list, pieces->count, sizeof *pieces->list, by_first);
    uint64_t reach = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        reach = pieces->list[i].end > reach ? pieces->list[i].end : reach;
        pieces->list[i].reach = reach;
    }
}

bool pieces_settle(struct pieces *pieces, struct tc_error *error) {
    uint64_t total;
    uint64_t whole = 1;
    for (unsigned d = 0; d < pieces->rank; d++)
        whole *= pieces->shape[d];
    if (!check_inside(pieces, &total, error))
        return false;
    bool fit = total == whole;
    if (fit && pieces->count > 1 && !check_corners(pieces, &fit, error))
        return false;
    if (!fit)
        return tc_fail(error, TC_INVALID, "piece",
                       total > whole   ? "pieces of the tensor overlap (%llu elements of %llu)"
                       : total < whole ? "the tensor's pieces leave a hole (%llu elements of %llu)"
                                       : "pieces of the tensor overlap, and leave a hole (%llu "
                                         "elements of %llu)",
                       (unsigned long long)total, (unsigned long long)whole);
    place(pieces);
    return true;
}

/* Reading */

/* A piece as runs: bytes that lie one behind the other in it and in the tensor. */
struct runs {
    const struct pieces *pieces;
    const struct piece *piece;
    unsigned dimensions; /* the outer ones, over which the runs go */
    uint64_t length;     /* bytes of a run */
    uint64_t count;
    uint64_t stride[TC_MAX_RANK]; /* bytes of the tensor, by outer dimension */
};

static void make_runs(const struct pieces *pieces, const struct piece *piece, struct runs *runs) {
    unsigned d = pieces->rank;
    uint64_t stride = pieces->element; /* of dimension d - 1 */
    runs->pieces = pieces;
    runs->piece = piece;
    runs->length = pieces->element;
    runs->count = 1;
    while (d > 0) {
        bool whole = piece->size[d - 1] == pieces->shape[d - 1];
        runs->length *= piece->size[d - 1];
        stride *= pieces->shape[d - 1];
        d--;
        if (!whole)
            break;
    }
    runs->dimensions = d;
    while (d > 0) {
        runs->stride[d - 1] = stride;
        runs->count *= piece->size[d - 1];
        stride *= pieces->shape[d - 1];
        d--;
    }
}

/* Where a run begins in the tensor's stream. */
static uint64_t run_at(const struct runs *runs, uint64_t run) {
    uint64_t at = runs->piece->first;
    for (unsigned d = runs->dimensions; d > 0; d--) {
        at += run % runs->piece->size[d - 1] * runs->stride[d - 1];
        run /= runs->piece->size[d - 1];
    }
    return at;
}

/* The first run that ends behind this byte of the stream; the number of runs where none does. */
static uint64_t first_run(const struct runs *runs, uint64_t offset) {
    uint64_t low = 0;
    uint64_t high = runs->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (run_at(runs, middle) + runs->length > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* What a read wants, and how it gets it. */
struct request {
    uint64_t offset;
    uint64_t end;
    unsigned char *buffer;
    pieces_fetch *fetch;
    void *context;
    unsigned char *scratch; /* from malloc, once it is needed */
};

/* The part of a run that is wanted: `skip` bytes of the run come before it. */
static size_t clip(const struct request *request, uint64_t at, uint64_t length, uint64_t *skip) {
    *skip = at < request->offset ? request->offset - at : 0;
    uint64_t end = at + length < request->end ? at + length : request->end;
    return end > at + *skip ? (size_t)(end - at - *skip) : 0;
}

/* Reads as many short runs as fit the scratch memory, and puts them in their places. */
static bool read_short(struct request *request, const struct runs *runs, uint64_t *run,
                       struct tc_error *error) {
    if (!request->scratch && !(request->scratch = malloc(SCRATCH)))
        return tc_fail_memory(error);
    uint64_t most = SCRATCH / runs->length;
    uint64_t to = *run;
    while (to < runs->count && to - *run < most && run_at(runs, to) < request->end)
        to++;
    if (!request->fetch(request->context, runs->piece, *run * runs->length, request->scratch,
                        (to - *run) * runs->length, error))
        return false;
    for (uint64_t i = *run; i < to; i++) {
        uint64_t at = run_at(runs, i);
        uint64_t skip;
        size_t length = clip(request, at, runs->length, &skip);
        memcpy(request->buffer + (at + skip - request->offset),
               request->scratch + (i - *run) * runs->length + skip, length);
    }
    *run = to;
    return true;
}

static bool read_piece(struct request *request, const struct pieces *pieces,
                       const struct piece *piece, struct tc_error *error) {
    struct runs runs;
    make_runs(pieces, piece, &runs);
    uint64_t run = first_run(&runs, request->offset);
    while (run < runs.count) {
        uint64_t at = run_at(&runs, run);
        uint64_t skip;
        if (at >= request->end)
            break;
        size_t length = clip(request, at, runs.length, &skip);
        /* A piece of one run, or the rest of a long one. */
        if (runs.length >= LONG_RUN || runs.count == 1) {
            if (!request->fetch(request->context, piece, run * runs.length + skip,
                                request->buffer + (at + skip - request->offset), length, error))
                return false;
            run++;
        } else if (!read_short(request, &runs, &run, error))
            return false;
    }
    return true;
}

bool pieces_read(const struct pieces *pieces, uint64_t offset, void *buffer, size_t length,
                 pieces_fetch *fetch, void *context, struct tc_error *error) {
    struct request request = {.offset = offset,
                              .end = offset + length,
                              .buffer = buffer,
                              .fetch = fetch,
                              .context = context};
    /* The first piece that reaches behind the offset. */
    size_t low = 0;
    size_t high = pieces->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pieces->list[middle].reach > offset)
            high = middle;
        else
            low = middle + 1;
    }
    bool ok = true;
    for (size_t i = low; i < pieces->count && pieces->list[i].first < request.end && ok; i++)
        if (pieces->list[i].end > offset)
            ok = read_piece(&request, pieces, &pieces->list[i], error);
    free(request.scratch);
    return ok;
}
