/*
 * Scans zip archives. What the strict reader (zip/read.h) can't read is broken. But
 * other readers find an archive by a record near its end, whatever comes before it, and
 * members by headers that the strict one never reaches. All of these are tried too, so
 * that what those readers would load is reported.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "core/tensor/table.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

#define END_BYTES 22u
#define LOCATOR_BYTES 20u
#define TAIL_BYTES ((size_t)65535 + END_BYTES)
/* torch searches for the end record in steps of 4 KiB, and so up to one step further. */
#define SEARCHED_BYTES (TAIL_BYTES + 4096)
#define LOCAL_BYTES 30u
#define WINDOW ((size_t)1 << 20)
/* How many members of a broken archive are looked at; the file is broken anyway. */
#define MAX_FRAGMENTS 10000u
#define MAX_NAME 4096u
/* Stored members up to this size have their CRC checked. Larger ones are weights, which
 * tconv verify checks. */
#define MAX_CHECKED ((uint64_t)16 << 20)

static bool has_mark(struct tc_input *input, uint64_t at, const char *mark) {
    unsigned char bytes[4];
    struct tc_error ignored = {0};
    return tc_range_within(at, sizeof bytes, input->size) &&
           tc_input_read(input, at, bytes, sizeof bytes, &ignored) && memcmp(bytes, mark, 4) == 0;
}

/* Whether there is a directory where an end record says, counted from the file's start
 * or back from the record, or a zip64 record. */
static bool leads_somewhere(struct tc_input *input, const unsigned char *record, uint64_t at) {
    uint64_t size = tc_load(record + 12, 4);
    uint64_t offset = tc_load(record + 16, 4);
    return has_mark(input, offset, "PK\1\2") ||
           (size <= at && has_mark(input, at - size, "PK\1\2")) ||
           (at >= LOCATOR_BYTES && has_mark(input, at - LOCATOR_BYTES, "PK\6\7"));
}

bool scan_zip_seen(struct scan_view *view, struct tc_error *error) {
    struct tc_input *input = view->input;
    view->zip = !view->region->fragment && view->shown >= 4 &&
                (memcmp(view->head, "PK\3\4", 4) == 0 || memcmp(view->head, "PK\5\6", 4) == 0);
    if (view->zip || view->region->fragment || input->size < END_BYTES)
        return true;
    size_t size = input->size < SEARCHED_BYTES ? input->size : SEARCHED_BYTES;
    uint64_t base = input->size - size;
    unsigned char *tail = tc_input_load(input, base, size, error);
    if (!tail)
        return false;
    const unsigned char *at = tail;
    while (!view->zip && (at = memmem(at, size - (size_t)(at - tail), "PK\5\6", 4)) != NULL) {
        size_t place = (size_t)(at - tail);
        view->zip = size - place >= END_BYTES && leads_somewhere(input, at, base + place);
        at += 4;
    }
    free(tail);
    return true;
}

/* What kind of archive it is, by the names of its members. */
struct traits {
    struct tc_text root;     /* torch's folder, with its slash; bytes are NULL: none */
    struct tc_text compiled; /* a part of a compiled model; bytes are NULL: none */
    bool script;
    bool package;
};

static bool in_folder(struct tc_text name, const char *folder) {
    return memmem(name.bytes, name.length, folder, strlen(folder)) != NULL;
}

/* Whether it is model.json of torch 1.0, which is in the archive's top folder;
 * torch.export has a file of that name further down. */
static bool is_old_model(struct tc_text name) {
    return scan_name_ends(name, "/model.json") &&
           memchr(name.bytes, '/', name.length) == name.bytes + name.length - 11;
}

static struct traits traits_of(const struct zip *zip) {
    struct traits traits = {0};
    bool old = false;
    bool code = false;
    for (size_t i = 0; i < zip->count; i++) {
        struct tc_text name = zip->members[i].name;
        bool pickle = scan_name_ends(name, "/data.pkl");
        bool model = is_old_model(name);
        if (!traits.root.bytes && (pickle || model))
            traits.root = (struct tc_text){name.bytes, name.length - (pickle ? 8u : 10u)};
        /* torch's loader of compiled models links these, or has a compiler make what it links. */
        if (!traits.compiled.bytes && in_folder(name, "/aotinductor/"))
            traits.compiled = name;
        old |= model;
        code |= in_folder(name, "/code/");
        traits.script |= scan_name_ends(name, "/constants.pkl");
        traits.package |= scan_name_ends(name, "/.data/extern_modules") ||
                          scan_name_ends(name, "/.data/python_version");
    }
    traits.script |= old && code;
    return traits;
}

/* Whether a member is a storage: numbers, which look like anything else only by
 * accident. */
static bool is_storage(const struct traits *traits, struct tc_text name) {
    static const char *const folders[] = {"data/", "constants/", "tensors/"};
    if (traits->package && in_folder(name, "/.data/") && tc_text_ends(name, TC_TEXT(".storage")))
        return true;
    if (!traits->root.bytes || !tc_text_starts(name, traits->root))
        return false;
    struct tc_text rest = {name.bytes + traits->root.length, name.length - traits->root.length};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (tc_text_starts(rest, tc_text_of(folders[i])))
            return true;
    return false;
}

static bool check_stored(const struct scan_view *view, const struct zip_member *member,
                         struct tc_error *error) {
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    bool ok = member->method != ZIP_STORED || member->size > MAX_CHECKED ||
              zip_verify_stored(view->input, member, damage) ||
              scan_note_broken(view->scan, damage, error);
    free(damage);
    return ok;
}

static bool add_member(const struct scan_view *view, const struct traits *traits,
                       const struct zip_member *member, struct tc_error *error) {
    struct scan *scan = view->scan;
    char *name = tc_arena_copy(&scan->arena, member->name.bytes, member->name.length, error);
    if (!name || !check_stored(view, member, error))
        return false;
    struct tc_text text = {name, member->name.length};
    struct tc_error closed = {0};
    bool readable = zip_member_readable(member, &closed);
    if (!readable && !scan_note_broken(scan, &closed, error))
        return false;
    /* Loaders that ignore the flag for encryption read the bytes as they are. */
    if (!readable && member->method != ZIP_STORED && member->method != ZIP_DEFLATED)
        return true;
    bool data = is_storage(traits, text) || view->region->role == SCAN_DATA;
    struct scan_region *region = scan_add_region(view, member->data, member->stored, text,
                                                 data ? SCAN_DATA : SCAN_MEMBER, error);
    if (!region)
        return false;
    region->packing = member->method == ZIP_STORED     ? SCAN_PLAIN
                      : member->method == ZIP_DEFLATED ? SCAN_DEFLATE
                                                       : SCAN_ZIPPED;
    region->method = member->method;
    region->size = member->size;
    region->crc = member->crc;
    region->sized = true;
    region->archived = true;
    region->script = traits->script;
    region->package = traits->package;
    return true;
}

/* Records names that occur twice: loaders differ in which member they read. */
static bool check_names(const struct scan_view *view, const struct zip *zip,
                        struct tc_error *error) {
    struct tc_name_map names;
    struct tc_error *twice = calloc(1, sizeof *twice);
    if (!twice)
        return tc_fail_memory(error);
    tc_name_map_init(&names, &view->reader->arena);
    bool ok = true;
    for (size_t i = 0; i < zip->count && ok && twice->class == TC_OK; i++)
        ok = tc_name_add(&names, zip->members[i].name, 0, TC_MAX_NAMES, twice) ||
             scan_note_broken(view->scan, twice, error);
    tc_name_map_release(&names);
    free(twice);
    return ok;
}

/* Adds the bytes behind the end record: the comment. */
static bool look_at_comment(const struct scan_view *view, struct tc_error *error) {
    struct tc_input *input = view->input;
    size_t size = input->size < TAIL_BYTES ? input->size : TAIL_BYTES;
    unsigned char *tail = tc_input_load(input, input->size - size, size, error);
    if (!tail)
        return false;
    bool ok = true;
    for (size_t at = 0; at + END_BYTES < size && ok; at++)
        if (memcmp(tail + at, "PK\5\6", 4) == 0) {
            size_t length = size - at - END_BYTES;
            if (tc_load(tail + at + 20, 2) == length)
                ok = scan_add_region(view, input->size - length, length, view->region->name,
                                     SCAN_DATA, error);
            break;
        }
    free(tail);
    return ok;
}

/* Adds a member of a broken zip, by its local header alone. */
static bool add_fragment(const struct scan_view *view, uint64_t at, struct tc_error *error) {
    struct tc_input *input = view->input;
    unsigned char header[LOCAL_BYTES];
    if (input->size - at < LOCAL_BYTES)
        return true;
    if (!tc_input_read(input, at, header, LOCAL_BYTES, error))
        return false;
    uint64_t length = tc_load(header + 26, 2);
    uint64_t data = at + LOCAL_BYTES + length + tc_load(header + 28, 2);
    uint64_t stored = tc_load(header + 18, 4);
    unsigned method = (unsigned)tc_load(header + 8, 2);
    if (data >= input->size || (method != ZIP_STORED && method != ZIP_DEFLATED))
        return true;
    uint64_t left = input->size - data;
    char *name =
        tc_arena_alloc(&view->scan->arena, MAX_NAME < length ? MAX_NAME : length + 1, error);
    length = MAX_NAME < length ? MAX_NAME : length;
    if (!name || !tc_input_read(input, at + LOCAL_BYTES, name, length, error))
        return false;
    struct scan_region *region =
        scan_add_region(view, data, stored && stored < left ? stored : left,
                        (struct tc_text){name, length}, SCAN_DATA, error);
    if (!region)
        return false;
    region->packing = method == ZIP_STORED ? SCAN_PLAIN : SCAN_DEFLATE;
    region->archived = true;
    region->fragment = method == ZIP_STORED;
    return true;
}

/* Adds a region for every local header of a broken zip, since some loader may find its
 * member. That includes headers inside of members that are stored zips. */
static bool add_fragments(const struct scan_view *view, struct tc_error *error) {
    struct tc_input *input = view->input;
    unsigned char *window = malloc(WINDOW);
    bool ok = window ? true : tc_fail_memory(error);
    size_t count = 0;
    for (uint64_t at = 0; at < input->size && ok && count < MAX_FRAGMENTS;) {
        uint64_t left = input->size - at;
        size_t size = left < WINDOW ? left : WINDOW;
        ok = tc_input_read(input, at, window, size, error);
        const unsigned char *found = window;
        while (ok && count < MAX_FRAGMENTS &&
               (found = memmem(found, size - (size_t)(found - window), "PK\3\4", 4))) {
            ok = add_fragment(view, at + (uint64_t)(found - window), error);
            found += 4;
            count++;
        }
        /* A header may lie across two windows. */
        at += size < left ? size - 3 : size;
    }
    free(window);
    return ok;
}

/* Whether an archive ends here whose first byte is at `start`: behind its end record comes
 * another archive, or nothing, and its directory is where the record says. */
static bool ends_here(struct tc_input *input, uint64_t start, uint64_t record,
                      uint64_t *directory) {
    unsigned char length[2];
    struct tc_error ignored = {0};
    uint64_t end = record + END_BYTES;
    uint64_t size;
    if (!tc_range_within(record, END_BYTES, input->size) ||
        !tc_input_read(input, record + END_BYTES - 2, length, 2, &ignored) || length[0] ||
        length[1] || (end < input->size && !has_mark(input, end, "PK\3\4")))
        return false;
    struct tc_input *part = tc_input_part(input, input->path, start, end - start, &ignored);
    bool ok = part && zip_find_directory(part, directory, &size, &ignored);
    tc_input_close(part);
    return ok;
}

/* Where archives that stand one behind the other begin and end, as in the files of a distributed
 * checkpoint; and where their directories are. */
struct row {
    uint64_t *ends;
    uint64_t *directories;
    size_t count;
    size_t capacity;
};

static bool add_end(struct row *row, uint64_t end, uint64_t directory, struct tc_error *error) {
    if (row->count == row->capacity) {
        size_t capacity = row->capacity ? 2 * row->capacity : 64;
        uint64_t *ends = reallocarray(row->ends, capacity, sizeof *ends);
        row->ends = ends ? ends : row->ends;
        uint64_t *directories = reallocarray(row->directories, capacity, sizeof *directories);
        row->directories = directories ? directories : row->directories;
        if (!ends || !directories)
            return tc_fail_memory(error);
        row->capacity = capacity;
    }
    row->directories[row->count] = directory;
    row->ends[row->count++] = end;
    return true;
}

static bool find_row(struct tc_input *input, struct row *row, struct tc_error *error) {
    unsigned char *window = malloc(WINDOW);
    bool ok = window || tc_fail_memory(error);
    uint64_t start = 0;
    size_t tried = 0; /* records that are none, or end no archive */
    for (uint64_t at = 0; ok && at < input->size && tried < MAX_FRAGMENTS;) {
        uint64_t left = input->size - at;
        size_t size = left < WINDOW ? (size_t)left : WINDOW;
        ok = tc_input_read(input, at, window, size, error);
        const unsigned char *found = window;
        while (ok && tried < MAX_FRAGMENTS &&
               (found = memmem(found, size - (size_t)(found - window), "PK\5\6", 4))) {
            uint64_t record = at + (uint64_t)(found - window);
            uint64_t directory;
            if (ends_here(input, start, record, &directory)) {
                ok = add_end(row, record + END_BYTES, start + directory, error);
                start = record + END_BYTES;
            } else
                tried++;
            found += 4;
        }
        at += size < left ? size - 3 : size;
    }
    free(window);
    return ok;
}

/* Whether the archives fill the region, and whoever takes it for one archive finds one of theirs:
 * where the last end record counts from the start of all of them, it must lead to nothing, or to
 * the directory of one. */
static bool is_row(struct tc_input *input, const struct row *row) {
    if (row->count < 2 || row->ends[row->count - 1] != input->size)
        return false;
    uint64_t leads = row->directories[row->count - 1] - row->ends[row->count - 2];
    if (!has_mark(input, leads, "PK\1\2"))
        return true;
    for (size_t i = 0; i < row->count; i++)
        if (row->directories[i] == leads)
            return true;
    return false;
}

/* Archives one behind the other: each is looked at by itself. *row: it is such a region. */
static bool scan_row(const struct scan_view *view, bool *is, struct tc_error *error) {
    struct row row = {0};
    bool ok = find_row(view->input, &row, error);
    *is = ok && is_row(view->input, &row);
    for (size_t i = row.count; i > 0 && ok && *is; i--) {
        uint64_t start = i > 1 ? row.ends[i - 2] : 0;
        ok = scan_add_region(view, start, row.ends[i - 1] - start, view->region->name,
                             view->region->role, error) != NULL;
    }
    free(row.ends);
    free(row.directories);
    return ok;
}

bool scan_zip(struct scan_view *view, bool *accounted, struct tc_error *error) {
    struct zip zip = {0};
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    bool opened = zip_open_archive(&zip, view->reader, damage);
    bool ok = true;
    if (!opened) {
        ok = scan_row(view, accounted, error);
        if (ok && !*accounted)
            ok = scan_note_broken(view->scan, damage, error) && add_fragments(view, error);
    } else {
        struct traits traits = traits_of(&zip);
        *accounted = true;
        view->torch = traits.root.bytes != NULL;
        ok = check_names(view, &zip, error) && look_at_comment(view, error);
        for (size_t i = zip.count; i > 0 && ok; i--)
            ok = add_member(view, &traits, &zip.members[i - 1], error);
        if (ok && traits.compiled.bytes)
            ok = scan_find(view, SCAN_DANGEROUS, "native-code", traits.compiled, 0,
                           "a compiled model, which loading it would link or compile", error);
        if (ok && traits.package)
            ok = scan_find(view, SCAN_DANGEROUS, "torch-package", TC_TEXT("torch.package"), 0,
                           "a package of Python modules, which loading it would run", error);
    }
    free(damage);
    zip_release(&zip);
    return ok;
}
