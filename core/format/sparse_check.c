#include "core/format/sparse_check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

/* The windows of one sparse tensor take this much together. */
#define WINDOWS ((size_t)1 << 20)

/* Indices that are read in order. */
struct window {
    struct tc_reader *reader;
    const struct tc_tensor *part;
    unsigned char *bytes;
    size_t capacity; /* indices; it has `count` of them, from `start` */
    uint64_t start;
    uint64_t count;
    uint64_t end; /* no more are asked for */
};

static bool read_index(struct window *window, uint64_t at, int64_t *index, struct tc_error *error) {
    size_t size = window->part->dtype == TC_I32 ? sizeof(int32_t) : sizeof(int64_t);
    if (at < window->start || at - window->start >= window->count) {
        uint64_t left = window->end - at;
        window->start = at;
        window->count = left < window->capacity ? left : window->capacity;
        if (!tc_reader_read(window->reader, window->part, at * size, window->bytes,
                            window->count * size, error)) {
            window->count = 0;
            return false;
        }
    }
    const unsigned char *bytes = window->bytes + (at - window->start) * size;
    if (size == sizeof *index) {
        memcpy(index, bytes, sizeof *index);
        return true;
    }
    int32_t half;
    memcpy(&half, bytes, sizeof half);
    *index = half;
    return true;
}

/* Reads an index, which must be below `most`. */
static bool read_place(struct window *window, uint64_t at, uint64_t most, int64_t *index,
                       struct tc_error *error) {
    return read_index(window, at, index, error) &&
           ((*index >= 0 && (uint64_t)*index < most) ||
            tc_sparse_fail(window->part, error, "an index is out of range"));
}

/* All axes of one entry after those of another, so that their order shows. */
static bool check_coo(const struct tc_densify *densify, struct window *axes, bool coalesced,
                      struct tc_error *error) {
    int64_t last[TC_MAX_RANK] = {0};
    /* Without axes there is one place, and nothing bounds how many entries a file claims. */
    if (densify->sparse_rank == 0)
        return !coalesced || densify->stored <= 1 ||
               tc_sparse_fail(densify->first, error, "it is not coalesced");
    for (uint64_t entry = 0; entry < densify->stored; entry++) {
        bool ascends = entry == 0;
        for (unsigned axis = 0; axis < densify->sparse_rank; axis++) {
            int64_t index;
            if (!read_place(&axes[axis], axis * densify->stored + entry,
                            densify->tensor.shape[axis], &index, error))
                return false;
            if (coalesced && !ascends && index < last[axis])
                return tc_sparse_fail(densify->first, error, "it is not coalesced");
            ascends = ascends || index > last[axis];
            last[axis] = index;
        }
        if (coalesced && !ascends)
            return tc_sparse_fail(densify->first, error, "it is not coalesced");
    }
    return true;
}

/* The entries of one row or column. */
static bool check_line(struct window *plain, uint64_t begin, uint64_t end, uint64_t most,
                       struct tc_error *error) {
    int64_t last = -1;
    for (uint64_t entry = begin; entry < end; entry++) {
        int64_t index;
        if (!read_place(plain, entry, most, &index, error))
            return false;
        if (index <= last)
            return tc_sparse_fail(plain->part, error, "the indices of a line do not ascend");
        last = index;
    }
    return true;
}

static bool check_compressed(const struct tc_densify *densify, struct window *first,
                             struct window *plain, struct tc_error *error) {
    uint64_t lines = densify->by_column ? densify->columns : densify->rows;
    uint64_t most = densify->by_column ? densify->rows : densify->columns;
    for (uint64_t batch = 0; batch < densify->batches; batch++) {
        int64_t begin = 0;
        for (uint64_t line = 0; line <= lines; line++) {
            int64_t end;
            if (!read_index(first, batch * (lines + 1) + line, &end, error))
                return false;
            if (line == 0 ? end != 0 : end < begin || (uint64_t)end > densify->stored)
                return tc_sparse_fail(densify->first, error, "its entries do not ascend from 0");
            uint64_t base = batch * densify->stored;
            if (!check_line(plain, base + (uint64_t)begin, base + (uint64_t)end, most, error))
                return false;
            begin = end;
        }
        if ((uint64_t)begin != densify->stored)
            return tc_sparse_fail(densify->first, error,
                                  "it does not end with the number of values");
    }
    return true;
}

bool tc_sparse_check(const struct tc_densify *densify, bool coalesced, struct tc_error *error) {
    struct window windows[TC_MAX_RANK + 2];
    unsigned count = densify->plain ? 2 : densify->sparse_rank;
    unsigned char *bytes = malloc(WINDOWS);
    if (!bytes)
        return tc_fail_memory(error);
    size_t each = WINDOWS / sizeof(int64_t) / (count ? count : 1);
    for (unsigned i = 0; i < count; i++) {
        const struct tc_tensor *part = densify->plain && i ? densify->plain : densify->first;
        uint64_t indices = part->nbytes / (tc_dtype_bits(part->dtype) / 8);
        windows[i] = (struct window){.reader = densify->reader,
                                     .part = part,
                                     .bytes = bytes + i * each * sizeof(int64_t),
                                     .capacity = each,
                                     .end = densify->plain ? indices : (i + 1) * densify->stored};
    }
    bool ok = densify->plain ? check_compressed(densify, &windows[0], &windows[1], error)
                             : check_coo(densify, windows, coalesced, error);
    free(bytes);
    return ok;
}
