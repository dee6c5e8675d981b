#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/pickle/option.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/torch.h"
#include "formats/zip/directory.h"

static struct torch_storage *new_storage(struct torch *torch, uint32_t *index,
                                         struct tc_error *error) {
    if (torch->storage_count == torch->storage_capacity &&
        !torch_grow(torch, (void **)&torch->storages, &torch->storage_capacity,
                    sizeof *torch->storages, error))
        return NULL;
    *index = (uint32_t)torch->storage_count;
    struct torch_storage *storage = &torch->storages[torch->storage_count++];
    *storage = (struct torch_storage){.dtype = TC_NONE};
    return storage;
}

bool torch_add_bytes(struct torch *torch, const void *memory, uint64_t offset, uint64_t nbytes,
                     uint32_t *index, struct tc_error *error) {
    struct torch_storage *storage = new_storage(torch, index, error);
    if (!storage)
        return false;
    storage->memory = memory;
    storage->offset = offset;
    storage->nbytes = nbytes;
    storage->placed = true;
    return true;
}

static unsigned element_bytes(enum tc_dtype dtype) {
    return dtype == TC_NONE ? 1 : tc_dtype_bits(dtype) / 8;
}

uint64_t torch_storage_numel(const struct torch_storage *storage) {
    return storage->nbytes / element_bytes(storage->dtype);
}

/* Checks that a storage that is named again has the same dtype and size. */
static bool check_again(const struct torch *torch, uint32_t index, struct tc_text key,
                        enum tc_dtype dtype, uint64_t numel, struct tc_error *error) {
    const struct torch_storage *storage = &torch->storages[index];
    if (storage->dtype == dtype && torch_storage_numel(storage) == numel)
        return true;
    return tc_fail(error, TC_INVALID, "storage",
                   "storage \"%.*s\" is named with two types or sizes", tc_text_shown(key, 200),
                   key.bytes);
}

static bool make_storage(struct torch *torch, enum tc_dtype dtype, uint64_t numel, uint32_t *index,
                         struct tc_error *error) {
    struct torch_storage *storage = new_storage(torch, index, error);
    if (!storage)
        return false;
    storage->dtype = (uint8_t)dtype;
    storage->swap = torch->swap;
    return tc_mul(numel, element_bytes(dtype), &storage->nbytes) ||
           tc_fail(error, TC_INVALID, "storage", "a storage's size overflows 64 bits");
}

/* Adds a key of a persistent id, which does not last. */
static bool keep_key(struct torch *torch, struct tc_name_map *keys, struct tc_text key,
                     uint32_t number, struct tc_error *error) {
    char *copy = tc_arena_pack(&torch->reader->arena, key.length + 1, 1, error);
    if (copy && key.length)
        memcpy(copy, key.bytes, key.length);
    return copy &&
           tc_name_add(keys, (struct tc_text){copy, key.length}, number, TC_MAX_NAMES, error);
}

/* In a zip a storage is a member, of exactly its size. A member that is missing becomes
 * an error with the tensor that needs it (torch_check_storage). */
static bool add_in_zip(struct torch *torch, struct tc_text key, enum tc_dtype dtype, uint64_t numel,
                       uint32_t *index, struct tc_error *error) {
    const struct zip_member *member = torch_find_member(torch, torch->folder, key);
    uint32_t *used = member ? &torch->used[member - torch->zip.members] : NULL;
    const uint32_t *missed = member ? NULL : tc_name_map_find(&torch->keys, key);
    if ((used && *used) || missed) {
        *index = missed ? *missed : *used - 1;
        return check_again(torch, *index, key, dtype, numel, error);
    }
    if (!make_storage(torch, dtype, numel, index, error))
        return false;
    if (!used) {
        torch->storages[*index].key = (uint32_t)torch->keys.count + 1;
        return keep_key(torch, &torch->keys, key, *index, error);
    }
    struct torch_storage *storage = &torch->storages[*index];
    *used = *index + 1;
    storage->member = member;
    storage->offset = member->data;
    storage->placed = member->size == storage->nbytes;
    return true;
}

/* The key of a storage: its member's name in the folder of storages. */
static struct tc_text member_key(const struct torch *torch, const struct zip_member *member) {
    struct tc_text key = member->name;
    key.bytes += torch->root.length;
    key.length -= torch->root.length;
    const char *slash = torch->model ? NULL : memchr(key.bytes, '/', key.length);
    size_t folder = slash ? (size_t)(slash - key.bytes) + 1 : 0;
    return (struct tc_text){key.bytes + folder, key.length - folder};
}

bool torch_check_storage(const struct torch *torch, uint32_t index, struct tc_error *error) {
    const struct torch_storage *storage = &torch->storages[index];
    if (storage->placed || torch->legacy)
        return true;
    struct tc_text key = storage->key ? torch->keys.entries[storage->key - 1].name : TC_TEXT("");
    if (storage->member)
        key = member_key(torch, storage->member);
    if (!storage->member)
        return tc_fail(error, TC_INVALID, "storage", "storage \"%.*s\" is not in the file",
                       tc_text_shown(key, 200), key.bytes);
    return tc_fail(error, TC_INVALID, "storage", "storage \"%.*s\" has %llu bytes (expected %llu)",
                   tc_text_shown(key, 200), key.bytes, (unsigned long long)storage->member->size,
                   (unsigned long long)storage->nbytes);
}

bool torch_add_storage(struct torch *torch, struct tc_text key, enum tc_dtype dtype, uint64_t numel,
                       uint32_t *index, struct tc_error *error) {
    if (!torch->legacy)
        return add_in_zip(torch, key, dtype, numel, index, error);
    const uint32_t *present = tc_name_map_find(&torch->keys, key);
    if (present) {
        *index = *present;
        return check_again(torch, *index, key, dtype, numel, error);
    }
    if (!make_storage(torch, dtype, numel, index, error))
        return false;
    return keep_key(torch, &torch->keys, key, *index, error);
}

/* Persistent ids */

static bool bad_id(struct tc_error *error, const char *what) {
    return tc_fail(error, TC_INVALID, "persistent-id", "a bad persistent id: %s", what);
}

/* Reads a part of a storage: (key, offset, size), in elements. */
static bool read_part(struct torch *torch, const struct pickle_node *part, struct pickle_node *node,
                      uint64_t element, struct tc_error *error) {
    const struct pickle_node *key = pickle_item(part, 0);
    const struct pickle_node *offset = pickle_item(part, 1);
    const struct pickle_node *size = pickle_item(part, 2);
    if (!size || part->count != 3 || !pickle_is(key, PICKLE_TEXT) ||
        !pickle_is(offset, PICKLE_INT) || !pickle_is(size, PICKLE_INT) || offset->integer < 0 ||
        size->integer < 0)
        return bad_id(error, "not a view of a storage");
    if (tc_name_map_find(&torch->keys, pickle_text(key)))
        return bad_id(error, "a view has the name of a storage");
    uint64_t nbytes = torch->storages[node->index].nbytes;
    if (!tc_mul((uint64_t)offset->integer, element, &node->offset) ||
        !tc_mul((uint64_t)size->integer, element, &node->length) ||
        !tc_range_within(node->offset, node->length, nbytes))
        return bad_id(error, "a view reaches past its storage");
    const uint32_t *found = tc_name_map_find(&torch->part_names, pickle_text(key));
    if (found) {
        const struct torch_part *known = &torch->parts[*found];
        return (known->storage == node->index && known->offset == node->offset &&
                known->nbytes == node->length) ||
               bad_id(error, "a view of a storage is in two places");
    }
    uint32_t next = (uint32_t)torch->part_names.count;
    if (next == torch->part_capacity &&
        !torch_grow(torch, (void **)&torch->parts, &torch->part_capacity, sizeof *torch->parts,
                    error))
        return false;
    torch->parts[next] = (struct torch_part){(uint32_t)node->index, node->offset, node->length};
    return keep_key(torch, &torch->part_names, pickle_text(key), next, error);
}

bool torch_persistent(void *context, const struct pickle_node *id, struct pickle_node **made,
                      struct tc_error *error) {
    struct pickle_node *node = *made;
    struct torch *torch = context;
    const struct pickle_node *tag = pickle_item(id, 0);
    struct pickle_node *class = pickle_item(id, 1);
    const struct pickle_node *key = pickle_item(id, 2);
    const struct pickle_node *numel = pickle_item(id, 4);
    if (!pickle_is(tag, PICKLE_TEXT) || id->kind != PICKLE_TUPLE)
        return bad_id(error, "not a tuple that starts with a word");
    if (tc_text_equal(pickle_text(tag), TC_TEXT("module"))) {
        if (class && pickle_is_inert(torch->reader->options)) {
            *made = class; /* the class alone, without its source text */
            return true;
        }
        tc_fail(error, TC_UNSAFE, "pickle-module",
                "the file holds a whole module with its source text");
        return tc_error_hint(error, "--pickle=inert takes its tensors out, and runs nothing");
    }
    if (!tc_text_equal(pickle_text(tag), TC_TEXT("storage")))
        return bad_id(error, "not that of a storage");
    if (!numel || id->count > (torch->legacy ? 6 : 5) || !pickle_is(class, PICKLE_GLOBAL) ||
        class->global != PICKLE_STORAGE_CLASS || !pickle_is(key, PICKLE_TEXT) ||
        !pickle_is(pickle_item(id, 3), PICKLE_TEXT) || numel->kind != PICKLE_INT ||
        numel->integer < 0)
        return bad_id(error, "not (\"storage\", class, key, location, count)");
    uint32_t index;
    if (!torch_add_storage(torch, pickle_text(key), class->value, (uint64_t)numel->integer, &index,
                           error))
        return false;
    node->index = index;
    node->length = torch->storages[index].nbytes;
    const struct pickle_node *part = pickle_item(id, 5);
    uint64_t element = class->value == TC_NONE ? 1 : tc_dtype_bits(class->value) / 8;
    return !part || part->kind == PICKLE_NONE || read_part(torch, part, node, element, error);
}
