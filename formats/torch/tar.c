/*
 * Files of torch 0.1: a tar of four members, which is read in place.
 *     sys_info   as in legacy files
 *     storages   pickled count; for each a pickled (key, location, class), i64
 *                number of elements, elements; then a pickled list of views
 *                (key, root's key, offset, number of elements)
 *     tensors    pickled count; for each a pickled (key, storage's key, class),
 *                i32 rank, 4 bytes, i64 sizes, strides, offset
 *     pickle     the object; persistent ids are keys of tensors or storages
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"
#include "formats/pickle/option.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/torch/torch.h"

#define BLOCK 512u

enum { SYSTEM, STORAGES, TENSORS, PICKLE, MEMBERS };
static const char *const names[MEMBERS] = {"sys_info", "storages", "tensors", "pickle"};

struct range {
    uint64_t at;
    uint64_t end;
    bool seen;
};

struct tar {
    struct torch *torch;
    struct range members[MEMBERS];
    struct tc_name_map tensors; /* by key; the number is a position in `calls` */
    struct pickle_node **calls; /* a call of torch's rebuild function for each tensor */
    size_t count;
    struct tc_name_map views; /* storages and parts of them; the number is one in `parts` */
    struct pickle_node **parts;
};

static bool bad(struct tc_error *error, uint64_t at, const char *what) {
    tc_fail(error, TC_INVALID, "tar", "bad tar: %s", what);
    return tc_error_at(error, at);
}

/* Reads octal digits, as ustar has them, or GNU's base 256 for larger numbers. */
static bool read_number(const unsigned char *field, size_t length, uint64_t *number) {
    *number = 0;
    if (field[0] & 0x80) {
        if (field[0] != 0x80)
            return false; /* negative, or beyond 64 bits */
        for (size_t i = 1; i < length; i++) {
            if (*number >> 55)
                return false;
            *number = *number << 8 | field[i];
        }
        return true;
    }
    size_t at = 0;
    size_t digits = 0;
    while (at < length && field[at] == ' ')
        at++;
    for (; at < length && field[at] >= '0' && field[at] <= '7'; at++, digits++)
        *number = *number << 3 | (uint64_t)(field[at] - '0');
    while (at < length && (field[at] == ' ' || field[at] == '\0'))
        at++;
    return digits && at == length;
}

static bool check_sum(const unsigned char *header) {
    uint64_t expected;
    uint64_t sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : header[i];
    return read_number(header + 148, 8, &expected) && sum == expected;
}

static bool is_zero(const unsigned char *block) {
    for (size_t i = 0; i < BLOCK; i++)
        if (block[i])
            return false;
    return true;
}

static struct tc_text member_name(const unsigned char *header) {
    const char *name = (const char *)header;
    struct tc_text text = {name, strnlen(name, 100)};
    if (text.length > 2 && memcmp(name, "./", 2) == 0) {
        text.bytes += 2;
        text.length -= 2;
    }
    return text;
}

/* Checks a member's kind: only plain files and folders, and PAX headers, are accepted. */
static bool check_kind(const unsigned char *header, uint64_t at, uint64_t size,
                       struct tc_error *error) {
    struct tc_text name = member_name(header);
    bool climbs = tc_text_starts(name, TC_TEXT("/")) || tc_text_starts(name, TC_TEXT("../")) ||
                  memmem(name.bytes, name.length, "/../", 4) || header[345] == '/';
    switch (header[156]) {
    case '0':
    case '\0':
    case '7':
    case '5':
        if (climbs)
            break;
        return true;
    case 'x':
    case 'g':
        return size <= 1 << 20 || tc_fail(error, TC_UNSAFE, "tar", "a tar header of %llu bytes",
                                          (unsigned long long)size);
    case 'L':
    case 'K':
        if (size > 1 << 16)
            return tc_fail(error, TC_UNSAFE, "tar", "a tar member's name has %llu bytes",
                           (unsigned long long)size);
        return tc_fail(error, TC_UNSUPPORTED, "tar", "a tar of long names; no torch file");
    case 'S':
        return tc_fail(error, TC_UNSUPPORTED, "tar", "a tar with sparse members");
    default:
        break;
    }
    tc_fail(error, TC_UNSAFE, "tar",
            climbs ? "a tar member leaves its folder" : "a tar member that is no plain file");
    return tc_error_at(error, at);
}

static bool holds(struct tc_text text, const char *word) {
    return text.bytes && memmem(text.bytes, text.length, word, strlen(word));
}

/* Checks that a PAX header consists of records "LENGTH key=value\n", none of which
 * changes how a member is read. */
static bool check_pax(struct tar *tar, uint64_t at, uint64_t size, struct tc_error *error) {
    char *text = tc_reader_load(tar->torch->reader, at, size, error);
    bool ok = true;
    if (!text)
        return false;
    for (uint64_t done = 0; ok && done < size;) {
        uint64_t length = 0;
        uint64_t digits = 0;
        while (done + digits < size && digits < 19 && text[done + digits] >= '0' &&
               text[done + digits] <= '9')
            length = length * 10 + (uint64_t)(text[done + digits++] - '0');
        if (!digits || length <= digits || length > size - done ||
            text[done + length - 1] != '\n' || text[done + digits] != ' ' ||
            !memchr(text + done, '=', length))
            ok = bad(error, at + done, "a PAX record is not what its length says");
        else if (holds((struct tc_text){text + done, length}, " GNU.sparse"))
            ok = tc_fail(error, TC_UNSUPPORTED, "tar", "a tar with sparse members");
        else if (holds((struct tc_text){text + done, length}, " path=") ||
                 holds((struct tc_text){text + done, length}, " size="))
            ok = tc_fail(error, TC_UNSUPPORTED, "tar", "a tar whose PAX header renames members");
        done += length;
    }
    free(text);
    return ok;
}

static bool find_members(struct tar *tar, struct tc_error *error) {
    struct tc_input *input = tar->torch->reader->input;
    unsigned char header[BLOCK];
    uint64_t at = 0;
    bool ended = false;
    while (at < input->size && !ended) {
        uint64_t size;
        if (input->size - at < BLOCK)
            return bad(error, at, "it is cut short");
        if (!tc_input_read(input, at, header, BLOCK, error))
            return false;
        if (is_zero(header)) {
            /* Two empty blocks end a tar. */
            if (input->size - at < 2 * BLOCK)
                return bad(error, at, "it is cut short");
            if (!tc_input_read(input, at + BLOCK, header, BLOCK, error))
                return false;
            if (!is_zero(header))
                return bad(error, at, "an empty block among the members");
            ended = true;
            break;
        }
        if (!check_sum(header))
            return bad(error, at, "a header's checksum is wrong");
        if (!read_number(header + 124, 12, &size) || size > INT64_MAX - BLOCK)
            return bad(error, at, "a member's size is no number");
        if (!check_kind(header, at, size, error))
            return false;
        at += BLOCK;
        uint64_t padded = (size + BLOCK - 1) / BLOCK * BLOCK;
        if (padded > input->size - at)
            return bad(error, at, "it is cut short");
        if ((header[156] == 'x' || header[156] == 'g') && !check_pax(tar, at, size, error))
            return false;
        struct tc_text name = member_name(header);
        for (int i = 0; i < MEMBERS && (header[156] == '0' || header[156] == '\0'); i++)
            if (tc_text_equal(name, tc_text_of(names[i]))) {
                if (tar->members[i].seen)
                    return bad(error, at, "a member is there twice");
                tar->members[i] = (struct range){at, at + size, true};
            }
        at += padded;
    }
    if (!ended)
        return bad(error, at, "it is cut short");
    bool any = false;
    for (int i = 0; i < MEMBERS; i++)
        any |= tar->members[i].seen;
    if (!any) {
        tc_fail(error, TC_UNSUPPORTED, "wrong-file", "this is a tar archive, but no torch file");
        tc_error_because(error, TC_REASON_NO_FORMAT);
        return tc_error_hint(error, "unpack it first with: tar -xf");
    }
    for (int i = 0; i < MEMBERS; i++)
        if (!tar->members[i].seen)
            return tc_fail(error, TC_INVALID, "tar", "the tar has no member %s", names[i]);
    return true;
}

/* Reads the pickled number that a member starts with. */
static bool read_count(struct pickle *pickle, uint64_t *count) {
    struct pickle_node *node;
    if (!pickle_load(pickle, &node))
        return false;
    if (node->kind != PICKLE_INT || node->integer < 0)
        return pickle_bad(pickle, "a count is no number");
    *count = (uint64_t)node->integer;
    return true;
}

/* A key as text for a name map, in the arena; in the file keys are mostly numbers. */
static bool key_text(struct tar *tar, const struct pickle_node *node, struct tc_text *key,
                     struct tc_error *error) {
    struct tc_buffer text = {0};
    if (pickle_is(node, PICKLE_INT))
        tc_buffer_addf(&text, "%lld", (long long)node->integer);
    else if (pickle_is(node, PICKLE_TEXT) || pickle_is(node, PICKLE_LONG))
        tc_buffer_add_text(&text, pickle_text(node));
    else
        return tc_fail(error, TC_INVALID, "tar", "a key is neither a number nor a string");
    char *copy = tc_buffer_ok(&text, error)
                     ? tc_arena_copy(&tar->torch->reader->arena, text.length ? text.bytes : "",
                                     text.length, error)
                     : NULL;
    *key = (struct tc_text){copy, text.length};
    tc_buffer_release(&text);
    return copy != NULL;
}

static enum tc_dtype class_dtype(const struct pickle_node *class) {
    return pickle_is(class, PICKLE_GLOBAL) && class->global == PICKLE_STORAGE_CLASS
               ? (enum tc_dtype) class->value
               : TC_NONE;
}

/* A node that stands for a part of a storage. */
static struct pickle_node *storage_node(struct pickle *pickle, uint32_t index, uint64_t offset,
                                        uint64_t length) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_STORAGE);
    if (node) {
        node->index = index;
        node->offset = offset;
        node->length = length;
    }
    return node;
}

/* Appends a node to a list of `count`, which doubles when it is full. */
static bool put_node(struct tar *tar, struct pickle_node ***list, size_t count,
                     struct pickle_node *node, struct tc_error *error) {
    bool full = count == 0 || (count >= 16 && (count & (count - 1)) == 0);
    if (full) {
        size_t larger = count ? count * 2 : 16;
        if (!tc_arena_charge(&tar->torch->reader->arena, (larger - count) * sizeof **list, error))
            return false;
        struct pickle_node **grown = reallocarray(*list, larger, sizeof *grown);
        if (!grown)
            return tc_fail_memory(error);
        *list = grown;
    }
    (*list)[count] = node;
    return true;
}

static bool add_part(struct tar *tar, struct tc_text key, struct pickle_node *node,
                     struct tc_error *error) {
    size_t count = tar->views.count;
    return node && put_node(tar, &tar->parts, count, node, error) &&
           tc_name_add(&tar->views, key, (uint32_t)count, TC_MAX_NAMES, error);
}

static bool read_storage(struct tar *tar, struct pickle *pickle, struct tc_error *error) {
    struct pickle_node *node;
    struct tc_text key;
    uint32_t index;
    if (!pickle_load(pickle, &node))
        return false;
    enum tc_dtype dtype = class_dtype(pickle_item(node, 2));
    if (dtype == TC_NONE || node->count != 3)
        return pickle_bad(pickle, "a storage is not (key, location, class)");
    if (!key_text(tar, node->items[0], &key, error))
        return false;
    if (tc_name_map_find(&tar->torch->keys, key))
        return pickle_bad(pickle, "a storage is there twice");
    uint64_t count;
    if (!torch_take_u64(pickle, &count) ||
        !torch_add_storage(tar->torch, key, dtype, count, &index, error) ||
        !torch_place_storage(pickle, &tar->torch->storages[index]))
        return false;
    return add_part(tar, key, storage_node(pickle, index, 0, tar->torch->storages[index].nbytes),
                    error);
}

static bool read_view(struct tar *tar, struct pickle *pickle, const struct pickle_node *view,
                      struct tc_error *error) {
    struct tc_text key;
    struct tc_text root;
    const struct pickle_node *offset = pickle_item(view, 2);
    const struct pickle_node *numel = pickle_item(view, 3);
    if (!pickle_is(offset, PICKLE_INT) || !pickle_is(numel, PICKLE_INT) || view->count != 4 ||
        offset->integer < 0 || numel->integer < 0)
        return pickle_bad(pickle, "a view of a storage is not (key, root, offset, count)");
    if (!key_text(tar, view->items[0], &key, error) || !key_text(tar, view->items[1], &root, error))
        return false;
    const uint32_t *found = tc_name_map_find(&tar->torch->keys, root);
    if (!found || tc_name_map_find(&tar->views, key))
        return pickle_bad(pickle, found ? "a view of a storage is there twice"
                                        : "a view of a storage that is not there");
    const struct torch_storage *storage = &tar->torch->storages[*found];
    uint64_t element = tc_dtype_bits(storage->dtype) / 8;
    uint64_t start;
    uint64_t length;
    if (!tc_mul((uint64_t)offset->integer, element, &start) ||
        !tc_mul((uint64_t)numel->integer, element, &length) ||
        !tc_range_within(start, length, storage->nbytes))
        return pickle_bad(pickle, "a view reaches past its storage");
    return add_part(tar, key, storage_node(pickle, *found, start, length), error);
}

static bool read_storages(struct tar *tar, struct pickle *pickle, struct tc_error *error) {
    uint64_t count = 0;
    struct pickle_node *views;
    if (!read_count(pickle, &count))
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (!read_storage(tar, pickle, error))
            return false;
    if (!pickle_load(pickle, &views))
        return false;
    if (views->kind != PICKLE_LIST)
        return pickle_bad(pickle, "the views of storages are no list");
    for (size_t i = 0; i < views->count; i++)
        if (!read_view(tar, pickle, views->items[i], error))
            return false;
    return pickle->at == pickle->end || pickle_bad(pickle, "something stands behind the storages");
}

/* The next i64 of a tensor's record. */
static struct pickle_node *take_integer(struct pickle *pickle) {
    uint64_t value;
    struct pickle_node *node =
        torch_take_u64(pickle, &value) ? pickle_node(pickle, PICKLE_INT) : NULL;
    if (node)
        node->integer = (int64_t)value;
    return node;
}

/* Reads a tensor's record as arguments of a call: (storage, offset, sizes, strides). */
static struct pickle_node *read_arguments(struct pickle *pickle, struct pickle_node *storage) {
    struct pickle_node *arguments = pickle_node(pickle, PICKLE_TUPLE);
    struct pickle_node *lists[2] = {pickle_node(pickle, PICKLE_TUPLE),
                                    pickle_node(pickle, PICKLE_TUPLE)};
    const struct pickle_node *first =
        arguments && lists[0] && lists[1] ? take_integer(pickle) : NULL;
    if (!first)
        return NULL;
    /* The rank is an i32, and four bytes without a meaning follow. */
    int32_t rank = (int32_t)((uint64_t)first->integer & UINT32_MAX);
    if (rank < 0 || rank > (int32_t)TC_MAX_RANK) {
        pickle_bad(pickle, "a tensor has %d dimensions", rank);
        return NULL;
    }
    for (int l = 0; l < 2; l++)
        for (int32_t i = 0; i < rank; i++) {
            struct pickle_node *node = take_integer(pickle);
            if (!node || !pickle_add(pickle, lists[l], node))
                return NULL;
        }
    struct pickle_node *offset = take_integer(pickle);
    bool ok = offset && pickle_add(pickle, arguments, storage) &&
              pickle_add(pickle, arguments, offset) && pickle_add(pickle, arguments, lists[0]) &&
              pickle_add(pickle, arguments, lists[1]);
    return ok ? arguments : NULL;
}

static bool read_tensor(struct tar *tar, struct pickle *pickle, struct pickle_node *rebuild,
                        struct tc_error *error) {
    struct pickle_node *node;
    struct tc_text key;
    struct tc_text storage;
    if (!pickle_load(pickle, &node))
        return false;
    if (!pickle_item(node, 2) || node->count != 3)
        return pickle_bad(pickle, "a tensor is not (key, storage, class)");
    if (!key_text(tar, node->items[0], &key, error) ||
        !key_text(tar, node->items[1], &storage, error))
        return false;
    const uint32_t *found = tc_name_map_find(&tar->views, storage);
    if (!found || tc_name_map_find(&tar->tensors, key))
        return pickle_bad(pickle, found ? "a tensor is there twice"
                                        : "a tensor of a storage that is not there");
    struct pickle_node *arguments = read_arguments(pickle, tar->parts[*found]);
    struct pickle_node *call = arguments ? pickle_node(pickle, PICKLE_CALL) : NULL;
    if (!call || !put_node(tar, &tar->calls, tar->count, call, error))
        return false;
    call->callable = rebuild;
    call->arguments = arguments;
    return tc_name_add(&tar->tensors, key, (uint32_t)tar->count++, TC_MAX_NAMES, error);
}

/* The class of a tensor, torch.FloatTensor and so on, is not used: it only says the
 * dtype, which the storage has too. */
static bool read_tensors(struct tar *tar, struct pickle *pickle, struct tc_error *error) {
    uint64_t count = 0;
    struct pickle_node *rebuild = pickle_node(pickle, PICKLE_GLOBAL);
    if (!rebuild || !read_count(pickle, &count))
        return false;
    rebuild->global = PICKLE_REBUILD;
    for (uint64_t i = 0; i < count; i++)
        if (!read_tensor(tar, pickle, rebuild, error))
            return false;
    return pickle->at == pickle->end || pickle_bad(pickle, "something stands behind the tensors");
}

static bool persistent(void *context, const struct pickle_node *id, struct pickle_node **node,
                       struct tc_error *error) {
    struct tar *tar = ((struct torch *)context)->container;
    struct tc_text key;
    /* The class of a whole module is stored as (class, file, source). */
    if (id->kind == PICKLE_TUPLE) {
        struct pickle_node *class = pickle_item(id, 0);
        if (!class || !pickle_is_inert(tar->torch->reader->options))
            return tc_fail(error, TC_UNSAFE, "pickle-module",
                           "the file holds a whole module with its source text");
        *node = class;
        return true;
    }
    if (!key_text(tar, id, &key, error))
        return false;
    const uint32_t *tensor = tc_name_map_find(&tar->tensors, key);
    const uint32_t *storage = tensor ? NULL : tc_name_map_find(&tar->views, key);
    if (!tensor && !storage)
        return tc_fail(error, TC_INVALID, "tar", "the pickle names a tensor that is not there");
    *node = tensor ? tar->calls[*tensor] : tar->parts[*storage];
    return true;
}

/* Reads one of the four members. One machine, and so one budget, serves all of them. */
static bool run(struct tar *tar, struct pickle *pickle, int member) {
    pickle->at = tar->members[member].at;
    pickle->end = tar->members[member].end;
    struct pickle_node *root = NULL;
    if (tar->torch->watch.context)
        tar->torch->watch.on_member(tar->torch->watch.context, names[member]);
    switch (member) {
    case SYSTEM:
        return torch_read_system(pickle) &&
               (pickle->at == pickle->end || pickle_bad(pickle, "something stands behind it"));
    case STORAGES:
        return read_storages(tar, pickle, pickle->error);
    case TENSORS:
        return read_tensors(tar, pickle, pickle->error);
    default:
        pickle->persistent = persistent;
        pickle->keys = true;
        tar->torch->container = tar;
        if (tar->torch->watch.context)
            torch_watch_pickle(tar->torch, pickle);
        if (!pickle_load(pickle, &root))
            return false;
        torch_count_pickle(tar->torch, pickle);
        return (pickle->at == pickle->end || pickle_bad(pickle, "something stands behind it")) &&
               torch_walk(tar->torch, root, pickle->error);
    }
}

bool torch_open_tar(struct torch *torch, struct tc_error *error) {
    struct tar tar = {.torch = torch};
    struct pickle pickle;
    torch->legacy = true;
    tc_name_map_init(&tar.tensors, &torch->reader->arena);
    tc_name_map_init(&tar.views, &torch->reader->arena);
    torch_pickle_init(torch, &pickle, 0, 0, error);
    bool ok = find_members(&tar, error);
    for (int member = SYSTEM; member < MEMBERS && ok; member++)
        ok = run(&tar, &pickle, member);
    pickle_release(&pickle);
    tc_name_map_release(&tar.tensors);
    tc_name_map_release(&tar.views);
    free(tar.calls);
    free(tar.parts);
    return ok;
}
