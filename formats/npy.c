/*
 * .npy: one array, a header (npy_header.c) and its elements. Big-endian and
 * Fortran order are put right on reading; what is written is byte for byte
 * what np.save writes.
 */
#include <string.h>

#include "core/convert.h"
#include "formats/npy.h"

struct npy_reader {
    struct npy_header header;
    struct npy_stream stream;
};

static int probe(const struct tc_probe *probe) {
    return probe->length >= 6 && memcmp(probe->head, "\x93NUMPY", 6) == 0 ? 100 : 0;
}

static bool fetch_file(void *context, uint64_t offset, void *buffer, size_t length,
                       struct tc_error *error) {
    struct tc_reader *reader = context;
    return tc_input_read(reader->input, offset, buffer, length, error);
}

static bool fetch_data(void *context, uint64_t offset, void *buffer, size_t length,
                       struct tc_error *error) {
    struct tc_reader *reader = context;
    struct npy_reader *npy = reader->state;
    return tc_input_read(reader->input, npy->header.data + offset, buffer, length, error);
}

static bool open_npy(struct tc_reader *reader, struct tc_error *error) {
    struct npy_reader *npy = reader->state;
    struct npy_header *header = &npy->header;
    if (!npy_header_read(reader, fetch_file, reader, reader->input->size, 0, header, error))
        return false;
    struct tc_tensor tensor = {.name = reader->stem,
                               .dtype = header->dtype,
                               .rank = header->rank,
                               .shape = header->shape,
                               .nbytes = header->nbytes,
                               .offset = header->data,
                               .sequential = header->fortran};
    return tc_table_add(&reader->table, &tensor, error);
}

static bool read_npy(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                     void *buffer, size_t length, struct tc_error *error) {
    (void)tensor;
    struct npy_reader *npy = reader->state;
    return npy_stream_read(&npy->stream, &npy->header, fetch_data, reader, offset, buffer, length,
                           error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    const struct npy_reader *npy = reader->state;
    *extent = (struct tc_extent){.input = reader->input, .offset = tensor->offset};
    return !npy->header.swap && !npy->header.fortran;
}

static void close_npy(struct tc_reader *reader) {
    npy_stream_release(&((struct npy_reader *)reader->state)->stream);
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    const struct tc_item *item = &writer->plan->items[writer->part->first];
    struct tc_buffer text = {0};
    bool ok = npy_header_write(&text, item->dtype, item->shape, item->rank, error) &&
              tc_outfile_write(writer->out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    return ok;
}

static bool put(struct tc_writer *writer, size_t item, struct tc_source *source,
                struct tc_error *error) {
    (void)item;
    return tc_source_write(source, writer->out, error);
}

static bool finish(struct tc_writer *writer, struct tc_error *error) {
    (void)writer;
    (void)error;
    return true;
}

static void abort_npy(struct tc_writer *writer) {
    (void)writer;
}

const struct tc_backend tc_backend_npy = {
    .name = "npy",
    .summary = "NumPy array",
    .extensions = (const char *const[]){".npy", NULL},
    .mime = "application/x-npy",
    .caps = TC_CAN_WRITE | TC_CAN_LOAD_LAZILY,
    .dtypes = NPY_DTYPES,
    .max_rank = NPY_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .empty_name = true,
    .probe = probe,
    .reader_size = sizeof(struct npy_reader),
    .open = open_npy,
    .read = read_npy,
    .extent = extent,
    .close = close_npy,
    .begin = begin,
    .put = put,
    .finish = finish,
    .abort = abort_npy,
};
