/* Reads the elements of views: strided, packed, big-endian or negated. */
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/spool.h"
#include "core/tensor/dtype.h"
#include "core/tensor/strided_view.h"
#include "core/tensor/table.h"
#include "formats/torch/torch.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

#define SPOOL_STEP ((size_t)1 << 18)

static void release_view(struct torch *torch) {
    if (torch->viewing)
        tc_view_reader_release(&torch->view_reader);
    torch->viewing = false;
    torch->current = NULL;
}

void torch_release_reading(struct torch *torch) {
    release_view(torch);
    zip_stream_release(&torch->inflating);
    tc_spool_release(&torch->spool);
}

/* Unpacks a whole storage into the spool, so that views of it can be read. */
static bool fill_spool(struct torch *torch, const struct torch_storage *storage,
                       struct tc_error *error) {
    tc_spool_release(&torch->spool);
    torch->spooled = NULL;
    /* Reads that alternate between packed storages unpack them again each time: all
     * of that counts. */
    uint64_t limit = tc_reader_made_limit(torch->reader);
    if (!tc_add(torch->unpacked_total, storage->nbytes, &torch->unpacked_total) ||
        torch->unpacked_total > limit) {
        tc_fail(error, TC_UNSAFE, "size-limit",
                "its packed storages would be unpacked to over %llu bytes in all",
                (unsigned long long)limit);
        return tc_error_hint(error, "raise the limit with --max-size if you trust this file");
    }
    unsigned char *buffer = malloc(SPOOL_STEP);
    bool ok = buffer ? tc_spool_open(&torch->spool, storage->nbytes, error) : tc_fail_memory(error);
    for (uint64_t at = 0; at < storage->nbytes && ok;) {
        uint64_t left = storage->nbytes - at;
        size_t step = left < SPOOL_STEP ? left : SPOOL_STEP;
        ok = zip_stream_read(&torch->inflating, torch->reader->input, storage->member, at, buffer,
                             step, error) &&
             tc_spool_add(&torch->spool, buffer, step, error);
        at += step;
    }
    free(buffer);
    if (ok)
        torch->spooled = storage;
    return ok;
}

struct fetch {
    struct torch *torch;
    const struct torch_storage *storage;
};

static bool fetch_storage(void *context, uint64_t offset, void *buffer, size_t length,
                          struct tc_error *error) {
    const struct fetch *fetch = context;
    const struct torch_storage *storage = fetch->storage;
    if (storage->memory) {
        memcpy(buffer, storage->memory + offset, length);
        return true;
    }
    if (!storage->member || storage->member->method == ZIP_STORED)
        return tc_input_read(fetch->torch->reader->input, storage->offset + offset, buffer, length,
                             error);
    if (fetch->torch->spooled != storage && !fill_spool(fetch->torch, storage, error))
        return false;
    return tc_spool_read(&fetch->torch->spool, offset, buffer, length, error);
}

static void make_view(const struct torch_view *view, const struct torch_storage *storage,
                      struct tc_view *strided) {
    *strided = (struct tc_view){.rank = view->rank,
                                .element = view->element,
                                .start = view->start,
                                .storage = storage->nbytes};
    memcpy(strided->shape, view->shape, view->rank * sizeof *view->shape);
    memcpy(strided->stride, view->stride, view->rank * sizeof *view->stride);
}

static bool read_strided(struct torch *torch, const struct torch_view *view, struct fetch *fetch,
                         uint64_t offset, void *buffer, size_t length, struct tc_error *error) {
    if (torch->current != view) {
        struct tc_view strided;
        release_view(torch);
        make_view(view, fetch->storage, &strided);
        torch->viewing = true;
        if (!tc_view_reader_init(&torch->view_reader, &strided, fetch_storage, fetch, error)) {
            release_view(torch);
            return false;
        }
        torch->current = view;
    }
    torch->view_reader.context = fetch;
    return tc_view_reader_read(&torch->view_reader, offset, buffer, length, error);
}

/* Negates every number (negative), or the imaginary parts (conjugate). The sign is the
 * highest bit of a little-endian number's last byte. */
static void negate(const struct torch_view *view, uint64_t offset, unsigned char *bytes,
                   size_t length) {
    unsigned part = tc_dtype_component(view->dtype);
    for (size_t i = 0; i < length; i++) {
        unsigned at = (unsigned)((offset + i) % view->element);
        if (at % part != part - 1)
            continue;
        bool imaginary = at >= part;
        if (view->negative != (view->conjugate && imaginary))
            bytes[i] ^= 0x80;
    }
}

static bool read_raw(struct torch *torch, const struct torch_view *view, uint64_t offset,
                     void *buffer, size_t length, struct tc_error *error) {
    struct fetch fetch = {torch, &torch->storages[view->storage]};
    return view->stride ? read_strided(torch, view, &fetch, offset, buffer, length, error)
                        : fetch_storage(&fetch, view->start + offset, buffer, length, error);
}

static void reverse(unsigned char *bytes, unsigned length) {
    for (unsigned low = 0, high = length - 1; low < high; low++, high--) {
        unsigned char byte = bytes[low];
        bytes[low] = bytes[high];
        bytes[high] = byte;
    }
}

/* Reads big-endian elements: whole components, whose bytes are then reversed. */
static bool read_swapped(struct torch *torch, const struct torch_view *view, uint64_t offset,
                         unsigned char *buffer, size_t length, struct tc_error *error) {
    unsigned part = tc_dtype_component(view->dtype);
    while (length) {
        unsigned char edge[16];
        size_t skip = offset % part;
        size_t step = length - length % part;
        bool inner = skip == 0 && step;
        unsigned char *to = inner ? buffer : edge;
        if (!inner)
            step = part - skip < length ? part - skip : length;
        size_t whole = inner ? step : part;
        if (!read_raw(torch, view, offset - skip, to, whole, error))
            return false;
        for (size_t at = 0; at < whole; at += part)
            reverse(to + at, part);
        if (!inner)
            memcpy(buffer, edge + skip, step);
        buffer += step;
        offset += step;
        length -= step;
    }
    return true;
}

bool torch_read(struct torch *torch, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
                size_t length, struct tc_error *error) {
    const struct torch_view *view = &torch->views[tensor->cookie - torch->first_cookie];
    if (!(view->swap ? read_swapped(torch, view, offset, buffer, length, error)
                     : read_raw(torch, view, offset, buffer, length, error)))
        return false;
    if (view->conjugate || view->negative)
        negate(view, offset, buffer, length);
    return true;
}

bool torch_extent(struct torch *torch, const struct tc_tensor *tensor, struct tc_extent *extent) {
    const struct torch_view *view = &torch->views[tensor->cookie - torch->first_cookie];
    const struct torch_storage *storage = &torch->storages[view->storage];
    *extent =
        (struct tc_extent){.input = torch->reader->input, .offset = storage->offset + view->start};
    return !tensor->sequential && !view->swap && !view->conjugate && !view->negative &&
           !storage->memory;
}

bool torch_strided(struct torch *torch, const struct tc_tensor *tensor,
                   struct tc_strided *strided) {
    const struct torch_view *view = &torch->views[tensor->cookie - torch->first_cookie];
    const struct torch_storage *storage = &torch->storages[view->storage];
    bool packed = storage->member && storage->member->method != ZIP_STORED;
    if (!view->stride || !tensor->nbytes || packed || view->swap || view->conjugate ||
        view->negative || storage->memory)
        return false;
    strided->input = torch->reader->input;
    strided->offset = storage->offset;
    make_view(view, storage, &strided->view);
    return true;
}

bool torch_verify(struct torch *torch, const bool *wanted, struct tc_error *error) {
    const struct tc_table *table = &torch->reader->table;
    bool *checked = calloc(torch->storage_count + 1, sizeof *checked);
    bool ok = checked ? true : tc_fail_memory(error);
    for (size_t i = 0; i < table->count && ok; i++) {
        uint32_t index = torch->views[table->tensors[i].cookie].storage;
        const struct zip_member *member = torch->storages[index].member;
        if ((wanted && !wanted[i]) || checked[index] || !member || member->method != ZIP_STORED)
            continue;
        checked[index] = true;
        ok = zip_verify_stored(torch->reader->input, member, error) ||
             tc_error_in_tensor(error, table->tensors[i].name.bytes,
                                table->tensors[i].name.length) ||
             tc_reader_forgive(torch->reader, error);
    }
    free(checked);
    return ok;
}

bool torch_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                       void *buffer, size_t length, struct tc_error *error) {
    return torch_read(reader->state, tensor, offset, buffer, length, error);
}

bool torch_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                         struct tc_extent *extent) {
    return torch_extent(reader->state, tensor, extent);
}

bool torch_reader_strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                          struct tc_strided *strided) {
    return torch_strided(reader->state, tensor, strided);
}

bool torch_reader_check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    return torch_verify(reader->state, wanted, error);
}

void torch_reader_close(struct tc_reader *reader) {
    torch_release(reader->state);
}
