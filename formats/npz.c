/*
 * .npz: a zip of NAME.npy members, stored or deflated. Stored arrays are read
 * in place; deflated ones stream. Members that are no .npy are left out, and
 * that is said.
 */
#include <stdlib.h>
#include <string.h>

#include "core/convert.h"
#include "core/deflate.h"
#include "core/spool.h"
#include "formats/npy.h"
#include "formats/zip_read.h"
#include "formats/zip_write.h"

#define SPOOL_STEP ((size_t)1 << 18)

struct array {
    const struct zip_member *member;
    struct npy_header header;
};

struct npz_reader {
    struct zip zip;
    struct array *arrays; /* by tensor's cookie */
    size_t count;
    /* The one array that is being inflated or gathered. */
    const struct array *current;
    struct zip_stream inflating;
    struct npy_stream stream;
    /* An array in Fortran order that is deflated must be there as a whole
     * before its elements can be put in order. */
    struct tc_spool spool;
};

struct fetch {
    struct tc_reader *reader;
    const struct array *array;
};

static const struct tc_text extension = {".npy", 4};

static int probe(const struct tc_probe *probe) {
    if (probe->length < 4)
        return 0;
    bool empty = memcmp(probe->head, "PK\5\6", 4) == 0;
    if (!empty && memcmp(probe->head, "PK\3\4", 4) != 0)
        return 0;
    if (empty)
        return 60;
    /* The first member's name tells most archives apart. */
    if (probe->length < 30)
        return 20;
    size_t length = probe->head[26] | (size_t)probe->head[27] << 8;
    if (length < 4 || 30 + length > probe->length)
        return 30;
    return memcmp(probe->head + 30 + length - 4, ".npy", 4) == 0 ? 90 : 30;
}

static void forget_current(struct npz_reader *npz) {
    zip_stream_release(&npz->inflating);
    npy_stream_release(&npz->stream);
    tc_spool_release(&npz->spool);
    npz->current = NULL;
}

static bool fetch_member(void *context, uint64_t offset, void *buffer, size_t length,
                         struct tc_error *error) {
    const struct fetch *fetch = context;
    const struct array *array = fetch->array;
    struct npz_reader *npz = fetch->reader->state;
    if (length == 0)
        return true;
    return zip_stream_read(&npz->inflating, fetch->reader->input, array->member, offset, buffer,
                           length, error);
}

/* Writes the array's elements as stored to the spool. */
static bool fill_spool(struct tc_reader *reader, const struct array *array,
                       struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    uint64_t size = array->header.nbytes;
    struct fetch fetch = {reader, array};
    unsigned char *buffer = malloc(SPOOL_STEP);
    bool ok = buffer ? tc_spool_open(&npz->spool, size, error) : tc_fail_memory(error);
    for (uint64_t at = 0; at < size && ok;) {
        size_t step = size - at < SPOOL_STEP ? size - at : SPOOL_STEP;
        ok = fetch_member(&fetch, array->header.data + at, buffer, step, error) &&
             tc_spool_add(&npz->spool, buffer, step, error);
        at += step;
    }
    free(buffer);
    if (!ok)
        tc_spool_release(&npz->spool);
    return ok;
}

/* Elements as stored, from offset 0. */
static bool fetch_data(void *context, uint64_t offset, void *buffer, size_t length,
                       struct tc_error *error) {
    const struct fetch *fetch = context;
    const struct array *array = fetch->array;
    struct npz_reader *npz = fetch->reader->state;
    if (array->member->method != ZIP_STORED && array->header.fortran) {
        if (!npz->spool.open && !fill_spool(fetch->reader, array, error))
            return false;
        return tc_spool_read(&npz->spool, offset, buffer, length, error);
    }
    return fetch_member(context, array->header.data + offset, buffer, length, error);
}

static bool read_npz(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                     void *buffer, size_t length, struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    const struct array *array = &npz->arrays[tensor->cookie];
    struct fetch fetch = {reader, array};
    /* What is neither inflated nor gathered has no state, and any thread may
     * read it. */
    if (!tensor->sequential) {
        struct npy_stream none = {0};
        return npy_stream_read(&none, &array->header, fetch_data, &fetch, offset, buffer, length,
                               error);
    }
    if (npz->current != array) {
        forget_current(npz);
        npz->current = array;
    }
    if (npz->stream.gathering)
        npz->stream.gather.context = &fetch;
    return npy_stream_read(&npz->stream, &array->header, fetch_data, &fetch, offset, buffer, length,
                           error);
}

/* A member that holds nothing: no read would ever come to its end. */
static bool check_empty(struct tc_reader *reader, const struct array *array,
                        struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    unsigned char header[4096];
    uint64_t at = 0;
    while (at < array->member->size) {
        uint64_t left = array->member->size - at;
        size_t step = left < sizeof header ? left : sizeof header;
        if (!zip_stream_read(&npz->inflating, reader->input, array->member, at, header, step,
                             error))
            return false;
        at += step;
    }
    return true;
}

static bool add_array(struct tc_reader *reader, const struct zip_member *member,
                      struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    struct array *array = &npz->arrays[npz->count];
    array->member = member;
    struct fetch fetch = {reader, array};
    struct tc_text name = {member->name.bytes, member->name.length - extension.length};
    if (!npy_header_read(reader, fetch_member, &fetch, member->size, member->data, &array->header,
                         error))
        return tc_error_in_tensor(error, name.bytes, name.length);
    bool deflated = member->method != ZIP_STORED;
    struct tc_tensor tensor = {.name = name,
                               .dtype = array->header.dtype,
                               .rank = array->header.rank,
                               .shape = array->header.shape,
                               .nbytes = array->header.nbytes,
                               .offset = npz->count,
                               .cookie = (uint32_t)npz->count,
                               .sequential = deflated || array->header.fortran};
    reader->compressed |= deflated;
    npz->count++;
    return tc_table_add(&reader->table, &tensor, error) &&
           (!deflated || array->header.nbytes || check_empty(reader, array, error) ||
            tc_error_in_tensor(error, name.bytes, name.length));
}

static void skip_member(struct tc_reader *reader, const struct zip_member *member) {
    if (reader->skipped.length)
        tc_buffer_add_string(&reader->skipped, ", ");
    tc_buffer_add_text(&reader->skipped, member->name);
}

static bool is_array(const struct zip_member *member) {
    return tc_text_ends(member->name, extension);
}

/* A zip without a single array is some other file. */
static bool refuse_foreign(const struct zip *zip, struct tc_error *error) {
    const struct zip_member *member = &zip->members[0];
    return tc_fail(error, TC_UNSUPPORTED, "zip",
                   "a zip archive, but no .npz: it holds no .npy member (the first is \"%.*s\")",
                   tc_text_shown(member->name, 200), member->name.bytes);
}

static bool open_npz(struct tc_reader *reader, struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    if (!zip_open(&npz->zip, reader, error))
        return false;
    npz->arrays = tc_arena_array(&reader->arena, npz->zip.count, sizeof *npz->arrays, error);
    if (!npz->arrays)
        return false;
    uint64_t inflated = 0;
    for (size_t i = 0; i < npz->zip.count; i++) {
        const struct zip_member *member = &npz->zip.members[i];
        if (!is_array(member)) {
            skip_member(reader, member);
            continue;
        }
        if (!add_array(reader, member, error))
            return false;
        if (__builtin_add_overflow(inflated, member->size, &inflated))
            return tc_fail(error, TC_INVALID, "size-overflow", "the members' sizes overflow");
    }
    if (npz->count == 0 && npz->zip.count)
        return refuse_foreign(&npz->zip, error);
    /* numpy takes a member of a tensor's bare name for the tensor. */
    for (size_t i = 0; i < npz->zip.count; i++) {
        struct tc_text name = npz->zip.members[i].name;
        if (!is_array(&npz->zip.members[i]) && tc_table_find(&reader->table, name)) {
            tc_fail(error, TC_INVALID, "duplicate-name",
                    "two members can be read as this tensor, with and without .npy");
            return tc_error_in_tensor(error, name.bytes, name.length);
        }
    }
    return tc_reader_check_expansion(reader, inflated, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    const struct npz_reader *npz = reader->state;
    const struct array *array = &npz->arrays[tensor->cookie];
    *extent = (struct tc_extent){.input = reader->input,
                                 .offset = array->member->data + array->header.data};
    return !tensor->sequential && !array->header.swap;
}

static bool verify(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    const struct npz_reader *npz = reader->state;
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        const struct zip_member *member = npz->arrays[tensor->cookie].member;
        if ((wanted && !wanted[i]) || member->method != ZIP_STORED ||
            zip_verify_stored(reader->input, member, error))
            continue;
        tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
        if (!tc_reader_forgive(reader, error))
            return false;
    }
    return true;
}

static void close_npz(struct tc_reader *reader) {
    struct npz_reader *npz = reader->state;
    forget_current(npz);
    zip_release(&npz->zip);
}

/* numpy looks for a key among the members' full names first: of "a" and
 * "a.npy" it reads the first as both, also where it wrote them itself. */
static bool check(struct tc_plan *plan, struct tc_error *error) {
    struct tc_arena arena;
    struct tc_table names; /* filled only where a name ends in .npy, which is rare */
    tc_arena_init(&arena, 0);
    tc_table_init(&names, &arena, UINT32_MAX - 2);
    bool ok = true;
    for (size_t i = 0; i < plan->count && ok; i++) {
        struct tc_text name = plan->items[i].name;
        struct tc_text stem = {name.bytes, name.length - extension.length};
        if (!tc_text_ends(name, extension))
            continue;
        for (size_t n = names.count; n < plan->count && ok; n++) {
            struct tc_tensor entry = {.name = plan->items[n].name};
            ok = tc_table_add(&names, &entry, error);
        }
        if (ok && tc_table_find(&names, stem))
            ok = tc_plan_note(plan, TC_LOSS, "name", name, error,
                              "numpy finds another tensor under this name, that without .npy");
    }
    tc_table_release(&names);
    tc_arena_release(&arena);
    return ok;
}

struct npz_writer {
    struct zip_writer zip;
};

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    (void)error;
    struct npz_writer *npz = writer->state;
    int level = writer->plan->options->write.compress;
    zip_writer_init(&npz->zip, writer->out,
                    level == TC_COMPRESS_DEFAULT ? TC_DEFLATE_DEFAULT_LEVEL : level);
    writer->sees_bytes = true; /* for the CRC */
    return true;
}

static bool put(struct tc_writer *writer, size_t index, struct tc_source *source,
                struct tc_error *error) {
    struct npz_writer *npz = writer->state;
    const struct tc_item *item = &writer->plan->items[writer->part->first + index];
    char *name = tc_arena_alloc(&writer->arena, item->name.length + extension.length, error);
    if (!name)
        return false;
    memcpy(name, item->name.bytes, item->name.length);
    memcpy(name + item->name.length, extension.bytes, extension.length);
    struct tc_buffer header = {0};
    bool ok =
        npy_header_write(&header, item->dtype, item->shape, item->rank, error) &&
        zip_member_begin(&npz->zip, (struct tc_text){name, item->name.length + extension.length},
                         header.length + item->nbytes, error) &&
        zip_member_write(&npz->zip, header.bytes, header.length, error);
    tc_buffer_release(&header);
    struct tc_chunk *chunk;
    while (ok && (chunk = tc_source_next(source, error))) {
        ok = zip_member_write(&npz->zip, chunk->bytes, chunk->length, error);
        tc_chunk_release(chunk);
    }
    return ok && error->class == TC_OK && zip_member_end(&npz->zip, error);
}

static bool finish(struct tc_writer *writer, struct tc_error *error) {
    struct npz_writer *npz = writer->state;
    bool ok = zip_writer_finish(&npz->zip, error);
    zip_writer_release(&npz->zip);
    return ok;
}

static void abort_npz(struct tc_writer *writer) {
    zip_writer_release(&((struct npz_writer *)writer->state)->zip);
}

const struct tc_backend tc_backend_npz = {
    .name = "npz",
    .summary = "NumPy archive",
    .extensions = (const char *const[]){".npz", NULL},
    .mime = "application/zip",
    .caps = TC_CAN_WRITE | TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_COMPRESS | TC_CAN_LOAD_LAZILY |
            TC_NEEDS_SEEK | TC_CAN_CHECKSUM,
    .dtypes = NPY_DTYPES,
    .max_rank = NPY_MAX_RANK,
    .max_name = UINT16_MAX - 4,
    .empty_name = true,
    .max_level = TC_DEFLATE_MAX_LEVEL,
    .probe = probe,
    .reader_size = sizeof(struct npz_reader),
    .open = open_npz,
    .read = read_npz,
    .extent = extent,
    .verify = verify,
    .close = close_npz,
    .writer_size = sizeof(struct npz_writer),
    .check = check,
    .begin = begin,
    .put = put,
    .finish = finish,
    .abort = abort_npz,
};
