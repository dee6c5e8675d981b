#include "formats/dcp/hf.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/pieces.h"
#include "formats/registry.h"

/* A tensor of one of the files. */
struct part {
    struct tc_reader *reader;
    const struct tc_tensor *tensor;
    const uint64_t *start;
    uint32_t group;
};

/* The parts of one name. */
struct group {
    struct pieces pieces;
    const struct tc_tensor *first;
    uint64_t *shape;
    size_t count;
};

struct hf {
    char *text; /* the list of files */
    struct tc_input_pool pool;
    struct tc_format_options options;
    struct tc_reader **readers;
    struct tc_input **inputs;
    const char **names;
    size_t count;
    struct part *parts; /* of all files */
    size_t part_count;
    struct tc_name_map groups;
    struct group *list;
    bool ready;
};

static int probe(const struct tc_probe *probe) {
    (void)probe;
    return 0;
}

/* {"saved_offsets": [2, 0], …} */
static bool read_offsets(struct tc_json *json, uint64_t *start, unsigned rank) {
    struct tc_text key;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        struct tc_text ignored;
        if (!tc_text_equal(key, TC_TEXT("saved_offsets"))) {
            if (!tc_json_skip(json, &ignored))
                return false;
            continue;
        }
        unsigned d = 0;
        tc_json_begin(json, TC_JSON_ARRAY);
        while (tc_json_element(json)) {
            uint64_t value;
            if (!tc_json_unsigned(json, &value))
                return false;
            if (d < rank)
                start[d] = value;
            d++;
        }
        if (!json->failed && d != rank)
            return tc_json_fail(json, "saved_offsets has %u numbers for %u dimensions", d, rank);
    }
    return !json->failed;
}

/* Fills the places of a file's tensors, where its metadata has them. */
static bool read_places(struct tc_reader *reader, struct part *parts, struct tc_reader *file,
                        struct tc_error *error) {
    const struct tc_text *info = tc_metadata_find(&file->table.metadata, TC_TEXT(DCP_HF_SHARDING));
    struct tc_json json;
    struct tc_text name;
    if (!info)
        return true;
    tc_json_init(&json, info->bytes, info->length, 0, &reader->arena, error);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &name)) {
        const struct tc_tensor *tensor = tc_table_find(&file->table, name);
        struct tc_text ignored;
        bool ok =
            tensor ? read_offsets(&json,
                                  (uint64_t *)(uintptr_t)parts[tensor - file->table.tensors].start,
                                  tensor->rank)
                   : tc_json_skip(&json, &ignored);
        if (!ok)
            return tc_error_in_tensor(error, name.bytes, name.length);
    }
    if (tc_json_end(&json))
        return true;
    error->has_offset = false; /* it is one in a value of the header */
    return false;
}

/* Adds the tensors of a file to the parts. */
static bool add_parts(struct tc_reader *reader, struct tc_reader *file, struct tc_error *error) {
    struct hf *hf = reader->state;
    size_t more = file->table.count;
    if (hf->part_count + more > reader->options->limits.tensors) {
        tc_fail(error, TC_UNSAFE, "tensor-limit", "more than %llu pieces of tensors",
                (unsigned long long)reader->options->limits.tensors);
        return tc_error_hint(error, "raise the limit with --max-tensors if you trust this file");
    }
    struct part *parts = reallocarray(hf->parts, hf->part_count + more + 1, sizeof *hf->parts);
    if (!parts)
        return tc_fail_memory(error);
    hf->parts = parts;
    parts += hf->part_count;
    for (size_t i = 0; i < more; i++) {
        const struct tc_tensor *tensor = &file->table.tensors[i];
        const uint32_t *found = tc_name_map_find(&hf->groups, tensor->name);
        uint32_t group = found ? *found : (uint32_t)hf->groups.count;
        parts[i] = (struct part){.reader = file, .tensor = tensor, .group = group};
        parts[i].start = tc_arena_array(&reader->arena, tensor->rank, sizeof(uint64_t), error);
        if (!parts[i].start || (!found && !tc_name_add(&hf->groups, tensor->name, group,
                                                       reader->options->limits.tensors, error)))
            return false;
        hf->part_count++;
    }
    return read_places(reader, parts, file, error);
}

static bool open_part(struct tc_reader *reader, const char *name, struct tc_error *error) {
    struct hf *hf = reader->state;
    struct tc_buffer path = {0};
    tc_buffer_add_string(&path, reader->input->path); /* the folder, with its slash */
    tc_buffer_add_string(&path, name);
    struct tc_input *input = tc_buffer_ok(&path, error)
                                 ? tc_reader_open_beside(reader, path.bytes, &hf->pool, error)
                                 : NULL;
    tc_buffer_release(&path);
    struct tc_reader *file =
        input ? tc_reader_open(tc_registry_named("safetensors"), input, &hf->options, error) : NULL;
    if (!file)
        return false;
    hf->readers[hf->count] = file;
    hf->inputs[hf->count] = file->input;
    hf->names[hf->count++] = name;
    reader->size += file->size;
    reader->shard_backend = file->backend;
    return add_parts(reader, file, error) || tc_error_in_file(error, file->input->path);
}

/* The size of a group's tensor: as far as its parts reach. */
static bool measure(struct group *group, const struct part *part, struct tc_error *error) {
    const struct tc_tensor *first = group->first;
    const struct tc_tensor *tensor = part->tensor;
    if (tensor->dtype != first->dtype || tensor->rank != first->rank)
        return tc_fail(error, TC_INVALID, "piece",
                       "pieces of the tensor have different dtypes or numbers of dimensions");
    if (tc_dtype_bits(tensor->dtype) % 8 || tc_dtype_block_elements(tensor->dtype) > 1)
        return tc_fail(error, TC_UNSUPPORTED, "piece", "pieces of %s",
                       tc_dtype_name(tensor->dtype));
    for (unsigned d = 0; d < tensor->rank; d++) {
        uint64_t end;
        if (!tc_add(part->start[d], tensor->shape[d], &end))
            return tc_fail(error, TC_INVALID, "piece", "a piece's place overflows 64 bits");
        if (end > group->shape[d] && tensor->nbytes)
            group->shape[d] = end;
    }
    return true;
}

/* Counts the parts of each name, and measures the tensors. */
static bool make_groups(struct tc_reader *reader, struct tc_error *error) {
    struct hf *hf = reader->state;
    hf->list = tc_arena_array(&reader->arena, hf->groups.count, sizeof *hf->list, error);
    if (!hf->list)
        return false;
    for (size_t i = 0; i < hf->part_count; i++) {
        const struct part *part = &hf->parts[i];
        struct group *group = &hf->list[part->group];
        if (!group->first) {
            group->first = part->tensor;
            group->shape =
                tc_arena_array(&reader->arena, part->tensor->rank, sizeof(uint64_t), error);
            if (!group->shape)
                return false;
        }
        group->count++;
        if (!measure(group, part, error))
            return tc_error_in_tensor(error, part->tensor->name.bytes, part->tensor->name.length);
    }
    for (size_t i = 0; i < hf->groups.count; i++) {
        struct group *group = &hf->list[i];
        group->pieces.list =
            tc_arena_array(&reader->arena, group->count, sizeof *group->pieces.list, error);
        if (!group->pieces.list)
            return false;
    }
    return true;
}

/* Where all parts of a tensor are empty, it has the shape of the first. */
static void keep_empty(struct group *group) {
    if (group->pieces.count == 0 && group->first->rank)
        memcpy(group->shape, group->first->shape, group->first->rank * sizeof *group->shape);
}

static bool add_group(struct tc_reader *reader, size_t position, struct tc_error *error) {
    struct hf *hf = reader->state;
    struct group *group = &hf->list[position];
    struct pieces *pieces = &group->pieces;
    struct tc_tensor tensor = {.name = group->first->name,
                               .shape = group->shape,
                               .offset = position,
                               .cookie = (uint32_t)position,
                               .dtype = group->first->dtype,
                               .rank = group->first->rank};
    uint64_t count;
    keep_empty(group);
    pieces->shape = group->shape;
    pieces->rank = tensor.rank;
    pieces->element = tc_dtype_bits(tensor.dtype) / 8;
    bool ok =
        tc_shape_measure(tensor.dtype, tensor.shape, tensor.rank, &count, &tensor.nbytes, error) &&
        pieces_settle(pieces, error) && tc_table_add(&reader->table, &tensor, error);
    return ok || tc_error_in_tensor(error, tensor.name.bytes, tensor.name.length);
}

static bool join_parts(struct tc_reader *reader, struct tc_error *error) {
    struct hf *hf = reader->state;
    if (!make_groups(reader, error))
        return false;
    for (size_t i = 0; i < hf->part_count; i++) {
        const struct part *part = &hf->parts[i];
        struct pieces *pieces = &hf->list[part->group].pieces;
        if (part->tensor->nbytes)
            pieces->list[pieces->count++] = (struct piece){
                .start = part->start, .size = part->tensor->shape, .source = (uint32_t)i};
    }
    for (size_t i = 0; i < hf->groups.count; i++)
        if (!add_group(reader, i, error))
            return false;
    return true;
}

/* The metadata of the first file, without what describes that file. */
static bool take_metadata(struct tc_reader *reader, struct tc_error *error) {
    const struct hf *hf = reader->state;
    struct tc_metadata *copy =
        tc_metadata_copy(hf->count ? &hf->readers[0]->table.metadata : NULL, &reader->arena, error);
    if (!copy)
        return false;
    reader->table.metadata = *copy;
    tc_metadata_remove(&reader->table.metadata, TC_TEXT(DCP_HF_SHARDING));
    tc_metadata_remove(&reader->table.metadata, TC_TEXT(DCP_HF_VERSION));
    return true;
}

static bool open_hf(struct tc_reader *reader, struct tc_error *error) {
    struct hf *hf = reader->state;
    uint64_t length = reader->input->size;
    size_t files = 0;
    tc_name_map_init(&hf->groups, &reader->arena);
    tc_input_pool_init(&hf->pool);
    hf->ready = true;
    hf->options = *reader->options;
    hf->options.part = true;
    hf->options.select = NULL;
    hf->text = tc_input_load(reader->input, 0, length, error);
    if (!hf->text)
        return false;
    for (uint64_t at = 0; at < length; at++)
        files += hf->text[at] == '\0';
    hf->readers = tc_arena_array(&reader->arena, files, sizeof(struct tc_reader *), error);
    hf->inputs = tc_arena_array(&reader->arena, files, sizeof(struct tc_input *), error);
    hf->names = tc_arena_array(&reader->arena, files, sizeof(char *), error);
    if (!hf->readers || !hf->inputs || !hf->names)
        return false;
    reader->size = 0;
    for (uint64_t at = 0; at < length; at += strlen(hf->text + at) + 1)
        if (!open_part(reader, hf->text + at, error))
            return false;
    reader->shards = hf->names;
    reader->shard_inputs = hf->inputs;
    reader->shard_count = hf->count;
    return join_parts(reader, error) && take_metadata(reader, error);
}

static bool fetch(void *context, const struct piece *piece, uint64_t offset, void *buffer,
                  size_t length, struct tc_error *error) {
    const struct hf *hf = context;
    const struct part *part = &hf->parts[piece->source];
    return tc_reader_read(part->reader, part->tensor, offset, buffer, length, error);
}

static bool read_hf(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                    void *buffer, size_t length, struct tc_error *error) {
    struct hf *hf = reader->state;
    return pieces_read(&hf->list[tensor->cookie].pieces, offset, buffer, length, fetch, hf, error);
}

static bool extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent) {
    struct hf *hf = reader->state;
    const struct pieces *pieces = &hf->list[tensor->cookie].pieces;
    if (pieces->count != 1)
        return false;
    const struct part *part = &hf->parts[pieces->list[0].source];
    return tc_reader_extent(part->reader, part->tensor, extent);
}

static void close_hf(struct tc_reader *reader) {
    struct hf *hf = reader->state;
    if (!hf->ready)
        return;
    for (size_t i = 0; i < hf->count; i++)
        tc_reader_close(hf->readers[i]);
    free(hf->parts);
    free(hf->text);
    tc_name_map_release(&hf->groups);
    tc_input_pool_release(&hf->pool);
}

/* No format of its own, and so not in the registry: its files are safetensors. */
const struct tc_backend dcp_hf_backend = {
    .name = "pieces",
    .summary = "safetensors files that hold pieces of tensors",
    .extensions = (const char *const[]){NULL},
    .caps = TC_CAN_HOLD_MANY | TC_CAN_NAME | TC_CAN_FILE_METADATA | TC_CAN_LOAD_LAZILY,
    .probe = probe,
    .reader_size = sizeof(struct hf),
    .open = open_hf,
    .read = read_hf,
    .extent = extent,
    .close = close_hf,
};
