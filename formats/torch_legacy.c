/*
 * torch < 1.6: pickles in a row, then the storages.
 *     0x1950a86a20f9469cfc6c     the magic number
 *     1001                       the protocol
 *     {'little_endian': …, …}    sys_info
 *     the object
 *     [key, …]                   the storages, in the order in which they follow:
 *     i64 number of elements, and the elements
 */
#include <string.h>

#include "core/bytes.h"
#include "core/checked.h"
#include "formats/torch.h"

#define MAGIC_DECIMAL "119547037146038801333356"
#define PROTOCOL 1001

bool torch_legacy_seen(const struct tc_probe *probe) {
    static const unsigned char binary[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                           0x20, 0x6a, 0xa8, 0x50, 0x19};
    size_t length = probe->length < 64 ? probe->length : 64;
    return memmem(probe->head, length, binary, sizeof binary) != NULL ||
           memmem(probe->head, length, MAGIC_DECIMAL, strlen(MAGIC_DECIMAL)) != NULL;
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
            /* torch writes storages little-endian on every machine; whether
             * such a file was ever made otherwise nobody can tell. */
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

bool torch_take_u64(struct torch *torch, uint64_t *at, uint64_t end, uint64_t *value,
                    struct tc_error *error) {
    unsigned char bytes[8];
    if (end - *at < sizeof bytes) {
        tc_fail(error, TC_INVALID, "truncated", "a storage or tensor is cut short");
        return tc_error_at(error, *at);
    }
    if (!tc_input_read(torch->reader->input, *at, bytes, sizeof bytes, error))
        return false;
    *value = tc_load(bytes, sizeof bytes);
    *at += sizeof bytes;
    return true;
}

bool torch_place_storage(struct torch_storage *storage, uint64_t *at, uint64_t end,
                         struct tc_error *error) {
    if (storage->nbytes > end - *at) {
        tc_fail(error, TC_INVALID, "truncated", "a storage is cut short by %llu bytes",
                (unsigned long long)(storage->nbytes - (end - *at)));
        return tc_error_at(error, *at);
    }
    storage->offset = *at;
    storage->placed = true;
    *at += storage->nbytes;
    return true;
}

/* One storage: its count, which the pickle told already, and its elements. */
static bool read_storage(struct torch *torch, struct torch_storage *storage, uint64_t *at,
                         uint64_t end, struct tc_error *error) {
    uint64_t start = *at;
    uint64_t count;
    if (!torch_take_u64(torch, at, end, &count, error))
        return false;
    if (count == storage->numel)
        return torch_place_storage(storage, at, end, error);
    tc_fail(error, TC_INVALID, "storage", "a storage has %lld elements (expected %llu)",
            (long long)count, (unsigned long long)storage->numel);
    return tc_error_at(error, start);
}

static bool place_storages(struct torch *torch, struct pickle *pickle) {
    struct pickle_node *keys;
    uint64_t end = torch->reader->input->size;
    if (!pickle_load(pickle, &keys))
        return false;
    if (keys->kind != PICKLE_LIST)
        return bad(pickle, "the storages' keys are no list");
    uint64_t at = pickle->at;
    for (size_t i = 0; i < keys->count; i++) {
        const struct pickle_node *key = keys->items[i];
        const struct tc_tensor *found =
            key->kind == PICKLE_TEXT ? tc_table_find(&torch->keys, pickle_text(key)) : NULL;
        struct torch_storage *storage = found ? &torch->storages[found->cookie] : NULL;
        if (!storage || storage->placed)
            return bad(pickle,
                       storage ? "a storage is there twice" : "a storage that nothing refers to");
        if (!read_storage(torch, storage, &at, end, pickle->error))
            return false;
    }
    if (keys->count != torch->keys.count)
        return bad(pickle, "a storage is missing");
    if (at == end)
        return true;
    tc_fail(pickle->error, TC_INVALID, "trailing", "%llu bytes stand behind the last storage",
            (unsigned long long)(end - at));
    return tc_error_at(pickle->error, at);
}

bool torch_open_legacy(struct torch *torch, struct tc_error *error) {
    struct pickle pickle;
    struct pickle_node *root;
    torch->legacy = true;
    torch_pickle_init(torch, &pickle, 0, torch->reader->input->size, error);
    bool ok = read_magic(&pickle) && torch_read_system(&pickle) && pickle_load(&pickle, &root);
    torch->steps = pickle.steps;
    ok = ok && torch_walk(torch, root, error) && place_storages(torch, &pickle);
    pickle_release(&pickle);
    return ok;
}
