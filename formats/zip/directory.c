/*
 *     local header + data, for each member       "PK\3\4"
 *     central directory, an entry a member       "PK\1\2"
 *     zip64 end record and its locator           "PK\6\6", "PK\6\7" (large archives)
 *     end record, with a comment                 "PK\5\6"
 */

#include "formats/zip/directory.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/little_endian.h"
#include "core/io/deflate.h"

#define END_BYTES 22u
#define COMMENT_MAX 65535u
#define LOCATOR_BYTES 20u
#define END64_BYTES 56u
#define ENTRY_BYTES 46u
#define LOCAL_BYTES 30u
#define LARGEST_DESCRIPTOR 24u
/* A local header with the longest name and extra fields. */
#define WINDOW_BYTES (LOCAL_BYTES + 2 * 65535u)
/* What most local headers fit into. */
#define HEADER_GUESS 512u
/* Deflate codes at most 258 bytes in two bits. */
#define DEFLATE_MOST 1032u
#define DIRECTORY_LIMIT (UINT64_C(1) << 30)

#define ATTRIBUTE_FOLDER 0x10u
#define MODE_MASK 0xF000u
#define MODE_FOLDER 0x4000u

#define FIELD_UTF8_NAME 0x7075u
#define UTF8_NAME_VERSION 1u
#define UTF8_NAME_HEAD 5u /* its version, and the CRC-32 of the name in the header */

#define FLAG_DESCRIPTOR 0x0008u
#define FLAG_UTF8 0x0800u
/* 0x0006 are options of the compression, which do not matter for unpacking. */
#define FLAGS_KNOWN (0x0006u | FLAG_DESCRIPTOR | FLAG_UTF8)

static uint16_t u16(const unsigned char *bytes) {
    return (uint16_t)tc_load(bytes, 2);
}

static uint32_t u32(const unsigned char *bytes) {
    return (uint32_t)tc_load(bytes, 4);
}

static uint64_t u64(const unsigned char *bytes) {
    return tc_load(bytes, 8);
}

static bool bad(struct tc_error *error, uint64_t offset, const char *what) {
    tc_fail(error, TC_INVALID, "zip", "bad zip: %s", what);
    return tc_error_at(error, offset);
}

/* What the end records say of the directory. */
struct end {
    uint64_t offset; /* of the end record; in a zip64 archive: of the zip64 end record */
    uint64_t directory;
    uint64_t size;
    uint64_t count;
};

static bool is_end(const unsigned char *bytes) {
    return memcmp(bytes, "PK\5\6", 4) == 0;
}

/* Finds the end record: the one whose comment ends with the file. A second signature
 * behind it, or a second record that would fit, is refused: other readers may take
 * that one. */
static bool find_end(const unsigned char *tail, size_t length, uint64_t base, size_t *place,
                     struct tc_error *error) {
    size_t found = 0;
    for (size_t at = 0; at + END_BYTES <= length; at++) {
        if (tail[at] != 'P' || !is_end(tail + at))
            continue;
        bool fits = u16(tail + at + 20) == length - at - END_BYTES;
        if (found && !fits)
            return bad(error, base + at, "a second end record in its comment");
        if (fits && found++)
            return bad(error, base + at, "two end records");
        if (fits)
            *place = at;
    }
    return found ? true : bad(error, base + length, "no end record; the file may be cut short");
}

/* A 16- or 32-bit field must have the value of the 64-bit one, or be full (all bits
 * set), so that only the 64-bit one counts. */
static bool same_or_full(uint64_t narrow, uint64_t full, uint64_t wide) {
    return narrow == full || narrow == wide;
}

static bool read_end64(struct tc_input *input, const unsigned char *record, uint64_t offset,
                       struct end *end, struct tc_error *error) {
    unsigned char locator[LOCATOR_BYTES];
    unsigned char wide[END64_BYTES];
    bool full = u16(record + 10) == 0xFFFF || u32(record + 12) == 0xFFFFFFFF ||
                u32(record + 16) == 0xFFFFFFFF;
    if (offset < LOCATOR_BYTES)
        return full ? bad(error, offset, "no zip64 end record") : true;
    if (!tc_input_read(input, offset - LOCATOR_BYTES, locator, LOCATOR_BYTES, error))
        return false;
    if (memcmp(locator, "PK\6\7", 4) != 0)
        return full ? bad(error, offset, "no zip64 end record") : true;
    uint64_t at = u64(locator + 8);
    if (u32(locator + 4) != 0 || u32(locator + 16) > 1)
        return tc_fail(error, TC_UNSUPPORTED, "zip-disks", "a zip in several volumes");
    /* Some readers look where the locator says, others right before it: the
     * record must be in both places, and so be without an extension. */
    if (offset - LOCATOR_BYTES < END64_BYTES || at != offset - LOCATOR_BYTES - END64_BYTES)
        return bad(error, offset - LOCATOR_BYTES, "the zip64 end record is not before its locator");
    if (!tc_input_read(input, at, wide, END64_BYTES, error))
        return false;
    if (memcmp(wide, "PK\6\6", 4) != 0 || u64(wide + 4) != END64_BYTES - 12)
        return bad(error, at, "bad zip64 end record");
    if (u32(wide + 16) != 0 || u32(wide + 20) != 0)
        return tc_fail(error, TC_UNSUPPORTED, "zip-disks", "a zip in several volumes");
    *end = (struct end){at, u64(wide + 48), u64(wide + 40), u64(wide + 32)};
    if (u64(wide + 24) != end->count || !same_or_full(u16(record + 10), 0xFFFF, end->count) ||
        !same_or_full(u32(record + 12), 0xFFFFFFFF, end->size) ||
        !same_or_full(u32(record + 16), 0xFFFFFFFF, end->directory))
        return bad(error, at, "the two end records disagree");
    return true;
}

static bool read_end(struct tc_input *input, struct end *end, struct tc_error *error) {
    size_t length = input->size < END_BYTES + COMMENT_MAX ? input->size : END_BYTES + COMMENT_MAX;
    uint64_t base = input->size - length;
    unsigned char *tail = tc_input_load(input, base, length, error);
    if (!tail)
        return false;
    size_t place = 0;
    bool ok = find_end(tail, length, base, &place, error);
    const unsigned char *record = tail + place;
    if (ok) {
        *end = (struct end){base + place, u32(record + 16), u32(record + 12), u16(record + 10)};
        ok = read_end64(input, record, base + place, end, error);
    }
    if (ok && ((u16(record + 4) != 0 && u16(record + 4) != 0xFFFF) ||
               (u16(record + 6) != 0 && u16(record + 6) != 0xFFFF)))
        ok = tc_fail(error, TC_UNSUPPORTED, "zip-disks", "a zip in several volumes");
    if (ok && u16(record + 8) != u16(record + 10))
        ok = bad(error, base + place, "its counts of members disagree");
    free(tail);
    return ok;
}

bool zip_find_directory(struct tc_input *input, uint64_t *offset, uint64_t *size,
                        struct tc_error *error) {
    struct end end;
    if (!read_end(input, &end, error))
        return false;
    *offset = end.directory;
    *size = end.size;
    return end.directory <= end.offset && end.size == end.offset - end.directory
               ? true
               : bad(error, end.offset, "its directory is not before its end record");
}

/* Reads the zip64 extra field. It has, in this order, those of size, stored size and
 * local offset that are full (0xFFFFFFFF) in the entry. */
static bool read_extra(const unsigned char *extra, size_t length, struct zip_member *member,
                       bool local, uint64_t where, struct tc_error *error) {
    bool full[3] = {member->size == 0xFFFFFFFF, member->stored == 0xFFFFFFFF,
                    !local && member->local == 0xFFFFFFFF};
    uint64_t *fields[3] = {&member->size, &member->stored, &member->local};
    bool seen = false;
    while (length >= 4) {
        unsigned id = u16(extra);
        size_t size = u16(extra + 2);
        if (size > length - 4)
            return bad(error, where, "an extra field passes its header's end");
        const unsigned char *at = extra + 4;
        size_t left = size;
        if (id == 1) {
            if (seen)
                return bad(error, where, "two zip64 fields");
            seen = true;
            for (int i = 0; i < 3; i++) {
                if (!full[i])
                    continue;
                if (left < 8)
                    return bad(error, where, "a zip64 field is cut short");
                *fields[i] = u64(at);
                at += 8;
                left -= 8;
            }
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    if (!seen && (full[0] || full[1] || full[2]))
        return bad(error, where, "a zip64 field is missing");
    return true;
}

/* Info-ZIP's extra field has a name in UTF-8. Readers that know it take that name, if the CRC in
 * it is that of the name in the header; others would see another member. */
static bool gives_another_name(const unsigned char *extra, size_t length, struct tc_text name) {
    while (length >= 4 && u16(extra + 2) <= length - 4) {
        size_t size = u16(extra + 2);
        const unsigned char *field = extra + 4;
        if (u16(extra) == FIELD_UTF8_NAME && size >= UTF8_NAME_HEAD &&
            field[0] == UTF8_NAME_VERSION &&
            u32(field + 1) == tc_crc32(0, name.bytes, name.length)) {
            struct tc_text other = {(const char *)field + UTF8_NAME_HEAD, size - UTF8_NAME_HEAD};
            if (!tc_text_equal(name, other))
                return true;
        }
        extra += 4 + size;
        length -= 4 + size;
    }
    return false;
}

static bool is_ascii(struct tc_text name) {
    for (size_t i = 0; i < name.length; i++)
        if (name.bytes[i] & 0x80)
            return false;
    return true;
}

/* Whether a member is a folder: by its name, or by the attributes of DOS or Unix.
 * Some readers ignore a folder's data, others do not. */
static bool is_folder(const struct zip_member *member, uint32_t attributes) {
    return tc_text_ends(member->name, TC_TEXT("/")) || attributes & ATTRIBUTE_FOLDER ||
           (attributes >> 16 & MODE_MASK) == MODE_FOLDER;
}

/* Some writers deflate folders, of which two bytes come. */
static bool has_data(const struct zip_member *member) {
    return member->size > 0 || member->stored > 2;
}

static bool check_member(const struct zip_member *member, uint32_t attributes,
                         struct tc_error *error) {
    bool encrypted = member->flags & ZIP_ENCRYPTED;
    if (member->flags & ~(FLAGS_KNOWN | (encrypted ? ZIP_ENCRYPTED : 0u)))
        tc_fail(error, TC_INVALID, "zip-flags", "bad zip: unknown flags 0x%04x", member->flags);
    else if (member->method == ZIP_STORED && !encrypted && member->stored != member->size)
        tc_fail(error, TC_INVALID, "zip", "bad zip: a stored member's sizes disagree");
    else if (member->method == ZIP_DEFLATED && member->size / DEFLATE_MOST > member->stored)
        tc_fail(error, TC_INVALID, "zip", "bad zip: a member's sizes cannot both be true");
    else if (is_folder(member, attributes) && has_data(member))
        tc_fail(error, TC_INVALID, "zip-folder", "bad zip: a folder with data");
    else if (memchr(member->name.bytes, '\0', member->name.length))
        tc_fail(error, TC_INVALID, "name-nul", "bad zip: a member's name holds a NUL");
    else if (!tc_utf8_valid(member->name))
        tc_fail(error, TC_INVALID, "name-utf8", "bad zip: a member's name is not valid UTF-8");
    else if (!(member->flags & FLAG_UTF8) && !is_ascii(member->name))
        tc_fail(error, TC_INVALID, "name-utf8",
                "bad zip: a member's name is not ASCII and not marked as UTF-8");
    else
        return true;
    return tc_error_at(error, member->local);
}

/* The bytes around local headers. Where members are small the next header is among them, so that
 * a million of these don't take two million calls of the system. */
struct window {
    struct tc_input *input;
    uint64_t limit; /* where the directory starts */
    uint64_t start;
    size_t size;
    unsigned char bytes[WINDOW_BYTES];
};

/* The bytes at `offset`, which with their length lie before the limit, and are at most
 * WINDOW_BYTES; they are valid until the next call. */
static const unsigned char *look(struct window *window, uint64_t offset, size_t length,
                                 struct tc_error *error) {
    if (offset >= window->start && length <= window->size &&
        offset - window->start <= window->size - length)
        return window->bytes + (offset - window->start);
    bool near = offset >= window->start && offset - window->start < 2 * (uint64_t)WINDOW_BYTES;
    uint64_t size = near ? WINDOW_BYTES : length > HEADER_GUESS ? length : HEADER_GUESS;
    if (size > window->limit - offset)
        size = window->limit - offset;
    window->size = 0;
    if (!tc_input_read(window->input, offset, window->bytes, size, error))
        return NULL;
    window->start = offset;
    window->size = size;
    return window->bytes;
}

/* Reads the local header, which must agree with the directory. */
static bool read_local(struct window *window, struct zip_member *member, struct tc_error *error) {
    uint64_t limit = window->limit;
    if (member->local > limit || limit - member->local < LOCAL_BYTES)
        return bad(error, member->local, "a member lies outside the file");
    const unsigned char *fixed = look(window, member->local, LOCAL_BYTES, error);
    if (!fixed)
        return false;
    size_t name_length = u16(fixed + 26);
    size_t extra_length = u16(fixed + 28);
    if (memcmp(fixed, "PK\3\4", 4) != 0)
        return bad(error, member->local, "no local header where the directory says");
    if (limit - member->local - LOCAL_BYTES < name_length + extra_length)
        return bad(error, member->local, "a local header passes the directory's start");
    if (u16(fixed + 6) != member->flags || u16(fixed + 8) != member->method ||
        name_length != member->name.length)
        return bad(error, member->local, "a local header disagrees with the directory");
    fixed = look(window, member->local, LOCAL_BYTES + name_length + extra_length, error);
    if (!fixed)
        return false;
    const unsigned char *rest = fixed + LOCAL_BYTES;
    struct zip_member local = {.size = u32(fixed + 22), .stored = u32(fixed + 18)};
    bool ok = true;
    if (memcmp(rest, member->name.bytes, name_length) != 0)
        ok = bad(error, member->local, "a local header has another name than the directory");
    else if (gives_another_name(rest + name_length, extra_length, member->name))
        ok = bad(error, member->local, "an extra field gives a member another name");
    /* Where a data descriptor follows the data, sizes and CRC may be zero here. */
    bool later = member->flags & FLAG_DESCRIPTOR;
    if (ok && !(later && local.size == 0 && local.stored == 0)) {
        ok = read_extra(rest + name_length, extra_length, &local, true, member->local, error);
        if (ok &&
            (local.size != member->size || local.stored != member->stored ||
             (u32(fixed + 14) != member->crc && !(later && u32(fixed + 14) == 0))) &&
            !(later && local.size == 0 && local.stored == 0))
            ok = bad(error, member->local, "a local header disagrees with the directory");
    }
    member->data = member->local + LOCAL_BYTES + name_length + extra_length;
    if (ok && !tc_range_within(member->data, member->stored, limit))
        ok = bad(error, member->local, "a member's data passes the directory's start");
    return ok;
}

static bool read_entry(const unsigned char *entry, size_t left, struct zip_member *member,
                       size_t *used, uint64_t where, struct tc_error *error) {
    if (left < ENTRY_BYTES || memcmp(entry, "PK\1\2", 4) != 0)
        return bad(error, where, "bad directory entry");
    size_t name_length = u16(entry + 28);
    size_t extra_length = u16(entry + 30);
    *used = ENTRY_BYTES + name_length + extra_length + u16(entry + 32);
    if (left < *used)
        return bad(error, where, "a directory entry is cut short");
    if (u16(entry + 34) != 0 && u16(entry + 34) != 0xFFFF)
        return tc_fail(error, TC_UNSUPPORTED, "zip-disks", "a zip in several volumes");
    *member = (struct zip_member){
        .name = {(const char *)entry + ENTRY_BYTES, name_length},
        .flags = u16(entry + 8),
        .method = u16(entry + 10),
        .crc = u32(entry + 16),
        .stored = u32(entry + 20),
        .size = u32(entry + 24),
        .local = u32(entry + 42),
    };
    const unsigned char *extra = entry + ENTRY_BYTES + name_length;
    if (gives_another_name(extra, extra_length, member->name))
        return bad(error, where, "an extra field gives a member another name");
    return read_extra(extra, extra_length, member, false, where, error) &&
           check_member(member, u32(entry + 38), error);
}

static int by_local(const void *a, const void *b, void *members) {
    const struct zip_member *list = members;
    uint64_t x = list[*(const uint32_t *)a].local;
    uint64_t y = list[*(const uint32_t *)b].local;
    return (x > y) - (x < y);
}

/* Members lie one behind the other, up to the directory: nothing overlaps, and
 * nothing is hidden between them. */
static bool check_layout(const struct zip *zip, uint64_t directory, struct tc_error *error) {
    uint32_t *order = malloc((zip->count ? zip->count : 1) * sizeof *order);
    if (!order)
        return tc_fail_memory(error);
    bool sorted = true;
    for (size_t i = 0; i < zip->count; i++) {
        order[i] = (uint32_t)i;
        sorted &= i == 0 || zip->members[i - 1].local < zip->members[i].local;
    }
    if (!sorted)
        qsort_r(order, zip->count, sizeof *order, by_local, zip->members);
    uint64_t end = 0;
    uint64_t slack = 0;
    bool ok = true;
    for (size_t i = 0; i <= zip->count && ok; i++) {
        const struct zip_member *member = i < zip->count ? &zip->members[order[i]] : NULL;
        uint64_t next = member ? member->local : directory;
        if (next < end)
            ok = bad(error, next, "members overlap");
        else if (next - end > slack)
            ok = bad(error, end,
                     i ? "something stands between the members"
                       : "something stands before the first member");
        if (!member)
            break;
        end = member->data + member->stored;
        slack = member->flags & FLAG_DESCRIPTOR ? LARGEST_DESCRIPTOR : 0;
    }
    free(order);
    return ok;
}

static bool check_end(const struct end *end, const struct tc_reader *reader,
                      struct tc_error *error) {
    uint64_t sum;
    if (!tc_add(end->directory, end->size, &sum) || sum != end->offset)
        return bad(error, end->offset, "the directory does not end where its end record starts");
    if (end->count > end->size / ENTRY_BYTES)
        return bad(error, end->offset, "more members than the directory has room for");
    if (end->count == 0 && (end->size != 0 || end->directory != 0))
        return bad(error, end->offset, "an empty archive that is not empty");
    if (!tc_reader_check_header(reader, "zip's directory", end->size, DIRECTORY_LIMIT, error))
        return false;
    if (end->count > reader->options->limits.tensors) {
        tc_fail(error, TC_UNSAFE, "tensor-limit", "a zip of %llu members (limit %llu)",
                (unsigned long long)end->count,
                (unsigned long long)reader->options->limits.tensors);
        return tc_error_hint(error, "raise the limit with --max-tensors if you trust this file");
    }
    return true;
}

/* Keeps the names alone of the directory's bytes: they are a fifth of it. */
static void keep_names(struct zip *zip, uint64_t length) {
    uint64_t kept = 0;
    for (size_t i = 0; i < zip->count; i++) {
        struct tc_text *name = &zip->members[i].name;
        memmove(zip->directory + kept, name->bytes, name->length);
        kept += name->length;
    }
    char *smaller = kept < length ? realloc(zip->directory, kept ? kept : 1) : NULL;
    zip->directory = smaller ? smaller : zip->directory;
    kept = 0;
    for (size_t i = 0; i < zip->count; i++) {
        zip->members[i].name.bytes = zip->directory + kept;
        kept += zip->members[i].name.length;
    }
}

static bool read_members(struct zip *zip, struct tc_input *input, const struct end *end,
                         struct tc_error *error) {
    struct window *window = malloc(sizeof *window);
    if (!window)
        return tc_fail_memory(error);
    window->input = input;
    window->limit = end->directory;
    window->start = window->size = 0;
    size_t at = 0;
    bool ok = true;
    for (uint64_t i = 0; i < end->count && ok; i++) {
        struct zip_member *member = &zip->members[zip->count++];
        size_t used = 0;
        ok = read_entry((const unsigned char *)zip->directory + at, end->size - at, member, &used,
                        end->directory + at, error) &&
             read_local(window, member, error);
        at += used;
    }
    free(window);
    if (ok && at != end->size)
        return bad(error, end->directory + at, "the directory holds more than it counts");
    return ok;
}

bool zip_open_archive(struct zip *zip, struct tc_reader *reader, struct tc_error *error) {
    struct end end;
    if (!read_end(reader->input, &end, error) || !check_end(&end, reader, error))
        return false;
    zip->directory = tc_reader_load(reader, end.directory, end.size, error);
    zip->members = tc_arena_array(&reader->arena, end.count, sizeof *zip->members, error);
    if (!zip->directory || !zip->members)
        return false;
    if (!read_members(zip, reader->input, &end, error) || !check_layout(zip, end.directory, error))
        return false;
    keep_names(zip, end.size);
    return true;
}

void zip_release(struct zip *zip) {
    free(zip->directory);
    *zip = (struct zip){0};
}
