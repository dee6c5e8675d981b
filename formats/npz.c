/*
 * .npz: a zip of NAME.npy members, stored or packed. Stored arrays are read in
 * place; packed ones are unpacked as they are read. Members that are not .npy, and
 * arrays that are not tensors, are left out, which is reported.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/format/source.h"
#include "core/io/chunk_pipe.h"
#include "core/io/deflate.h"
#include "core/io/slots.h"
#include "core/plan/layout.h"
#include "core/plan/plan.h"
#include "core/tensor/table.h"
#include "formats/numpy/npy.h"
#include "formats/numpy/options.h"
#include "formats/pickle/option.h"
#include "formats/refused.h"
#include "formats/torch/torch.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"
#include "formats/zip/write.h"

struct npz_reader {
    struct zip zip;
    struct npy_list list;
    struct zip_stream unpacking; /* while headers are read */
    struct tc_slots streams;     /* the sequential arrays that are being read */
};

/* The state of reading a sequential array. */
struct array_stream {
    struct zip_stream unpacking;
    struct npy_stream stream;
};

struct fetch {
    struct tc_reader *reader;
    const struct npy_array *array;
    struct zip_stream *unpacking; /* NULL: the array is stored */
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

static bool fetch_member(void *context, uint64_t offset, void *buffer, size_t length,
                         struct tc_error *error) {
    const struct fetch *fetch = context;
    struct zip_stream none = {0};
    if (length == 0)
        return true;
    return zip_stream_read(fetch->unpacking ? fetch->unpacking : &none, fetch->reader->input,
                           fetch->array->owner, offset, buffer, length, error);
}

/* The array's data as it is stored; offsets count from its first byte. */
static bool fetch_data(void *context, uint64_t offset, void *buffer, size_t length,
                       struct tc_error *error) {
    const struct fetch *fetch = context;
    return fetch_member(context, fetch->array->header.data + offset, buffer, length, error);
}

static bool read_npz(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                     void *buffer, size_t length, struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    if (npy_is_object(tensor))
        return torch_read(npz->list.objects, tensor, offset, buffer, length, error);
    const struct npy_tensor *found = &npz->list.tensors[tensor->cookie];
    struct fetch fetch = {.reader = reader, .array = found->array};
    /* A tensor that is not sequential needs no state, so that any thread may read
     * it. */
    if (!tensor->sequential) {
        struct npy_stream none = {0};
        return npy_stream_read(&none, found, fetch_data, &fetch, offset, buffer, length, error);
    }
    struct array_stream *stream = tc_slots_take(&npz->streams, found->array, error);
    if (!stream)
        return false;
    fetch.unpacking = &stream->unpacking;
    bool ok =
        npy_stream_read(&stream->stream, found, fetch_data, &fetch, offset, buffer, length, error);
    tc_slots_give(&npz->streams, stream);
    return ok;
}

static void empty_stream(void *state) {
    struct array_stream *stream = state;
    npy_stream_release(&stream->stream);
    zip_stream_release(&stream->unpacking);
}

static struct tc_text name_of(const struct zip_member *member) {
    return (struct tc_text){member->name.bytes, member->name.length - extension.length};
}

/* Reads the header. A packed member without data is checked here, since no read would
 * ever reach its end. */
static bool read_header(struct tc_reader *reader, struct npy_array *array, struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    const struct zip_member *member = array->owner;
    struct npy_header *header = &array->header;
    struct fetch fetch = {.reader = reader, .array = array, .unpacking = &npz->unpacking};
    if (!zip_member_readable(member, error) ||
        !npy_header_read(reader, fetch_member, &fetch, member->size, member->data, header, error))
        return false;
    uint64_t held = member->size - header->data;
    if (!header->unmeasured && held != header->nbytes)
        return tc_fail(error, TC_INVALID, "trailing-data",
                       "the data is longer than its shape says (got %llu bytes, expected %llu)",
                       (unsigned long long)held, (unsigned long long)header->nbytes);
    return !array->packed || held || npz->unpacking.position == member->size ||
           zip_member_check(reader->input, member, error);
}

static bool add_array(struct tc_reader *reader, const struct zip_member *member,
                      struct npy_array *array, struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    struct tc_text name = name_of(member);
    *array = (struct npy_array){
        .owner = member, .base = member->data, .packed = member->method != ZIP_STORED};
    if (!read_header(reader, array, error))
        return refused_add(&npz->list.refused, reader, name, error);
    reader->compressed |= array->packed;
    if (array->header.objects && pickle_is_inert(reader->options)) {
        const unsigned char *bytes = (const unsigned char *)zip_load(reader, member, error);
        return bytes && npy_list_objects(&npz->list, reader, name, bytes, array->header.data,
                                         member->size, error);
    }
    return npy_list_add(&npz->list, reader, array, name, error);
}

/* Adds the bytes that are unpacked when the wanted tensors of an array are read. */
static bool count_unpacked(struct tc_reader *reader, const struct zip_member *member,
                           const struct npy_array *array, uint64_t *sum, struct tc_error *error) {
    if (!array->header.structured && !tc_reader_wants(reader, name_of(member)))
        return true;
    return !__builtin_add_overflow(*sum, member->size, sum) ||
           tc_fail(error, TC_INVALID, "size-overflow", "the members' sizes overflow");
}

static bool skip_member(struct tc_reader *reader, const struct zip_member *member,
                        struct tc_error *error) {
    return tc_reader_note(reader, TC_LOSS, TC_KIND_MEMBER, member->name, error,
                          "not a tensor, left out");
}

static bool is_array(const struct zip_member *member) {
    return tc_text_ends(member->name, extension);
}

/* A zip without any .npy member is not an .npz. */
static bool refuse_foreign(const struct zip *zip, struct tc_error *error) {
    const struct zip_member *member = &zip->members[0];
    return tc_fail(error, TC_UNSUPPORTED, "zip",
                   "a zip archive, but no .npz: it holds no .npy member (the first is \"%.*s\")",
                   tc_text_shown(member->name, 200), member->name.bytes);
}

/* numpy finds a tensor as the member NAME.npy or as the member NAME: there may not be
 * both. */
static bool check_duplicate_members(struct tc_reader *reader, struct tc_error *error) {
    const struct npz_reader *npz = reader->state;
    for (size_t i = 0; i < npz->zip.count; i++) {
        const struct zip_member *member = &npz->zip.members[i];
        const struct tc_tensor *tensor =
            is_array(member) ? NULL : tc_table_find(&reader->table, member->name);
        if (tensor && !npy_is_object(tensor) &&
            npz->list.tensors[tensor->cookie].field->name.length == 0) {
            tc_fail(error, TC_INVALID, "duplicate-name",
                    "two members can be read as this tensor, with and without .npy");
            return tc_error_in_tensor(error, member->name.bytes, member->name.length);
        }
    }
    return true;
}

static bool open_npz(struct tc_reader *reader, struct tc_error *error) {
    struct npz_reader *npz = reader->state;
    tc_slots_init(&npz->streams, sizeof(struct array_stream), empty_stream);
    /* Arrays that are put into another order take more memory than others, and fields of one array
     * have one stream: then one is read after the other. */
    reader->streams = true;
    if (!zip_open_archive(&npz->zip, reader, error))
        return false;
    struct npy_array *arrays =
        tc_arena_array(&reader->arena, npz->zip.count, sizeof *arrays, error);
    if (!arrays)
        return false;
    uint64_t unpacked = 0;
    size_t count = 0;
    for (size_t i = 0; i < npz->zip.count; i++) {
        const struct zip_member *member = &npz->zip.members[i];
        if (!is_array(member)) {
            if (!skip_member(reader, member, error))
                return false;
            continue;
        }
        struct npy_array *array = &arrays[count++];
        if (!add_array(reader, member, array, error) ||
            !count_unpacked(reader, member, array, &unpacked, error))
            return false;
        reader->streams &= !array->header.fortran && !array->header.structured;
    }
    if (!reader->streams)
        npz->streams.most = 1;
    zip_stream_release(&npz->unpacking);
    if (count == 0 && npz->zip.count)
        return refuse_foreign(&npz->zip, error);
    return check_duplicate_members(reader, error) && npy_list_finish(&npz->list, reader, error) &&
           tc_reader_check_expansion(reader, unpacked, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    const struct npz_reader *npz = reader->state;
    if (npy_is_object(tensor))
        return false;
    const struct npy_tensor *found = &npz->list.tensors[tensor->cookie];
    *extent = (struct tc_extent){.input = reader->input,
                                 .offset = found->array->base + found->array->header.data};
    return npy_is_raw(found);
}

static bool strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                    struct tc_strided *strided) {
    const struct npz_reader *npz = reader->state;
    if (npy_is_object(tensor))
        return false;
    const struct npy_tensor *found = &npz->list.tensors[tensor->cookie];
    strided->input = reader->input;
    strided->offset = found->array->base + found->array->header.data;
    return npy_strided(found, &strided->view);
}

/* Checks each stored member once, also where several tensors, the fields of a
 * structured array, come from it. */
static bool verify_tensors(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    const struct npz_reader *npz = reader->state;
    const struct zip_member *last = NULL;
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        if (npy_is_object(tensor))
            continue; /* its member was read as a whole when the file was opened */
        const struct zip_member *member = npz->list.tensors[tensor->cookie].array->owner;
        if ((wanted && !wanted[i]) || member->method != ZIP_STORED || member == last ||
            zip_verify_stored(reader->input, member, error)) {
            last = wanted && !wanted[i] ? last : member;
            continue;
        }
        last = member;
        tc_error_in_tensor(error, tensor->name.bytes, tensor->name.length);
        if (!tc_reader_forgive(reader, error))
            return false;
    }
    return true;
}

/* Checks the CRC of members that no tensor is read from. What they unpack to is
 * limited as it is for those that are read. */
static bool verify_others(struct tc_reader *reader, struct tc_error *error) {
    const struct npz_reader *npz = reader->state;
    uint64_t unpacked = 0;
    bool *used = calloc(npz->zip.count + 1, sizeof *used);
    bool ok = used || tc_fail_memory(error);
    for (size_t i = 0; i < npz->list.count && ok; i++) {
        const struct zip_member *member = npz->list.tensors[i].array->owner;
        used[member - npz->zip.members] = true;
    }
    for (size_t i = 0; i < npz->zip.count && ok; i++) {
        const struct zip_member *member = &npz->zip.members[i];
        struct tc_error ignored = {0};
        if (used[i] || !zip_member_readable(member, &ignored))
            continue;
        if (!tc_add(unpacked, member->size, &unpacked))
            unpacked = UINT64_MAX;
        ok = tc_reader_check_expansion(reader, unpacked, error);
        if (ok && !zip_member_check(reader->input, member, error)) {
            tc_error_in_tensor(error, member->name.bytes, member->name.length);
            ok = tc_reader_forgive(reader, error);
        }
    }
    free(used);
    return ok;
}

static bool check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error) {
    return verify_tensors(reader, wanted, error) && (wanted || verify_others(reader, error));
}

static void close_npz(struct tc_reader *reader) {
    struct npz_reader *npz = reader->state;
    zip_stream_release(&npz->unpacking);
    tc_slots_release(&npz->streams);
    npy_list_release(&npz->list);
    zip_release(&npz->zip);
}

/* numpy looks for a key among the members' full names first. Where tensors "a" and
 * "a.npy" are written, as a.npy and a.npy.npy, it finds "a" under both names. */
static bool check(struct tc_plan *plan, struct tc_error *error) {
    struct tc_name_map names; /* filled only where a name ends in .npy, which is rare */
    tc_name_map_init(&names, NULL);
    bool ok = true;
    for (size_t i = 0; i < plan->count && ok; i++) {
        struct tc_text name = plan->items[i].name;
        struct tc_text stem = {name.bytes, name.length - extension.length};
        if (!tc_text_ends(name, extension))
            continue;
        for (size_t n = names.count; n < plan->count && ok; n++)
            ok = tc_name_map_add(&names, plan->items[n].name, 0, error);
        if (ok && tc_name_map_find(&names, stem))
            ok = tc_plan_note(plan, TC_LOSS, TC_KIND_NAME, name, error,
                              "numpy finds another tensor under this name, that without .npy");
    }
    tc_name_map_release(&names);
    return ok;
}

struct npz_writer {
    struct zip_writer zip;
};

static bool begin(struct tc_writer *writer, struct tc_error *error) {
    (void)error;
    struct npz_writer *npz = writer->state;
    int level = writer->plan->options->write.compress;
    writer->deflate_level = level == TC_COMPRESS_DEFAULT ? TC_DEFLATE_DEFAULT_LEVEL : level;
    zip_writer_init(&npz->zip, writer->out, writer->deflate_level, tc_layout_step(writer->plan));
    writer->sees_bytes = true;
    writer->wants_crc = true;
    return true;
}

static bool put(struct tc_writer *writer, size_t index, struct tc_source *source,
                struct tc_error *error) {
    struct npz_writer *npz = writer->state;
    const struct tc_item *item = &writer->plan->items[writer->file->first + index];
    char *name = tc_arena_alloc(&writer->arena, item->name.length + extension.length, error);
    if (!name)
        return false;
    memcpy(name, item->name.bytes, item->name.length);
    memcpy(name + item->name.length, extension.bytes, extension.length);
    struct tc_buffer header = {0};
    bool ok =
        npy_header_write(&header, item, NULL, error) &&
        zip_member_begin(&npz->zip, (struct tc_text){name, item->name.length + extension.length},
                         header.length + item->nbytes, header.length, error) &&
        zip_member_write(&npz->zip, header.bytes, header.length, error);
    tc_buffer_release(&header);
    struct tc_chunk *chunk;
    enum tc_next next = TC_NEXT_FAILED;
    while (ok && (next = tc_source_next(source, &chunk, error)) == TC_NEXT_CHUNK) {
        ok = zip_member_write_chunk(&npz->zip, chunk, error);
        tc_chunk_release(chunk);
    }
    return ok && next == TC_NEXT_END && zip_member_end(&npz->zip, error);
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
    .max_align = ZIP_MOST_ALIGNMENT,
    .compression = "deflate",
    .default_level = TC_DEFLATE_DEFAULT_LEVEL,
    .max_level = TC_DEFLATE_MAX_LEVEL,
    .options = (const struct tc_format_option *const[]){&npy_void_option, &pickle_mode_option,
                                                        &npy_strings_option, NULL},
    .probe = probe,
    .reader_size = sizeof(struct npz_reader),
    .open = open_npz,
    .read = read_npz,
    .extent = extent,
    .strided = strided,
    .check_sums = check_sums,
    .close = close_npz,
    .writer_size = sizeof(struct npz_writer),
    .check = check,
    .holds_metadata = npy_holds_metadata,
    .begin = begin,
    .put = put,
    .finish = finish,
    .abort = abort_npz,
};
