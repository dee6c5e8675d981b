/*
 * .metadata: a pickle of a Metadata, whose attributes are
 *     state_dict_metadata   {name: TensorStorageMetadata or BytesStorageMetadata}
 *     storage_data          {MetadataIndex(fqn, offset, index): _StorageInfo(relative_path,
 *                            offset, length, transform_descriptors)}
 * and others that are not needed. A TensorStorageMetadata has the tensor's dtype, its size, and as
 * chunks the offsets and sizes of its pieces; the item of a piece is the one with its name and its
 * offsets. Empty pieces have items too, and several of them one item together: they are left out.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"
#include "formats/dcp/dcp.h"
#include "formats/pickle/option.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/pieces.h"
#include "formats/torch/torch.h"

#define MODULE "torch.distributed.checkpoint.metadata."

/* A range that storage_data has for a piece, or for a value. */
struct stored {
    uint32_t entry;
    const struct pickle_node *offset; /* sizes, or None */
    struct dcp_item item;
};

struct parse {
    struct dcp *dcp;
    struct tc_arena *arena; /* the reader's */
    struct tc_error *error;
    struct stored *stored;
    size_t stored_count;
    uint64_t pieces; /* of all tensors */
};

static bool bad(struct parse *parse, const char *what) {
    return tc_fail(parse->error, TC_INVALID, "dcp-table", "the checkpoint's table is damaged: %s",
                   what);
}

static bool is_a(const struct pickle_node *node, const char *class) {
    return pickle_is(node, PICKLE_OBJECT) && pickle_is(node->callable, PICKLE_GLOBAL) &&
           node->callable->global == PICKLE_RECORD &&
           tc_text_ends(pickle_text(node->callable), tc_text_of(class));
}

static struct pickle_node *attribute(const struct pickle_node *object, const char *name) {
    return torch_find_key(pickle_state(object), name);
}

/* A number that is not negative. */
static bool number(const struct pickle_node *node, uint64_t *value) {
    if (!pickle_is(node, PICKLE_INT) || node->integer < 0)
        return false;
    *value = (uint64_t)node->integer;
    return true;
}

/* The dtype: the first item of the state of TensorProperties. */
static bool read_dtype(struct parse *parse, const struct pickle_node *properties,
                       struct dcp_entry *entry) {
    const struct pickle_node *state =
        is_a(properties, ".TensorProperties") ? pickle_state(properties) : NULL;
    const struct pickle_node *dtype =
        pickle_is(state, PICKLE_DICT) ? torch_find_key(state, "dtype") : pickle_item(state, 0);
    if (!pickle_is(dtype, PICKLE_GLOBAL) || dtype->global != PICKLE_DTYPE)
        return bad(parse, "a tensor has no dtype");
    if (dtype->value == TC_NONE)
        return torch_refuse_dtype(dtype, parse->error);
    entry->dtype = dtype->value;
    return true;
}

/* torch's shape of F4 counts pairs of elements, which have a byte. */
static enum tc_dtype element_of(enum tc_dtype dtype) {
    return dtype == TC_F4 ? TC_U8 : dtype;
}

static bool read_shape(struct parse *parse, const struct pickle_node *size,
                       struct dcp_entry *entry) {
    uint64_t sizes[TC_MAX_RANK];
    uint64_t count;
    if (!torch_sizes(size, sizes, &entry->rank))
        return bad(parse, "a tensor has no size, or a negative one");
    if (entry->rank > TC_MAX_RANK)
        return tc_fail(parse->error, TC_UNSUPPORTED, "rank", "more than %u dimensions (got %u)",
                       TC_MAX_RANK, entry->rank);
    if (entry->dtype == TC_F4 && (!entry->rank || sizes[entry->rank - 1] > INT64_MAX / 2))
        return tc_fail(parse->error, TC_UNSUPPORTED, "packed-shape",
                       "pairs of F4 elements need a last dimension");
    uint64_t *shape = tc_arena_array(parse->arena, entry->rank, sizeof *shape, parse->error);
    if (!shape || !tc_shape_measure(element_of(entry->dtype), sizes, entry->rank, &count,
                                    &entry->nbytes, parse->error))
        return false;
    if (entry->rank)
        memcpy(shape, sizes, entry->rank * sizeof *shape);
    entry->shape = shape;
    return true;
}

/* Reads a piece's box; *empty: it has no elements. */
static bool read_piece(struct parse *parse, const struct pickle_node *chunk,
                       const struct dcp_entry *entry, struct piece *piece, bool *empty) {
    uint64_t start[TC_MAX_RANK];
    uint64_t size[TC_MAX_RANK];
    unsigned ranks[2] = {0, 0};
    *empty = false;
    if (!is_a(chunk, ".ChunkStorageMetadata") ||
        !torch_sizes(attribute(chunk, "offsets"), start, &ranks[0]) ||
        !torch_sizes(attribute(chunk, "sizes"), size, &ranks[1]))
        return bad(parse, "a piece of a tensor has no offsets and sizes, or negative ones");
    if (ranks[0] != entry->rank || ranks[1] != entry->rank)
        return bad(parse, "a piece has another number of dimensions than its tensor");
    for (unsigned d = 0; d < entry->rank; d++)
        *empty |= size[d] == 0;
    if (*empty)
        return true;
    uint64_t *box = tc_arena_array(parse->arena, 2 * entry->rank, sizeof *box, parse->error);
    if (!box)
        return false;
    if (entry->rank) {
        memcpy(box, start, entry->rank * sizeof *box);
        memcpy(box + entry->rank, size, entry->rank * sizeof *box);
    }
    *piece = (struct piece){.start = box, .size = box + entry->rank};
    return true;
}

/* Checks the number of pieces of all tensors, each of which takes memory. */
static bool charge_pieces(struct parse *parse, uint64_t count) {
    uint64_t limit = parse->dcp->options.limits.tensors;
    parse->pieces += count;
    if (parse->pieces <= limit)
        return true;
    tc_fail(parse->error, TC_UNSAFE, "tensor-limit", "more than %llu pieces of tensors",
            (unsigned long long)limit);
    return tc_error_hint(parse->error, "raise the limit with --max-tensors if you trust this file");
}

static bool read_pieces(struct parse *parse, const struct pickle_node *chunks,
                        struct dcp_entry *entry) {
    struct pieces *pieces = &entry->pieces;
    if (!pickle_is(chunks, PICKLE_LIST))
        return bad(parse, "a tensor has no list of pieces");
    if (!charge_pieces(parse, chunks->count))
        return false;
    *pieces = (struct pieces){.shape = entry->shape,
                              .rank = entry->rank,
                              .element = tc_dtype_bits(element_of(entry->dtype)) / 8};
    pieces->list = tc_arena_array(parse->arena, chunks->count, sizeof *pieces->list, parse->error);
    if (!pieces->list)
        return false;
    for (size_t i = 0; i < chunks->count; i++) {
        bool empty;
        if (!read_piece(parse, chunks->items[i], entry, &pieces->list[pieces->count], &empty))
            return false;
        pieces->count += !empty;
    }
    entry->sources =
        tc_arena_array(parse->arena, pieces->count, sizeof *entry->sources, parse->error);
    return entry->sources != NULL;
}

static bool read_entry(struct parse *parse, const struct pickle_node *value,
                       struct dcp_entry *entry) {
    if (is_a(value, ".BytesStorageMetadata"))
        return true;
    if (!is_a(value, ".TensorStorageMetadata"))
        return bad(parse, "a name stands for neither a tensor nor a value");
    entry->tensor = true;
    return read_dtype(parse, attribute(value, "properties"), entry) &&
           read_shape(parse, attribute(value, "size"), entry) &&
           read_pieces(parse, attribute(value, "chunks"), entry);
}

static bool read_entries(struct parse *parse, const struct pickle_node *dict) {
    struct dcp *dcp = parse->dcp;
    if (!pickle_is(dict, PICKLE_DICT))
        return bad(parse, "it has no state_dict_metadata");
    dcp->entries =
        tc_arena_array(parse->arena, dict->count / 2, sizeof *dcp->entries, parse->error);
    if (!dcp->entries)
        return false;
    for (size_t i = 0; i + 1 < dict->count; i += 2) {
        const struct pickle_node *key = dict->items[i];
        struct dcp_entry *entry = &dcp->entries[dcp->count];
        if (!pickle_is(key, PICKLE_TEXT))
            return bad(parse, "a name is no text");
        char *name = tc_arena_copy(parse->arena, key->text, key->length, parse->error);
        if (!name)
            return false;
        entry->name = (struct tc_text){name, key->length};
        if (!tc_name_add(&dcp->names, entry->name, (uint32_t)dcp->count,
                         dcp->options.limits.tensors, parse->error))
            return false;
        if (!read_entry(parse, dict->items[i + 1], entry))
            return tc_error_in_tensor(parse->error, name, key->length);
        dcp->count++;
    }
    return true;
}

/* The files */

/* The number of the file that an item is in: a plain name in the table's folder. */
static bool find_file(struct parse *parse, const struct pickle_node *path, uint32_t *file) {
    struct dcp *dcp = parse->dcp;
    if (!pickle_is(path, PICKLE_TEXT))
        return bad(parse, "an item is in no file");
    struct tc_text name = pickle_text(path);
    if (!tc_path_is_plain(name) || memchr(name.bytes, '\\', name.length)) {
        tc_fail(parse->error, TC_UNSAFE, "shard-path",
                "the table names a file outside its folder: \"%.*s\"", tc_text_shown(name, 200),
                name.bytes);
        tc_error_because(parse->error, TC_REASON_OUTSIDE);
        char *copy =
            tc_arena_copy(parse->arena, name.length ? name.bytes : "", name.length, parse->error);
        dcp->outside = copy ? (struct tc_text){copy, name.length} : TC_TEXT("");
        return tc_error_hint(parse->error, "files must lie beside the table");
    }
    if (tc_text_equal(name, tc_text_of(tc_path_name(dcp->reader->input->path))))
        return bad(parse, "it names itself as a file of items");
    const uint32_t *found = tc_name_map_find(&dcp->files, name);
    if (found) {
        *file = *found;
        return true;
    }
    if (dcp->files.count >= TC_MAX_SHARDS) {
        tc_fail(parse->error, TC_UNSAFE, "shard-limit", "the table names more than %u files",
                TC_MAX_SHARDS);
        return tc_error_hint(parse->error, TC_FIXED_LIMIT);
    }
    char *copy = tc_arena_copy(parse->arena, name.bytes, name.length, parse->error);
    *file = (uint32_t)dcp->files.count;
    return copy &&
           tc_name_map_add(&dcp->files, (struct tc_text){copy, name.length}, *file, parse->error);
}

/* None, or ["stream.zstd/1"]. */
static bool read_transform(struct parse *parse, const struct pickle_node *list, bool *packed) {
    *packed = false;
    if (!list || list->kind == PICKLE_NONE)
        return true;
    if (list->kind != PICKLE_LIST && list->kind != PICKLE_TUPLE)
        return bad(parse, "an item's transforms are no list");
    const struct pickle_node *first = pickle_item(list, 0);
    if (first && first->kind != PICKLE_TEXT)
        return bad(parse, "an item's transform has no name");
    *packed =
        first && list->count == 1 && tc_text_equal(pickle_text(first), TC_TEXT("stream.zstd/1"));
    if (*packed || !first)
        return true;
    if (list->count > 1)
        return tc_fail(parse->error, TC_UNSUPPORTED, "dcp-transform",
                       "items went through %u transforms one after the other", list->count);
    return tc_fail(parse->error, TC_UNSUPPORTED, "dcp-transform",
                   "items went through the transform \"%.*s\" (only stream.zstd/1 is known)",
                   tc_text_shown(pickle_text(first), 100), first->text);
}

static bool read_item(struct parse *parse, const struct pickle_node *info, struct dcp_item *item) {
    uint64_t end;
    if (!is_a(info, "._StorageInfo"))
        return bad(parse, "an item has no place");
    if (!number(attribute(info, "offset"), &item->offset) ||
        !number(attribute(info, "length"), &item->length) ||
        !tc_add(item->offset, item->length, &end))
        return bad(parse, "an item's offset and length are no numbers that it could have");
    return find_file(parse, attribute(info, "relative_path"), &item->file) &&
           read_transform(parse, attribute(info, "transform_descriptors"), &item->packed);
}

static bool read_stored(struct parse *parse, const struct pickle_node *key,
                        const struct pickle_node *info) {
    struct stored *stored = &parse->stored[parse->stored_count];
    const struct pickle_node *name = attribute(key, "fqn");
    if (!is_a(key, ".MetadataIndex") || !pickle_is(name, PICKLE_TEXT))
        return bad(parse, "an item has no name");
    stored->offset = attribute(key, "offset");
    if (!read_item(parse, info, &stored->item))
        return tc_error_in_tensor(parse->error, name->text, name->length);
    struct dcp *dcp = parse->dcp;
    if (dcp->listing)
        dcp->items[dcp->item_count++] = stored->item;
    const uint32_t *entry = tc_name_map_find(&dcp->names, pickle_text(name));
    if (!entry)
        return true; /* nothing in the table needs it */
    stored->entry = *entry;
    parse->stored_count++;
    return true;
}

static bool read_storage(struct parse *parse, const struct pickle_node *dict) {
    if (!pickle_is(dict, PICKLE_DICT))
        return bad(parse, "it has no storage_data");
    parse->stored = calloc(dict->count / 2 + 1, sizeof *parse->stored);
    if (!parse->stored)
        return tc_fail_memory(parse->error);
    struct dcp *dcp = parse->dcp;
    if (dcp->listing) {
        dcp->items =
            tc_arena_array(parse->arena, dict->count / 2, sizeof *dcp->items, parse->error);
        if (!dcp->items)
            return false;
    }
    for (size_t i = 0; i + 1 < dict->count; i += 2)
        if (!read_stored(parse, dict->items[i], dict->items[i + 1]))
            return false;
    return true;
}

/* Pieces and their items */

static int compare_offsets(const uint64_t *start, unsigned rank, const struct pickle_node *offset) {
    unsigned count = offset && offset->kind == PICKLE_TUPLE ? offset->count : 0;
    for (unsigned d = 0; d < rank && d < count; d++) {
        const struct pickle_node *item = offset->items[d];
        uint64_t other =
            item->kind == PICKLE_INT && item->integer >= 0 ? (uint64_t)item->integer : UINT64_MAX;
        /* cppcheck-suppress uninitvar ; who calls this has set as many as `rank` says */
        if (start[d] != other)
            return start[d] < other ? -1 : 1;
    }
    return (rank > count) - (rank < count);
}

static int by_offset(const void *a, const void *b) {
    const struct stored *x = a;
    const struct stored *y = b;
    if (x->entry != y->entry)
        return x->entry < y->entry ? -1 : 1;
    const struct pickle_node *offset = x->offset;
    uint64_t start[TC_MAX_RANK];
    unsigned count = offset && offset->kind == PICKLE_TUPLE ? offset->count : 0;
    unsigned rank = count < TC_MAX_RANK ? count : TC_MAX_RANK;
    for (unsigned d = 0; d < rank; d++) {
        const struct pickle_node *item = offset->items[d];
        start[d] =
            item->kind == PICKLE_INT && item->integer >= 0 ? (uint64_t)item->integer : UINT64_MAX;
    }
    return compare_offsets(start, rank, y->offset);
}

/* The item that belongs to a piece: the one of these with its offsets. */
static const struct stored *find_stored(const struct stored *list, size_t count,
                                        const struct piece *piece, unsigned rank) {
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_offsets(piece->start, rank, list[middle].offset);
        if (order == 0)
            return &list[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static bool place_entry(struct parse *parse, struct dcp_entry *entry, const struct stored *list,
                        size_t count) {
    if (!entry->tensor) {
        if (count > 1)
            return bad(parse, "a value has two items");
        entry->placed = count == 1;
        if (count)
            entry->item = list[0].item;
        return true;
    }
    if (!pieces_settle(&entry->pieces, parse->error))
        return false;
    for (size_t i = 1; i < count; i++)
        if (by_offset(&list[i - 1], &list[i]) == 0)
            return bad(parse, "two items are of one piece");
    for (size_t i = 0; i < entry->pieces.count; i++) {
        struct piece *piece = &entry->pieces.list[i];
        const struct stored *found = find_stored(list, count, piece, entry->rank);
        if (!found)
            return bad(parse, "a piece of a tensor has no item");
        entry->sources[i].item = found->item;
        piece->source = (uint32_t)i;
    }
    return true;
}

/* Gives each piece its item. What is wrong with a tensor that the user did not select is passed
 * over: it is left out. */
static bool place_entries(struct parse *parse) {
    struct dcp *dcp = parse->dcp;
    size_t at = 0;
    if (parse->stored_count)
        qsort(parse->stored, parse->stored_count, sizeof *parse->stored, by_offset);
    for (size_t i = 0; i < dcp->count; i++) {
        struct dcp_entry *entry = &dcp->entries[i];
        size_t from = at;
        while (at < parse->stored_count && parse->stored[at].entry == i)
            at++;
        if (place_entry(parse, entry, parse->stored + from, at - from))
            continue;
        tc_error_in_tensor(parse->error, entry->name.bytes, entry->name.length);
        if (parse->error->class != TC_INVALID || tc_reader_wants(dcp->reader, entry->name))
            return false;
        *parse->error = (struct tc_error){0};
        entry->left_out = true;
    }
    return true;
}

static bool read_root(struct parse *parse, const struct pickle_node *root) {
    if (!is_a(root, MODULE "Metadata"))
        return bad(parse, "the pickle holds no Metadata");
    return read_entries(parse, attribute(root, "state_dict_metadata")) &&
           read_storage(parse, attribute(root, "storage_data")) && place_entries(parse);
}

bool dcp_read_table(struct dcp *dcp, struct tc_error *error) {
    struct tc_reader *reader = dcp->reader;
    struct parse parse = {.dcp = dcp, .arena = &reader->arena, .error = error};
    struct tc_arena nodes; /* what the pickle built, of which little is kept */
    struct pickle pickle;
    struct pickle_node *root;
    tc_arena_init(&nodes, reader->options->limits.memory);
    pickle_init(&pickle, &nodes, &reader->options->limits, error);
    pickle.input = reader->input;
    pickle.end = reader->input->size;
    pickle.mode = pickle_is_inert(reader->options) ? PICKLE_INERT : PICKLE_STRICT;
    bool ok = pickle_load(&pickle, &root);
    if (ok && pickle.at != pickle.end) {
        ok = tc_fail(error, TC_INVALID, "trailing", "something stands behind the pickle");
        tc_error_at(error, pickle.at);
    }
    ok = ok && read_root(&parse, root);
    free(parse.stored);
    pickle_release(&pickle);
    tc_arena_release(&nodes);
    return ok;
}
