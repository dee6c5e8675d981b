/*
 * The elements of an array as a stream in C order, little-endian.
 *
 * Before the fields of records are read, the records are transposed into columns, in
 * one pass over the data into a spool, tile by tile. A tile is a number of records,
 * in which the bytes of each field follow each other. So the data is read once, also
 * where it is packed, however many fields there are.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/io/spool.h"
#include "core/tensor/dtype.h"
#include "core/tensor/strided_view.h"
#include "formats/numpy/npy.h"

#define TILE_BYTES ((uint64_t)4 << 20)

bool npy_is_sequential(const struct npy_tensor *tensor) {
    const struct npy_header *header = &tensor->array->header;
    return tensor->array->packed || header->structured || header->fortran;
}

bool npy_is_raw(const struct npy_tensor *tensor) {
    return !npy_is_sequential(tensor) && !tensor->field->swap;
}

static bool needs_spool(const struct npy_array *array) {
    return array->header.structured || (array->packed && array->header.fortran);
}

/* Makes a tile of records: puts each field's bytes together. */
static void transpose(const struct npy_header *header, const unsigned char *records, uint64_t rows,
                      unsigned char *tile) {
    for (size_t i = 0; i < header->field_count; i++) {
        const struct npy_field *field = &header->fields[i];
        if (field->skipped || field->span == 0)
            continue;
        unsigned char *to = tile + rows * field->column;
        for (uint64_t row = 0; row < rows; row++)
            memcpy(to + row * field->span, records + row * header->itemsize + field->column,
                   field->span);
    }
}

/* A record that is longer than a tile is a tile by itself, and so is copied as it is. */
static bool spool_long_records(struct npy_stream *stream, unsigned char *buffer,
                               struct tc_error *error) {
    uint64_t size = stream->array->header.nbytes;
    for (uint64_t at = 0; at < size;) {
        size_t step = size - at < TILE_BYTES ? size - at : TILE_BYTES;
        if (!stream->fetch(stream->context, at, buffer, step, error) ||
            !tc_spool_add(&stream->spool, buffer, step, error))
            return false;
        at += step;
    }
    return true;
}

static bool spool_tiles(struct npy_stream *stream, unsigned char *records, unsigned char *tile,
                        struct tc_error *error) {
    const struct npy_header *header = &stream->array->header;
    for (uint64_t row = 0; row < header->count; row += stream->rows) {
        uint64_t left = header->count - row;
        uint64_t rows = left < stream->rows ? left : stream->rows;
        size_t length = rows * header->itemsize;
        if (!stream->fetch(stream->context, row * header->itemsize, records, length, error))
            return false;
        transpose(header, records, rows, tile);
        if (!tc_spool_add(&stream->spool, tile, length, error))
            return false;
    }
    return true;
}

static bool fill_spool(struct npy_stream *stream, struct tc_error *error) {
    const struct npy_header *header = &stream->array->header;
    unsigned char *records = malloc(TILE_BYTES);
    unsigned char *tile = calloc(1, TILE_BYTES);
    bool fits = header->itemsize <= TILE_BYTES;
    stream->rows = fits ? TILE_BYTES / header->itemsize : 1;
    bool ok = records && tile ? tc_spool_open(&stream->spool, header->nbytes, error)
                              : tc_fail_memory(error);
    ok = ok && (fits ? spool_tiles(stream, records, tile, error)
                     : spool_long_records(stream, records, error));
    free(records);
    free(tile);
    return ok;
}

/* Bytes of a field in all records, one record after the other. */
static bool fetch_column(void *context, uint64_t offset, void *buffer, size_t length,
                         struct tc_error *error) {
    struct npy_stream *stream = context;
    const struct npy_header *header = &stream->array->header;
    const struct npy_field *field = stream->field;
    unsigned char *to = buffer;
    if (!stream->spool.open)
        return stream->fetch(stream->context, offset, buffer, length, error);
    while (length) {
        uint64_t row = offset / field->span;
        uint64_t first = row - row % stream->rows;
        uint64_t left = header->count - first;
        uint64_t rows = left < stream->rows ? left : stream->rows;
        uint64_t inside = offset - first * field->span;
        uint64_t held = rows * field->span - inside;
        size_t step = held < length ? held : length;
        if (!tc_spool_read(&stream->spool, first * header->itemsize + rows * field->column + inside,
                           to, step, error))
            return false;
        to += step;
        offset += step;
        length -= step;
    }
    return true;
}

/* A field as a view of its column. */
static void make_view(const struct npy_header *header, const struct npy_field *field,
                      struct tc_view *view) {
    *view = (struct tc_view){.rank = field->rank,
                             .element = tc_dtype_bits(field->dtype) / 8,
                             .start = field->start,
                             .storage = header->count * field->span};
    uint64_t stride = field->span;
    for (unsigned i = 0; i < header->rank; i++) {
        unsigned axis = header->fortran ? i : header->rank - 1 - i;
        view->shape[axis] = header->shape[axis];
        view->stride[axis] = stride;
        stride *= header->shape[axis];
    }
    for (unsigned i = header->rank; i < field->rank; i++) {
        view->shape[i] = field->shape[i];
        view->stride[i] = field->stride[i - header->rank];
    }
}

bool npy_strided(const struct npy_tensor *tensor, struct tc_view *view) {
    const struct npy_header *header = &tensor->array->header;
    if (!header->fortran || header->structured || tensor->array->packed || tensor->field->swap)
        return false;
    make_view(header, tensor->field, view);
    return true;
}

static bool start_view_reader(struct npy_stream *stream, struct tc_error *error) {
    struct tc_view view;
    make_view(&stream->array->header, stream->field, &view);
    stream->viewing = true;
    return tc_view_reader_init(&stream->view_reader, &view, fetch_column, stream, error);
}

static void release_field(struct npy_stream *stream) {
    if (stream->viewing)
        tc_view_reader_release(&stream->view_reader);
    stream->viewing = false;
    stream->field = NULL;
}

void npy_stream_release(struct npy_stream *stream) {
    release_field(stream);
    tc_spool_release(&stream->spool);
    stream->array = NULL;
}

/* Prepares the stream for reading this tensor. */
static bool select_tensor(struct npy_stream *stream, const struct npy_tensor *tensor,
                          struct tc_error *error) {
    const struct npy_header *header = &tensor->array->header;
    if (stream->array != tensor->array) {
        npy_stream_release(stream);
        stream->array = tensor->array;
        if (needs_spool(tensor->array) && !fill_spool(stream, error)) {
            npy_stream_release(stream);
            return false;
        }
    }
    if (stream->field == tensor->field)
        return true;
    release_field(stream);
    stream->field = tensor->field;
    if ((header->fortran || tensor->field->strided) && !start_view_reader(stream, error)) {
        release_field(stream);
        return false;
    }
    return true;
}

/* Reads elements in C order, in the byte order of the file. */
static bool stream_raw(struct npy_stream *stream, uint64_t offset, void *buffer, size_t length,
                       struct tc_error *error) {
    return stream->viewing
               ? tc_view_reader_read(&stream->view_reader, offset, buffer, length, error)
               : fetch_column(stream, offset, buffer, length, error);
}

/* Reverses each whole component in place. */
static void swap_components(unsigned char *bytes, size_t length, unsigned component) {
    for (size_t at = 0; at + component <= length; at += component)
        for (unsigned low = 0, high = component - 1; low < high; low++, high--) {
            unsigned char byte = bytes[at + low];
            bytes[at + low] = bytes[at + high];
            bytes[at + high] = byte;
        }
}

/* Reads some bytes of one component, the whole of which is needed to swap it. */
static bool read_inside(struct npy_stream *stream, unsigned component, uint64_t offset,
                        unsigned char *to, size_t length, struct tc_error *error) {
    unsigned char whole[16];
    size_t skip = offset % component;
    if (!stream_raw(stream, offset - skip, whole, component, error))
        return false;
    swap_components(whole, component, component);
    memcpy(to, whole + skip, length);
    return true;
}

static bool read_swapped(struct npy_stream *stream, unsigned component, uint64_t offset,
                         unsigned char *to, size_t length, struct tc_error *error) {
    while (length) {
        size_t skip = offset % component;
        bool inside = skip || length < component;
        size_t left = component - skip;
        size_t step = !inside ? length / component * component : left < length ? left : length;
        if (!(inside ? read_inside(stream, component, offset, to, step, error)
                     : stream_raw(stream, offset, to, step, error)))
            return false;
        if (!inside)
            swap_components(to, step, component);
        to += step;
        offset += step;
        length -= step;
    }
    return true;
}

bool npy_stream_read(struct npy_stream *stream, const struct npy_tensor *tensor, tc_fetch *fetch,
                     void *context, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error) {
    stream->fetch = fetch;
    stream->context = context;
    if (!select_tensor(stream, tensor, error))
        return false;
    return tensor->field->swap ? read_swapped(stream, tc_dtype_component(tensor->field->dtype),
                                              offset, buffer, length, error)
                               : stream_raw(stream, offset, buffer, length, error);
}
