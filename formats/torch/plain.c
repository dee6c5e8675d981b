/*
 * A plain pickle (.pkl): one object, and nothing behind it. Python's pickle writes
 * such files from dicts and lists of arrays, and from tensors, whose storages are
 * then legacy files in strings of bytes (legacy.c).
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/deflate.h"
#include "core/io/input.h"
#include "formats/pickle/opcodes.h"
#include "formats/pickle/pickle.h"
#include "formats/pickle/run.h"
#include "formats/registry.h"
#include "formats/torch/torch.h"

/* Fails where something follows the first pickle: more pickles are not supported,
 * anything else is damage. */
static bool check_behind(struct pickle *pickle, struct tc_error *error) {
    uint64_t first = pickle->at;
    struct pickle_node *other;
    if (pickle->at == pickle->end)
        return true;
    bool ok = true;
    while (ok && pickle->at < pickle->end)
        ok = pickle_load(pickle, &other);
    if (ok) {
        tc_fail(error, TC_UNSUPPORTED, "several-pickles",
                "several pickles in one file, one after the other");
    } else if (error->class == TC_INVALID) {
        *error = (struct tc_error){0};
        tc_fail(error, TC_INVALID, "trailing", "something stands behind the pickle");
    }
    return tc_error_at(error, first);
}

/* A file that starts without PROTO, names nothing and fails was never a pickle: the
 * error then says what it is instead. */
static bool explain(struct torch *torch, const struct pickle *pickle, struct tc_error *error) {
    unsigned char head[2] = {0};
    struct tc_input *input = torch->reader->input;
    struct tc_error ignored = {0};
    size_t length = input->size < sizeof head ? input->size : sizeof head;
    bool looked = tc_input_read(input, 0, head, length, &ignored);
    if (error->class != TC_INVALID || pickle->named || !looked ||
        (head[0] == OP_PROTO && head[1] <= PICKLE_PROTOCOL) || pickle->memory ||
        torch->watch.context)
        return false;
    *error = (struct tc_error){0};
    return tc_registry_explain(input, error);
}

/* Opens a pickle in memory, or where that is NULL the file itself. */
static bool open_pickle(struct torch *torch, const unsigned char *memory, uint64_t length,
                        struct tc_error *error) {
    struct pickle pickle;
    struct pickle_node *root;
    torch_pickle_init(torch, &pickle, 0, length, error);
    pickle.persistent = NULL;
    pickle.joblib = true;
    pickle.memory = memory;
    if (memory)
        pickle.input = NULL;
    bool ok = pickle_load(&pickle, &root) || explain(torch, &pickle, error);
    torch_count_pickle(torch, &pickle);
    ok = ok && check_behind(&pickle, error);
    pickle_release(&pickle);
    return ok && torch_walk(torch, root, error);
}

bool torch_open_plain(struct torch *torch, struct tc_error *error) {
    return open_pickle(torch, NULL, torch->reader->input->size, error);
}

bool torch_add_objects(struct torch *torch, struct tc_text name, const unsigned char *memory,
                       uint64_t at, uint64_t end, struct tc_error *error) {
    struct pickle pickle;
    struct pickle_node *root;
    size_t before = torch->reader->table.count;
    torch->first_cookie = TORCH_FIRST_OBJECT;
    torch_pickle_init(torch, &pickle, at, end, error);
    pickle.persistent = NULL;
    pickle.memory = memory;
    if (memory)
        pickle.input = NULL;
    bool ok = pickle_load(&pickle, &root) &&
              (pickle.at == end || pickle_bad(&pickle, "something stands behind the pickle"));
    torch_count_pickle(torch, &pickle);
    pickle_release(&pickle);
    if (!ok)
        return tc_error_in_tensor(error, name.bytes, name.length);
    return torch_walk_under(torch, name, root, error) &&
           (torch->reader->table.count > before ||
            tc_reader_skip(torch->reader, name, TC_SKIP_PICKLE, error,
                           "an array of Python objects in which there is no tensor"));
}

/* Files that are compressed as a whole, by zlib or gzip, as joblib does it */

#define GZIP_HEADER 10u
#define FIRST_STEP ((size_t)1 << 20)

struct packed {
    uint64_t start; /* of the deflated data */
    uint64_t end;   /* of the deflated data, where the checksum starts */
    bool gzip;
};

/* Reads a header of zlib, or of gzip, with no optional field but a file's name. */
static bool read_header(struct tc_input *input, const unsigned char *head, struct packed *packed) {
    packed->gzip = head[0] == 0x1F && head[1] == 0x8B;
    bool zlib = (head[0] & 0x0F) == 8 && head[0] >> 4 <= 7 && (head[0] << 8 | head[1]) % 31 == 0 &&
                !(head[1] & 0x20);
    packed->start = packed->gzip ? GZIP_HEADER : 2;
    uint64_t tail = packed->gzip ? 8 : 4;
    if ((!packed->gzip && !zlib) || input->size < packed->start + tail)
        return false;
    packed->end = input->size - tail;
    if (!packed->gzip || head[3] == 0)
        return head[2] == 8 || !packed->gzip;
    /* The file's name, which `gzip FILE` and Python's GzipFile write. */
    unsigned char name[512];
    struct tc_error ignored = {0};
    size_t length = input->size - tail < sizeof name ? input->size - tail : sizeof name;
    if (head[3] != 8 || head[2] != 8 || !tc_input_read(input, 0, name, length, &ignored))
        return false;
    const unsigned char *nul = memchr(name + GZIP_HEADER, 0, length - GZIP_HEADER);
    packed->start = nul ? (uint64_t)(nul - name) + 1 : 0;
    return nul != NULL;
}

bool torch_packed_seen(const struct tc_probe *probe) {
    struct packed packed;
    struct tc_inflater inflater = {0};
    struct tc_error ignored = {0};
    unsigned char first[2] = {0};
    size_t got = 0;
    if (probe->length < 18 || !read_header(probe->input, probe->head, &packed))
        return false;
    bool ok = tc_inflater_init(&inflater, probe->input, packed.start, packed.end, &ignored) &&
              tc_inflate_some(&inflater, first, sizeof first, &got, &ignored);
    tc_inflater_release(&inflater);
    return ok && got == 2 && first[0] == OP_PROTO && first[1] >= 2 && first[1] <= PICKLE_PROTOCOL;
}

/* Checks the checksum behind the data, and for gzip the length. */
static bool check_sum(struct torch *torch, const struct packed *packed, const unsigned char *bytes,
                      size_t length, struct tc_error *error) {
    unsigned char tail[8] = {0};
    size_t size = packed->gzip ? 8 : 4;
    if (!tc_input_read(torch->reader->input, packed->end, tail, size, error))
        return false;
    uint32_t sum = packed->gzip ? tc_crc32(0, bytes, length) : tc_adler32(1, bytes, length);
    uint32_t stored = packed->gzip ? (uint32_t)tc_load(tail, 4)
                                   : (uint32_t)tail[0] << 24 | (uint32_t)tail[1] << 16 |
                                         (uint32_t)tail[2] << 8 | tail[3];
    bool same = sum == stored && (!packed->gzip || (uint32_t)length == tc_load(tail + 4, 4));
    return same || tc_fail(error, TC_INVALID, "checksum", "the packed data's check sum is wrong");
}

/* Inflates all of it into one buffer, whose size counts against the arena's limit. */
static bool unpack(struct torch *torch, const struct packed *packed, unsigned char **bytes,
                   size_t *length, struct tc_error *error) {
    struct tc_inflater inflater = {0};
    size_t capacity = 0;
    bool ok = tc_inflater_init(&inflater, torch->reader->input, packed->start, packed->end, error);
    for (size_t got = 1; ok && got;) {
        if (*length == capacity) {
            size_t larger = capacity ? capacity * 2 : FIRST_STEP;
            ok = tc_reader_check_expansion(torch->reader, *length, error) &&
                 tc_arena_charge(&torch->reader->arena, larger - capacity, error);
            unsigned char *grown = ok ? realloc(*bytes, larger) : NULL;
            if (!grown) {
                ok = ok && tc_fail_memory(error);
                break;
            }
            *bytes = grown;
            capacity = larger;
        }
        ok = tc_inflate_some(&inflater, *bytes + *length, capacity - *length, &got, error);
        *length += got;
    }
    ok =
        ok && tc_inflater_end(&inflater, error) && check_sum(torch, packed, *bytes, *length, error);
    tc_inflater_release(&inflater);
    return ok;
}

bool torch_open_packed(struct torch *torch, struct tc_error *error) {
    struct packed packed;
    unsigned char head[10] = {0};
    size_t length = 0;
    if (!tc_input_read(torch->reader->input, 0, head, sizeof head, error))
        return false;
    if (!read_header(torch->reader->input, head, &packed))
        return tc_fail(error, TC_INVALID, "deflate", "the packed data has no header");
    if (!unpack(torch, &packed, &torch->unpacked, &length, error))
        return false;
    torch->reader->compressed = true;
    return open_pickle(torch, torch->unpacked, length, error);
}
