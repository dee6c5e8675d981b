/*
 * Scans a file, region by region. Each region is looked at for everything it could be:
 * pickles or arrays one after the other, archives, programs, files of known formats,
 * compressed bytes.
 */

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/scan/known.h"
#include "formats/scan/scan.h"
#include "formats/scan/walk.h"

/* How deep archives may be nested; real ones are three deep. */
#define MAX_DEPTH 16u
/* The longest text that a member of an archive may be: licences, labels, versions. */
#define MAX_TEXT ((uint64_t)16 << 20)
/* How many regions any file may have, in addition to those that its size allows
 * (scan_allow_regions). */
#define FREE_REGIONS 100000u

void scan_init(struct scan *scan, const struct tc_format_options *options) {
    *scan = (struct scan){.options = options,
                          .broken = calloc(1, sizeof *scan->broken),
                          .other = calloc(1, sizeof *scan->other)};
    tc_arena_init(&scan->arena, options->limits.memory);
    tc_input_pool_init(&scan->pool);
}

void scan_release(struct scan *scan) {
    for (; scan->pending; scan->pending = scan->pending->next)
        scan_source_drop(scan->pending->source);
    tc_input_pool_release(&scan->pool);
    tc_arena_release(&scan->arena);
    free(scan->findings);
    free(scan->broken);
    free(scan->other);
    *scan = (struct scan){0};
}

enum scan_verdict scan_verdict(const struct scan *scan, enum scan_level allowed) {
    if (scan->seen[SCAN_UNKNOWN] || scan->seen[SCAN_DANGEROUS])
        return SCAN_UNSAFE;
    if ((scan->seen[SCAN_SCRIPT] && allowed < SCAN_SCRIPT) ||
        (scan->seen[SCAN_PROGRAM] && allowed < SCAN_PROGRAM))
        return SCAN_CODE;
    return scan->broken->class != TC_OK  ? SCAN_BROKEN
           : scan->other->class != TC_OK ? SCAN_OTHER
                                         : SCAN_CLEAN;
}

/* One region */

/* Whether the region is text, UTF-8 without control characters, which is harmless. */
static bool is_text(const struct scan_view *view, bool *text, struct tc_error *error) {
    uint64_t size = view->input->size;
    *text = false;
    if (size > MAX_TEXT)
        return true;
    char *bytes = tc_input_load(view->input, 0, size, error);
    if (!bytes)
        return false;
    *text = tc_utf8_valid((struct tc_text){bytes, size});
    for (uint64_t i = 0; i < size && *text; i++)
        *text = (unsigned char)bytes[i] >= 0x20 || strchr("\t\n\r\f", bytes[i]);
    free(bytes);
    return true;
}

/* Reports programs in machine code, which compiled models of torch have: also where an archive
 * makes their members look like numbers, which begin so once in four billion cases. */
static bool find_native(const struct scan_view *view, struct tc_error *error) {
    static const struct {
        const char *magic;
        size_t length;
    } kinds[] = {{"\177ELF", 4}, {"MZ\x90\0", 4}, {"\xCF\xFA\xED\xFE", 4}, {"\xCA\xFE\xBA\xBE", 4}};
    for (size_t i = 0; view->region->archived && i < sizeof kinds / sizeof *kinds; i++)
        if (view->shown > 8 && memcmp(view->head, kinds[i].magic, kinds[i].length) == 0)
            return scan_find(view, SCAN_DANGEROUS, "native-code", view->region->name, 0,
                             "a program for the processor", error);
    return true;
}

/* Looks for pickles from the start, arrays from the start, and pickles behind those. */
static bool look_at_rows(const struct scan_view *view, bool *accounted, bool *some,
                         struct tc_error *error) {
    uint64_t size = view->input->size;
    uint64_t arrays = 0;
    uint64_t behind = 0;
    if (!scan_pickles(view, 0, &behind, error) || !scan_npy(view, &arrays, error))
        return false;
    if (arrays && arrays < size && !scan_pickles(view, arrays, &behind, error))
        return false;
    behind = behind > arrays ? behind : arrays;
    *some = behind > 0;
    *accounted |= behind > 0 && behind == size;
    /* The bytes behind them may be anything again. */
    bool data = view->region->role == SCAN_DATA;
    return behind == 0 || behind == size || data ||
           scan_add_region(view, behind, size - behind, view->region->name, SCAN_DATA, error);
}

/* A file that joblib before 0.10 packed, which any joblib still unpacks: "ZF", the size in 19
 * characters of hexadecimal, perhaps a space, zlib. */
static bool look_at_old_joblib(const struct scan_view *view, bool accounted,
                               struct tc_error *error) {
    size_t head = 2 + 19;
    if (view->shown <= head + 1 || memcmp(view->head, "ZF", 2) != 0)
        return true;
    for (size_t i = 2; i < head; i++)
        if (!view->head[i] || !strchr("0123456789abcdefABCDEFxX_+- \t\n\v\f\r", view->head[i]))
            return true;
    if (accounted)
        scan_note(view->scan, "packed", "joblib could unpack it too");
    head += view->head[head] == ' ';
    struct scan_region *region =
        scan_add_region(view, head, view->input->size - head, view->region->name, SCAN_DATA, error);
    if (region)
        region->packing = SCAN_ZLIB;
    return region != NULL;
}

/* A region that is compressed as a whole, as joblib and pandas unpack files. Its content
 * is looked at in any case, and accounts for the region where nothing else does. */
static bool look_at_packed(const struct scan_view *view, bool accounted, bool *replaced,
                           struct tc_error *error) {
    enum scan_packing packing = scan_packing_seen(view);
    *replaced = false;
    if (!look_at_old_joblib(view, accounted, error))
        return false;
    if (packing == SCAN_PLAIN)
        return true;
    /* Numbers often begin as LZMA does that has no magic bytes, and nobody unpacks it unasked. */
    bool data = view->region->role == SCAN_DATA;
    if (data && packing == SCAN_LZMA)
        return true;
    if (packing == SCAN_CLOSED) {
        if (accounted || data)
            scan_note(view->scan, "packed", "it could be unpacked by LZ4 too");
        return true;
    }
    *replaced = !accounted && !data && packing != SCAN_LZMA;
    struct scan_region *region =
        scan_add_region(view, 0, view->input->size, view->region->name,
                        *replaced ? (enum scan_role)view->region->role : SCAN_DATA, error);
    if (region)
        region->packing = (uint8_t)packing;
    return region != NULL;
}

/* Whether DeepSpeed would take the file for the name of a checkpoint's folder, from which it loads:
 * whatever is in it, since it leaves out more around the name than the reader does. */
static bool names_folder(const struct scan_view *view) {
    return view->region->role == SCAN_FILE && !view->region->archived &&
           strcmp(tc_path_name(view->input->path), "latest") == 0;
}

/* Records why a region that nothing accounts for is not clean. */
static bool give_up(const struct scan_view *view, bool some, const struct scan_known *known,
                    struct tc_error *error) {
    struct scan *scan = view->scan;
    bool text = false;
    if (view->region->role == SCAN_MEMBER && !some && !is_text(view, &text, error))
        return false;
    if (text)
        return true;
    bool foreign = known->why->reason == TC_REASON_NO_FORMAT;
    if (some && (foreign || known->why->class == TC_OK))
        scan_note(scan, "trailing", "something that is no pickle stands behind the last one");
    else if (!foreign) {
        /* Another file that it names does not exist. */
        if (known->why->class == TC_IO)
            known->why->class = TC_INVALID;
        return scan_note_broken(scan, known->why, error);
    } else if (names_folder(view))
        scan_note(scan, "zero-latest",
                  "it does not name the folder of a checkpoint in plain words");
    else if (scan->other->class == TC_OK)
        *scan->other = *known->why;
    return true;
}

static bool look_at_formats(const struct scan_view *view, bool accounted, bool some,
                            struct tc_error *error) {
    struct scan_known known = {.why = calloc(1, sizeof *known.why)};
    bool ok = known.why ? true : tc_fail_memory(error);
    bool wanted = !accounted || view->region->role == SCAN_FILE;
    bool graph = false;
    if (ok && wanted && view->input->size)
        ok = scan_formats(view, &known, error);
    else if (ok && !view->input->size) {
        tc_fail(known.why, TC_INVALID, "empty", "the file is empty");
        tc_error_because(known.why, TC_REASON_NO_FORMAT);
    }
    if (ok && !accounted && !known.opened)
        ok = scan_tensorflow(view, &graph, error);
    bool replaced = false;
    bool whole = accounted || known.opened || graph;
    if (ok)
        ok = look_at_packed(view, whole, &replaced, error);
    if (ok && accounted && !known.opened && known.sure)
        ok = scan_note_broken(view->scan, known.why, error);
    else if (ok && !whole && !replaced)
        ok = give_up(view, some, &known, error);
    free(known.why);
    return ok;
}

static bool look(struct scan_view *view, struct tc_error *error) {
    bool accounted = view->input->size == 0 && view->region->role != SCAN_FILE;
    bool some = false;
    view->scan->places = false;
    if (!look_at_rows(view, &accounted, &some, error) || !scan_zip_seen(view, error))
        return false;
    if (view->scan->places && view->region->role == SCAN_FILE && !view->region->archived &&
        !scan_checkpoint(view, error))
        return false;
    if (view->zip && !scan_zip(view, &accounted, error))
        return false;
    if (!scan_tar(view, &accounted, error) || !scan_source_text(view, &accounted, error) ||
        !find_native(view, error))
        return false;
    bool replaced;
    if (view->region->role == SCAN_DATA)
        return look_at_packed(view, accounted, &replaced, error);
    /* A zip that can't be read was recorded already. */
    return (view->zip && !accounted) || look_at_formats(view, accounted, some, error);
}

static bool no_open(struct tc_reader *reader, struct tc_error *error) {
    (void)reader;
    (void)error;
    return true;
}

static void no_close(struct tc_reader *reader) {
    (void)reader;
}

/* A backend that reads nothing, for a reader of the region's bytes. */
static const struct tc_backend scanned = {.name = "scanned", .open = no_open, .close = no_close};

/* The region's path. A member of an archive gets one that does not exist, so that no
 * other file is opened beside it. */
static char *region_path(const struct scan_region *region, struct tc_error *error) {
    struct tc_buffer path = {0};
    tc_buffer_add_string(&path, region->source->input->path);
    if (region->archived) {
        struct tc_text name = region->name;
        const char *slash = name.length ? memrchr(name.bytes, '/', name.length) : NULL;
        size_t skipped = slash ? (size_t)(slash - name.bytes) + 1 : 0;
        tc_buffer_add_string(&path, "!/");
        for (size_t i = skipped; i < name.length && name.bytes[i]; i++)
            tc_buffer_add(&path, name.bytes + i, 1);
    }
    tc_buffer_add(&path, "", 1);
    if (tc_buffer_ok(&path, error))
        return path.bytes;
    tc_buffer_release(&path);
    return NULL;
}

static bool look_at_plain(struct scan *scan, const struct scan_region *region,
                          struct tc_error *error) {
    struct scan_view view = {.scan = scan, .region = region};
    char *path = region_path(region, error);
    struct tc_input *input =
        path ? tc_input_part(region->source->input, path, region->offset, region->length, error)
             : NULL;
    free(path);
    view.reader = input ? tc_reader_open(&scanned, input, scan->options, error) : NULL;
    if (!view.reader)
        return false;
    view.input = view.reader->input;
    view.shown = view.input->size < sizeof view.head ? view.input->size : sizeof view.head;
    bool ok = tc_input_read(view.input, 0, view.head, view.shown, error) && look(&view, error);
    tc_reader_close(view.reader);
    return ok;
}

/* A region that can't be unpacked as a whole is looked at as far as possible. */
static bool look_at_region(struct scan *scan, struct scan_region region, struct tc_error *error) {
    scan->region = &region;
    if (region.depth > MAX_DEPTH) {
        scan_note_limit(scan, "archives inside archives", NULL);
        return true;
    }
    if (region.packing == SCAN_PLAIN)
        return look_at_plain(scan, &region, error);
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    struct scan_source *source =
        scan_source_new(scan_unpack(scan, &region, damage, error), true, error);
    bool ok = source != NULL;
    if (ok && damage->class != TC_OK) {
        ok = region.role == SCAN_DATA || scan_note_broken(scan, damage, error);
        region.role = SCAN_DATA;
    }
    if (ok) {
        region.source = source;
        region.offset = 0;
        region.length = source->input->size;
        region.packing = SCAN_PLAIN;
        ok = look_at_plain(scan, &region, error);
    }
    scan_source_drop(source);
    free(damage);
    return ok;
}

/* Opens the file; one that took another's place since the folder was listed is refused, since it
 * may lie behind a link. */
static struct tc_input *open_file(const struct scan *scan, const char *path,
                                  struct tc_error *error) {
    struct tc_input *input = tc_reader_input(scan->options, path, NULL, error);
    if (!input || !scan->found ||
        (input->device == scan->found->st_dev && input->inode == scan->found->st_ino))
        return input;
    tc_fail(error, TC_IO, "changed", "the file changed while its folder was read");
    tc_error_in_file(error, path);
    tc_input_close(input);
    return NULL;
}

bool scan_file(struct scan *scan, const char *path, struct tc_error *error) {
    struct tc_input *input = open_file(scan, path, error);
    struct scan_source *source = scan_source_new(input, false, error);
    if (!source)
        return false;
    bool ok = scan->broken && scan->other ? true : tc_fail_memory(error);
    scan->most_unpacked = tc_made_limit(scan->options->limits.made, source->input->size);
    scan->most_regions = FREE_REGIONS;
    scan_allow_regions(scan, source->input->size);
    if (ok) {
        source->users++; /* kept until the end, to see whether the file changed */
        ok = scan_push_region(scan,
                              (struct scan_region){.source = source,
                                                   .length = source->input->size,
                                                   .role = SCAN_FILE},
                              error);
    }
    while (ok && scan->pending) {
        struct scan_region *region = scan->pending;
        scan->pending = region->next;
        ok = look_at_region(scan, *region, error);
        scan_source_drop(region->source);
    }
    ok = ok && tc_input_unchanged(source->input, error);
    /* Where the memory limit is reached, the rest was not looked at: the file counts
     * as broken. */
    if (!ok && error->class == TC_UNSAFE && scan->broken) {
        if (scan->broken->class == TC_OK)
            *scan->broken = *error;
        *error = (struct tc_error){0};
        ok = true;
    }
    if (!ok)
        tc_error_in_file(error, path);
    scan_source_drop(source);
    return ok;
}
