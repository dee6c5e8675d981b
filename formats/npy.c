/*
 * .npy: a header (numpy/header.c) and an array's elements. Where np.save was called
 * more than once on one file, there are several arrays one after the other, which
 * are named 0, 1, … Big-endian elements and Fortran order are converted on reading;
 * what is written is byte for byte what np.save writes.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/table.h"
#include "formats/numpy/npy.h"
#include "formats/numpy/options.h"
#include "formats/pickle/option.h"
#include "formats/torch/torch.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6u

struct npy_reader {
    struct npy_list list;
    struct npy_stream stream;
};

/* The context of fetch: offsets count from `base`. */
struct place {
    struct tc_reader *reader;
    uint64_t base;
};

static int probe(const struct tc_probe *probe) {
    return probe->length >= MAGIC_BYTES && memcmp(probe->head, MAGIC, MAGIC_BYTES) == 0 ? 100 : 0;
}

static bool fetch(void *context, uint64_t offset, void *buffer, size_t length,
                  struct tc_error *error) {
    const struct place *place = context;
    return tc_input_read(place->reader->input, place->base + offset, buffer, length, error);
}

/* Finds where the array ends and whether another follows. Anything else behind it is
 * an error. */
static bool find_next(struct tc_reader *reader, const struct npy_array *array, uint64_t *end,
                      bool *more, struct tc_error *error) {
    const struct npy_header *header = &array->header;
    unsigned char magic[MAGIC_BYTES];
    *more = false;
    if (header->unmeasured)
        return true;
    *end = array->base + header->data + header->nbytes;
    uint64_t left = reader->input->size - *end;
    if (left >= MAGIC_BYTES) {
        if (!tc_input_read(reader->input, *end, magic, MAGIC_BYTES, error))
            return false;
        *more = memcmp(magic, MAGIC, MAGIC_BYTES) == 0;
    }
    if (*more || left == 0)
        return true;
    tc_fail(error, TC_INVALID, "trailing-data",
            "the data is longer than its shape says (got %llu bytes, expected %llu)",
            (unsigned long long)(header->nbytes + left), (unsigned long long)header->nbytes);
    return tc_error_at(error, *end);
}

/* A single array gets the file's name; several are numbered. */
static bool name_array(struct tc_reader *reader, bool several, uint64_t index, struct tc_text *name,
                       struct tc_error *error) {
    char digits[24];
    *name = reader->stem;
    if (!several)
        return true;
    size_t length = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)index);
    *name = (struct tc_text){tc_arena_copy(&reader->arena, digits, length, error), length};
    return name->bytes != NULL;
}

static bool add_array(struct tc_reader *reader, const struct npy_array *array, struct tc_text name,
                      struct tc_error *error) {
    struct npy_reader *npy = reader->state;
    if (array->header.objects && pickle_is_inert(reader->options))
        return npy_list_objects(&npy->list, reader, name, NULL, array->base + array->header.data,
                                reader->input->size, error);
    return npy_list_add(&npy->list, reader, array, name, error);
}

static bool open_npy(struct tc_reader *reader, struct tc_error *error) {
    struct npy_reader *npy = reader->state;
    uint64_t base = 0;
    bool more = true;
    for (uint64_t index = 0; more; index++) {
        struct npy_array *array = tc_arena_alloc(&reader->arena, sizeof *array, error);
        struct place place = {reader, base};
        struct tc_text name;
        if (!array)
            return false;
        array->base = base;
        if (!npy_header_read(reader, fetch, &place, reader->input->size - base, base,
                             &array->header, error) ||
            !find_next(reader, array, &base, &more, error) ||
            !name_array(reader, more || index, index, &name, error) ||
            !add_array(reader, array, name, error))
            return false;
    }
    return npy_list_finish(&npy->list, reader, error);
}

static bool read_npy(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                     void *buffer, size_t length, struct tc_error *error) {
    struct npy_reader *npy = reader->state;
    if (npy_is_object(tensor))
        return torch_read(npy->list.objects, tensor, offset, buffer, length, error);
    const struct npy_tensor *found = &npy->list.tensors[tensor->cookie];
    struct place place = {reader, found->array->base + found->array->header.data};
    struct npy_stream none = {0};
    return npy_stream_read(tensor->sequential ? &npy->stream : &none, found, fetch, &place, offset,
                           buffer, length, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    const struct npy_reader *npy = reader->state;
    if (npy_is_object(tensor))
        return false;
    const struct npy_tensor *found = &npy->list.tensors[tensor->cookie];
    *extent = (struct tc_extent){.input = reader->input,
                                 .offset = found->array->base + found->array->header.data};
    return npy_is_raw(found);
}

static bool strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                    struct tc_strided *strided) {
    const struct npy_reader *npy = reader->state;
    if (npy_is_object(tensor))
        return false;
    const struct npy_tensor *found = &npy->list.tensors[tensor->cookie];
    strided->input = reader->input;
    strided->offset = found->array->base + found->array->header.data;
    return npy_strided(found, &strided->view);
}

static void close_npy(struct tc_reader *reader) {
    struct npy_reader *npy = reader->state;
    npy_stream_release(&npy->stream);
    npy_list_release(&npy->list);
}

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    const struct tc_item *item = &writer->plan->items[writer->file->first];
    struct tc_buffer text = {0};
    bool ok = npy_header_write(&text, item, writer, error) &&
              tc_outfile_write(writer->out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    return ok;
}

const struct tc_backend tc_backend_npy = {
    .name = "npy",
    .summary = "NumPy array",
    .extensions = (const char *const[]){".npy", NULL},
    .mime = "application/x-npy",
    .many = "npz",
    .caps = TC_CAN_WRITE | TC_CAN_LOAD_LAZILY | TC_HAS_NO_END,
    .dtypes = NPY_DTYPES,
    .max_rank = NPY_MAX_RANK,
    .max_name = TC_MAX_NAME_BYTES,
    .empty_name = true,
    .max_align = NPY_MOST_ALIGNMENT,
    .shares_blocks = true,
    .options = (const struct tc_format_option *const[]){&npy_void_option, &pickle_mode_option,
                                                        &npy_strings_option, NULL},
    .probe = probe,
    .reader_size = sizeof(struct npy_reader),
    .open = open_npy,
    .read = read_npy,
    .extent = extent,
    .strided = strided,
    .close = close_npy,
    .holds_metadata = npy_holds_metadata,
    .begin = begin,
};
