/*
 * Files of torch before 1.6: pickles one after the other, then the storages.
 *     0x1950a86a20f9469cfc6c     the magic number
 *     1001                       the protocol
 *     {'little_endian': …, …}    sys_info
 *     the object
 *     [key, …]                   the storages' keys, in the order of the storages
 *     then for each storage: i64 number of elements, and the elements
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/io/input.h"
#include "formats/pickle/opcodes.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/torch/torch.h"
#include "formats/torch/walk.h"

#define MAGIC_DECIMAL "119547037146038801333356"
#define PROTOCOL 1001

static bool stands_at(const struct tc_probe *probe, size_t at, const void *bytes, size_t length) {
    return probe->length - at >= length && memcmp(probe->head + at, bytes, length) == 0;
}

/* The first pickle is nothing but the number: in ten bytes, or as text in the oldest files. The
 * number alone says nothing, since it may stand in any tensor's bytes. */
bool torch_legacy_seen(const struct tc_probe *probe) {
    static const unsigned char binary[] = {OP_LONG1, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                           0xf9,     0x20, 0x6a, 0xa8, 0x50, 0x19};
    size_t at = 0;
    if (probe->length >= 2 && probe->head[0] == OP_PROTO)
        at = 2;
    if (probe->length >= at + 9 && probe->head[at] == OP_FRAME)
        at += 9;
    return stands_at(probe, at, binary, sizeof binary) ||
           stands_at(probe, at, "L" MAGIC_DECIMAL, strlen("L" MAGIC_DECIMAL));
}

static bool bad(struct pickle *pickle, const char *what) {
    tc_fail(pickle->error, TC_INVALID, "torch-legacy", "%s", what);
    return tc_error_at(pickle->error, pickle->at);
}

static bool read_magic(struct pickle *pickle) {
    struct pickle_node *node;
    if (!pickle_load(pickle, &node))
        return false;
    if (node->kind != PICKLE_LONG || !tc_text_equal(pickle_text(node), TC_TEXT(MAGIC_DECIMAL)))
        return bad(pickle, "not the magic number of a torch file");
    if (!pickle_load(pickle, &node))
        return false;
    if (node->kind != PICKLE_INT)
        return bad(pickle, "the protocol's number is none");
    if (node->integer == PROTOCOL)
        return true;
    return tc_fail(pickle->error, TC_UNSUPPORTED, "torch-version",
                   "protocol %lld of torch's old files is not known (%d is)",
                   (long long)node->integer, PROTOCOL);
}

/* {'protocol_version': 1001, 'little_endian': True, 'type_sizes': {'short': 2, 'int': 4, 'long':
 * 4}} */
bool torch_read_system(struct pickle *pickle) {
    struct pickle_node *node;
    if (!pickle_load(pickle, &node))
        return false;
    if (node->kind != PICKLE_DICT)
        return bad(pickle, "what should tell of the system is no dict");
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        const struct pickle_node *key = node->items[i];
        const struct pickle_node *value = node->items[i + 1];
        if (!pickle_is(key, PICKLE_TEXT))
            return bad(pickle, "what tells of the system has a key that is no string");
        if (tc_text_equal(pickle_text(key), TC_TEXT("little_endian"))) {
            if (value->kind != PICKLE_BOOL)
                return bad(pickle, "the byte order is neither true nor false");
            /* torch writes storages little-endian on every machine, so it is not known
             * what byte order such a file has. */
            if (!value->value)
                return tc_fail(pickle->error, TC_UNSUPPORTED, "byte-order",
                               "an old torch file of a big-endian machine");
        } else if (tc_text_equal(pickle_text(key), TC_TEXT("type_sizes"))) {
            static const struct {
                const char *name;
                int64_t size;
                int64_t other;
            } types[] = {{"short", 2, 2}, {"int", 4, 4}, {"long", 4, 8}};
            for (size_t t = 0; value->kind == PICKLE_DICT && t + 1 < value->count; t += 2)
                for (size_t n = 0; n < 3; n++)
                    if (pickle_is(value->items[t], PICKLE_TEXT) &&
                        tc_text_equal(pickle_text(value->items[t]), tc_text_of(types[n].name)) &&
                        (value->items[t + 1]->kind != PICKLE_INT ||
                         (value->items[t + 1]->integer != types[n].size &&
                          value->items[t + 1]->integer != types[n].other)))
                        return bad(pickle, "the system's types have sizes that none has");
            if (value->kind != PICKLE_DICT)
                return bad(pickle, "the system's types are no dict");
        }
    }
    return true;
}

bool torch_take_u64(struct pickle *pickle, uint64_t *value) {
    unsigned char bytes[8];
    if (pickle->end - pickle->at < sizeof bytes) {
        tc_fail(pickle->error, TC_INVALID, "truncated", "a storage or tensor is cut short");
        return tc_error_at(pickle->error, pickle->at);
    }
    if (pickle->memory)
        memcpy(bytes, pickle->memory + pickle->at, sizeof bytes);
    else if (!tc_input_read(pickle->input, pickle->at, bytes, sizeof bytes, pickle->error))
        return false;
    *value = tc_load(bytes, sizeof bytes);
    pickle->at += sizeof bytes;
    return true;
}

bool torch_place_storage(struct pickle *pickle, struct torch_storage *storage) {
    uint64_t left = pickle->end - pickle->at;
    if (storage->nbytes > left) {
        tc_fail(pickle->error, TC_INVALID, "truncated", "a storage is cut short by %llu bytes",
                (unsigned long long)(storage->nbytes - left));
        return tc_error_at(pickle->error, pickle->at);
    }
    storage->memory = pickle->memory ? pickle->memory + pickle->at : NULL;
    storage->offset = pickle->at;
    storage->placed = true;
    pickle->at += storage->nbytes;
    return true;
}

/* Reads a storage: the number of its elements, which must be that in the pickle, and
 * its elements. */
static bool read_storage(struct pickle *pickle, struct torch_storage *storage) {
    uint64_t start = pickle->at;
    uint64_t count = 0;
    if (!torch_take_u64(pickle, &count))
        return false;
    if (count == torch_storage_numel(storage))
        return torch_place_storage(pickle, storage);
    tc_fail(pickle->error, TC_INVALID, "storage", "a storage has %lld elements (expected %llu)",
            (long long)count, (unsigned long long)torch_storage_numel(storage));
    return tc_error_at(pickle->error, start);
}

static bool place_storages(struct torch *torch, struct pickle *pickle) {
    struct pickle_node *keys;
    if (!pickle_load(pickle, &keys))
        return false;
    if (keys->kind != PICKLE_LIST)
        return bad(pickle, "the storages' keys are no list");
    for (size_t i = 0; i < keys->count; i++) {
        const struct pickle_node *key = keys->items[i];
        const uint32_t *found =
            key->kind == PICKLE_TEXT ? tc_name_map_find(&torch->keys, pickle_text(key)) : NULL;
        struct torch_storage *storage = found ? &torch->storages[*found] : NULL;
        if (!storage || storage->placed)
            return bad(pickle,
                       storage ? "a storage is there twice" : "a storage that nothing refers to");
        if (!read_storage(pickle, storage))
            return false;
    }
    if (keys->count != torch->keys.count)
        return bad(pickle, "a storage is missing");
    if (pickle->at == pickle->end)
        return true;
    tc_fail(pickle->error, TC_INVALID, "trailing", "%llu bytes stand behind the last storage",
            (unsigned long long)(pickle->end - pickle->at));
    return tc_error_at(pickle->error, pickle->at);
}

bool torch_open_legacy(struct torch *torch, struct tc_error *error) {
    struct pickle pickle;
    struct pickle_node *root;
    torch->legacy = true;
    torch_pickle_init(torch, &pickle, 0, torch->reader->input->size, error);
    bool ok = read_magic(&pickle) && torch_read_system(&pickle) && pickle_load(&pickle, &root);
    torch_count_pickle(torch, &pickle);
    ok = ok && torch_walk(torch, root, error) && place_storages(torch, &pickle);
    pickle_release(&pickle);
    return ok;
}

/*
 * A tensor that was pickled by Python's pickle, without torch.save, has its storage as
 * a call of torch.storage._load_from_bytes with the bytes of a legacy file.
 */

/* What is saved of the outer file while such a file, which has storage keys of its
 * own, is read. */
struct nested {
    struct torch *torch;
    struct tc_name_map keys;
    struct tc_name_map part_names;
    struct torch_part *parts;
    size_t part_capacity;
    bool legacy;
};

static void begin_nested(struct nested *nested, struct torch *torch) {
    *nested = (struct nested){.torch = torch,
                              .keys = torch->keys,
                              .part_names = torch->part_names,
                              .parts = torch->parts,
                              .part_capacity = torch->part_capacity,
                              .legacy = torch->legacy};
    tc_name_map_init(&torch->keys, &torch->reader->arena);
    tc_name_map_init(&torch->part_names, &torch->reader->arena);
    torch->parts = NULL;
    torch->part_capacity = 0;
    torch->legacy = true;
}

static void end_nested(struct nested *nested) {
    struct torch *torch = nested->torch;
    free(torch->parts);
    tc_name_map_release(&torch->keys);
    tc_name_map_release(&torch->part_names);
    torch->keys = nested->keys;
    torch->part_names = nested->part_names;
    torch->parts = nested->parts;
    torch->part_capacity = nested->part_capacity;
    torch->legacy = nested->legacy;
}

static bool read_nested(struct torch *torch, struct pickle *pickle, struct pickle_node **root) {
    if (!read_magic(pickle) || !torch_read_system(pickle) || !pickle_load(pickle, root))
        return false;
    if ((*root)->kind != PICKLE_STORAGE)
        return tc_fail(pickle->error, TC_UNSUPPORTED, "nested-pickle",
                       "bytes that hold a torch file of more than one storage");
    return place_storages(torch, pickle);
}

struct pickle_node *torch_nested_storage(struct torch_walk *walk, const struct pickle_node *call) {
    struct torch *torch = walk->torch;
    struct pickle_node *bytes = pickle_item(call->arguments, 0);
    struct pickle_node *root = NULL;
    struct nested nested;
    struct pickle pickle;
    if (!pickle_is(bytes, PICKLE_BYTES) || call->arguments->count != 1) {
        torch_walk_bad(walk, "a storage's file is no bytes");
        return NULL;
    }
    if (bytes->content) {
        if (bytes->content->kind != PICKLE_STORAGE)
            torch_walk_bad(walk, "a storage's file is broken");
        return bytes->content->kind == PICKLE_STORAGE ? bytes->content : NULL;
    }
    size_t before = torch->storage_count;
    /* Marks it as broken, until it was read: it is tried only once. */
    bytes->content = bytes;
    begin_nested(&nested, torch);
    torch_pickle_init(torch, &pickle, bytes->offset, bytes->offset + bytes->length, walk->error);
    if (bytes->text) {
        pickle.memory = (const unsigned char *)bytes->text;
        pickle.input = NULL;
        pickle.at = 0;
        pickle.end = bytes->length;
    }
    bool ok = read_nested(torch, &pickle, &root);
    torch_count_pickle(torch, &pickle);
    pickle_release(&pickle);
    end_nested(&nested);
    if (!ok) {
        for (size_t i = before; i < torch->storage_count; i++)
            torch->storages[i].excused = true;
        torch_walk_here(walk);
        return NULL;
    }
    return bytes->content = root;
}
