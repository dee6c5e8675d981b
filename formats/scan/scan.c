/*
 * The walk. Regions wait in a list, the last added is looked at first, so that
 * archives in archives need no recursion, and at most one of each depth is
 * unpacked at a time. Every bound is one for the whole file.
 */

#include "formats/scan/scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/json.h"
#include "core/base/limits.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/tensor/table.h"
#include "formats/registry.h"
#include "formats/scan/walk.h"
#include "formats/shards.h"

/* Archives in archives: real ones are three deep. */
#define MAX_DEPTH 16u
#define INDEX_LIMIT UINT64_C(100000000)
/* A text of a member of an archive: licences, labels, versions. */
#define MAX_TEXT ((uint64_t)16 << 20)
/* Members of a file, and of archives in it that are packed: no honest member is
 * this short. */
#define FREE_REGIONS 100000u
#define BYTES_A_REGION 64u
/* A probe this sure saw the format's own mark. */
#define SURE 90
/* And this one saw more than an accident. */
#define LIKELY 50

void scan_init(struct scan *scan, const struct tc_format_options *options) {
    *scan = (struct scan){.options = options,
                          .broken = calloc(1, sizeof *scan->broken),
                          .other = calloc(1, sizeof *scan->other)};
    tc_arena_init(&scan->arena, options->limits.memory);
}

static void drop_source(struct scan_source *source) {
    if (!source || --source->users)
        return;
    tc_input_close(source->input);
    free(source);
}

void scan_release(struct scan *scan) {
    for (; scan->pending; scan->pending = scan->pending->next)
        drop_source(scan->pending->source);
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

/* What is found and wrong */

bool scan_note_broken(struct scan *scan, const struct tc_error *damage, struct tc_error *error) {
    if (damage->class == TC_IO) {
        *error = *damage;
        return false;
    }
    if (scan->broken->class != TC_OK)
        return true;
    *scan->broken = *damage;
    scan->broken_in = scan->region->name;
    /* Offsets are those of the region; what is unpacked has none in the file. */
    if (scan->region->source->packed)
        scan->broken->has_offset = false;
    scan->broken->offset += scan->region->offset;
    return true;
}

void scan_note(struct scan *scan, const char *code, const char *format, ...) {
    struct tc_error damage = {0};
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    tc_fail(&damage, TC_INVALID, code, "%s", what);
    scan_note_broken(scan, &damage, NULL);
}

void scan_note_limit(struct scan *scan, const char *what, const char *option) {
    if (scan->broken->class != TC_OK)
        return;
    scan_note(scan, "scan-limit", "there are too many %s to prove that all are clean", what);
    if (option)
        tc_error_hint(scan->broken, "raise the limit with %s if you trust this file", option);
    else
        tc_error_hint(scan->broken, TC_FIXED_LIMIT);
}

bool scan_find(const struct scan_view *view, enum scan_level level, const char *code,
               struct tc_text name, uint64_t offset, const char *what, struct tc_error *error) {
    return scan_add_finding(view->scan,
                            (struct scan_finding){.kind = SCAN_OTHERWISE,
                                                  .level = level,
                                                  .code = code,
                                                  .name = name,
                                                  .what = what,
                                                  .offset = offset},
                            error);
}

bool scan_name_ends(struct tc_text name, const char *ending) {
    size_t length = strlen(ending);
    if (name.length < length)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = name.bytes[name.length - length + i];
        if ((c >= 'A' && c <= 'Z' ? c | 0x20 : c) != ending[i])
            return false;
    }
    return true;
}

/* Regions */

static struct scan_region *push(struct scan *scan, struct scan_region region,
                                struct tc_error *error) {
    bool many = scan->regions >= scan->options->limits.tensors;
    if (many || scan->regions >= scan->most_regions) {
        /* The walk goes on with those that wait. */
        scan_note_limit(scan, "members", many ? "--max-tensors" : NULL);
        drop_source(region.source);
        return tc_arena_alloc(&scan->arena, sizeof region, error);
    }
    struct scan_region *added = tc_arena_alloc(&scan->arena, sizeof *added, error);
    if (!added) {
        drop_source(region.source);
        return NULL;
    }
    scan->regions++;
    *added = region;
    added->next = scan->pending;
    scan->pending = added;
    return added;
}

struct scan_region *scan_add_region(const struct scan_view *view, uint64_t offset, uint64_t length,
                                    struct tc_text name, enum scan_role role,
                                    struct tc_error *error) {
    const struct scan_region *outer = view->region;
    struct scan_region region = {.source = outer->source,
                                 .offset = outer->offset + offset,
                                 .length = length,
                                 .name = name,
                                 .role = (uint8_t)role,
                                 .depth = outer->depth + 1,
                                 .archived = outer->archived,
                                 .script = outer->script,
                                 .package = outer->package};
    region.source->users++;
    return push(view->scan, region, error);
}

static struct scan_source *new_source(struct tc_input *input, bool packed, struct tc_error *error) {
    struct scan_source *source = input ? malloc(sizeof *source) : NULL;
    if (source)
        *source = (struct scan_source){input, 1, packed};
    else if (input) {
        tc_fail_memory(error);
        tc_input_close(input);
    }
    return source;
}

bool scan_add_bytes(struct scan *scan, const void *bytes, uint64_t length, enum scan_role role,
                    struct tc_error *error) {
    const struct scan_region *outer = scan->region;
    if (length > scan->most_unpacked - scan->unpacked) {
        scan_note_limit(scan, "bytes in pickles", "--max-size");
        return true;
    }
    scan->unpacked += length;
    struct scan_source *source =
        new_source(scan_keep(bytes, length, outer->source->input->path, error), true, error);
    struct scan_region region = {.source = source,
                                 .length = length,
                                 .name = outer->name,
                                 .role = (uint8_t)role,
                                 .depth = outer->depth + 1,
                                 .archived = outer->archived};
    return source && push(scan, region, error);
}

bool scan_add_file(const struct scan_view *view, const char *path, struct tc_text name,
                   enum scan_role role, struct tc_error *error) {
    struct scan *scan = view->scan;
    struct tc_error *missing = calloc(1, sizeof *missing);
    struct stat status;
    /* A pipe or a device is never opened. */
    bool odd = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
    if (odd && missing)
        tc_fail(missing, TC_INVALID, "not-a-file", "this is no plain file");
    struct tc_input *input = missing && !odd ? tc_input_open(path, NULL, missing) : NULL;
    char *copy = tc_arena_copy(&scan->arena, name.bytes, name.length, error);
    bool ok = missing != NULL && copy;
    if (ok && !input)
        scan_note(scan, missing->code, "%s: %s", path, missing->message);
    free(missing);
    if (!ok) {
        tc_input_close(input);
        return tc_fail_memory(error);
    }
    if (!input)
        return true;
    scan->most_regions += 1 + input->size / BYTES_A_REGION;
    struct scan_source *source = new_source(input, false, error);
    struct scan_region region = {.source = source,
                                 .length = source ? source->input->size : 0,
                                 .name = {copy, name.length},
                                 .role = (uint8_t)role,
                                 .depth = view->region->depth + 1};
    return source && push(scan, region, error);
}

bool scan_add_beside(const struct scan_view *view, struct tc_text name, enum scan_role role,
                     struct tc_error *error) {
    const char *whole = view->input->path;
    size_t folder = (size_t)(tc_path_name(whole) - whole);
    struct tc_buffer path = {0};
    /* "-" is a name like any other here. */
    tc_buffer_add(&path, folder ? whole : "./", folder ? folder : 2);
    tc_buffer_add_text(&path, name);
    tc_buffer_add(&path, "", 1);
    bool ok = tc_buffer_ok(&path, error) && scan_add_file(view, path.bytes, name, role, error);
    tc_buffer_release(&path);
    return ok;
}

/* Known formats */

/* An index's shards, whether or not it can be read as a whole: any that is there
 * is looked at, under the rules of names that reading has. */
static bool add_shard(const struct scan_view *view, struct shards *shards, struct tc_text file,
                      struct tc_error *error) {
    struct tc_error *refused = calloc(1, sizeof *refused);
    uint32_t position;
    size_t known = shards->places.count;
    if (!refused)
        return tc_fail_memory(error);
    bool ok = shards_add_file(shards, file, &position, refused);
    bool outside = refused->code && strcmp(refused->code, "shard-path") == 0;
    if (!ok && !outside)
        scan_note_broken(view->scan, refused, error);
    free(refused);
    if (outside)
        return scan_find(view, SCAN_DANGEROUS, "shard-path", file, 0,
                         "the index names a shard outside its folder", error);
    if (!ok || shards->places.count == known)
        return true;
    return scan_add_beside(view, file, SCAN_FILE, error);
}

static bool add_shards(const struct scan_view *view, struct shards *shards, const char *text,
                       struct tc_error *damage, struct tc_error *error) {
    struct tc_json json;
    struct tc_text key;
    struct tc_text ignored;
    tc_json_init(&json, text, view->input->size, 0, &view->reader->arena, damage);
    tc_json_begin(&json, TC_JSON_OBJECT);
    while (tc_json_key(&json, &key)) {
        if (!tc_text_equal(key, TC_TEXT("weight_map")) || tc_json_peek(&json) != TC_JSON_OBJECT) {
            tc_json_skip(&json, &ignored);
            continue;
        }
        struct tc_text file;
        tc_json_begin(&json, TC_JSON_OBJECT);
        while (tc_json_key(&json, &key))
            if (tc_json_string(&json, &file) && !add_shard(view, shards, file, error))
                return false;
    }
    return true;
}

static bool scan_index(const struct scan_view *view, struct tc_error *error) {
    struct shards shards = {0};
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    bool ok = true;
    if (view->input->size > INDEX_LIMIT) {
        scan_note_limit(view->scan, "bytes in an index", NULL);
    } else {
        char *text = tc_reader_load(view->reader, 0, view->input->size, damage);
        shards_init(&shards, view->reader);
        ok = text ? add_shards(view, &shards, text, damage, error) : true;
        if (ok && damage->class != TC_OK)
            ok = scan_note_broken(view->scan, damage, error);
        shards_release(&shards);
        free(text);
    }
    free(damage);
    return ok;
}

static bool is_model(const struct scan_view *view, const struct tc_backend *backend) {
    bool zip = view->shown > 2 && memcmp(view->head, "PK", 2) == 0;
    return strcmp(backend->name, "onnx") == 0 || (strcmp(backend->name, "ot") == 0 && !zip);
}

/* Whether its word counts where the bytes were accounted for without it: torch's
 * files are more than the archive or the pickles that they are made of. */
static bool is_torch(const struct scan_view *view, const struct tc_backend *backend) {
    bool named = strcmp(backend->name, "pt") == 0 || strcmp(backend->name, "ot") == 0;
    return named && (!view->zip || view->torch);
}

/* Bytes behind what is packed in it are only seen at its end. */
static bool read_to_end(const struct scan_view *view, struct tc_reader *reader,
                        struct tc_error *error) {
    const struct tc_tensor *last = NULL;
    struct tc_error *damage = calloc(1, sizeof *damage);
    unsigned char byte;
    if (!damage)
        return tc_fail_memory(error);
    for (size_t i = 0; i < reader->table.count; i++) {
        const struct tc_tensor *tensor = &reader->table.tensors[i];
        if (tensor->nbytes && (!last || tensor->offset >= last->offset))
            last = tensor;
    }
    bool ok = !last || tc_reader_read(reader, last, last->nbytes - 1, &byte, 1, damage) ||
              scan_note_broken(view->scan, damage, error);
    free(damage);
    return ok;
}

/* What a reader that opened the region says of it. */
static bool follow(const struct scan_view *view, struct tc_reader *reader, struct tc_error *error) {
    bool ok = !reader->compressed || view->zip || read_to_end(view, reader, error);
    /* Those of a model are told by what it names (scan_onnx). */
    for (size_t i = 0; i < reader->companion_count && ok && !is_model(view, reader->backend); i++)
        ok = scan_add_file(view, reader->companions[i]->path,
                           tc_text_of(reader->companions[i]->path), SCAN_DATA, error);
    bool index = tc_registry_is_index(reader->backend);
    for (size_t i = 0; i < reader->shard_count && ok && !index; i++)
        if (reader->shard_inputs[i])
            ok = scan_add_file(view, reader->shard_inputs[i]->path, tc_text_of(reader->shards[i]),
                               SCAN_FILE, error);
    return ok;
}

/* What a region is by the readers of formats. */
struct known {
    bool opened;
    bool sure;            /* one that is sure could not read it */
    struct tc_error *why; /* could the first not */
};

static bool try_backend(const struct scan_view *view, const struct tc_backend *backend, int score,
                        struct known *known, struct tc_error *error) {
    struct tc_error *why = calloc(1, sizeof *why);
    struct tc_input *input =
        why ? tc_input_part(view->input, view->input->path, 0, view->input->size, error) : NULL;
    if (!input) {
        free(why);
        return error->class == TC_OK ? tc_fail_memory(error) : false;
    }
    bool ok = true;
    struct tc_reader *reader = tc_reader_open(backend, input, view->scan->options, why);
    known->opened = reader != NULL;
    if (reader)
        ok = follow(view, reader, error);
    else if (why->class == TC_IO && strcmp(why->code, "out-of-memory") == 0)
        ok = scan_note_broken(view->scan, why, error);
    else if (known->why->class == TC_OK) {
        *known->why = *why;
        known->sure = score >= SURE && why->class == TC_INVALID && is_torch(view, backend);
    }
    /* What can't be read as a model names its operators and files all the same. */
    if (ok && is_model(view, backend) && (reader || score >= LIKELY))
        ok = scan_onnx(view, reader != NULL, error);
    tc_reader_close(reader);
    free(why);
    return ok;
}

/* Every format that sees its mark, the surest first. */
static bool try_formats(const struct scan_view *view, struct known *known, struct tc_error *error) {
    struct tc_probe probe = {.input = view->input, .length = view->shown};
    memcpy(probe.head, view->head, view->shown);
    int below = 101;
    while (!known->opened) {
        int best = 0;
        for (size_t i = 0; tc_registry[i]; i++) {
            int score = tc_registry[i]->probe(&probe);
            best = score < below && score > best ? score : best;
        }
        if (!best)
            break;
        for (size_t i = 0; tc_registry[i] && !known->opened; i++) {
            if (tc_registry[i]->probe(&probe) != best)
                continue;
            if (tc_registry_is_index(tc_registry[i]) && !scan_index(view, error))
                return false;
            if (!try_backend(view, tc_registry[i], best, known, error))
                return false;
        }
        below = best;
    }
    if (!known->opened && known->why->class == TC_OK) {
        const struct tc_backend *by_name = tc_registry_probe(view->input, known->why);
        if (by_name && !try_backend(view, by_name, 0, known, error))
            return false;
        /* A name alone makes no format of it. */
        if (by_name && !known->opened) {
            *known->why = (struct tc_error){0};
            tc_fail(known->why, TC_INVALID, "unknown-format", "not a file of any known format");
        }
    }
    return true;
}

/* One region */

/* UTF-8 without control characters: text, which is no program by itself. */
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

/* Programs for the processor, as torch's compiled models carry them. */
static bool find_native(const struct scan_view *view, struct tc_error *error) {
    static const struct {
        const char *magic;
        size_t length;
    } kinds[] = {{"\177ELF", 4}, {"MZ\x90\0", 4}, {"\xCF\xFA\xED\xFE", 4}, {"\xCA\xFE\xBA\xBE", 4}};
    for (size_t i = 0; view->region->archived && i < sizeof kinds / sizeof *kinds; i++)
        if (view->region->role != SCAN_DATA && view->shown > 8 &&
            memcmp(view->head, kinds[i].magic, kinds[i].length) == 0)
            return scan_find(view, SCAN_DANGEROUS, "native-code", view->region->name, 0,
                             "a program for the processor", error);
    return true;
}

/* Pickles from the start, arrays from the start, pickles behind those. */
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
    /* What is behind them may be anything else again. */
    bool data = view->region->role == SCAN_DATA;
    return behind == 0 || behind == size || data ||
           scan_add_region(view, behind, size - behind, view->region->name, SCAN_DATA, error);
}

/* Compressed as a whole, as joblib and pandas unpack files: what it holds takes
 * its place where nothing else does, and is looked at whatever else it is. */
static bool look_at_packed(const struct scan_view *view, bool accounted, bool *replaced,
                           struct tc_error *error) {
    enum scan_packing packing = scan_packing_seen(view);
    *replaced = false;
    if (packing == SCAN_PLAIN || view->region->role == SCAN_DATA)
        return true;
    if (packing == SCAN_CLOSED) {
        if (accounted)
            scan_note(view->scan, "packed", "it could be unpacked by LZ4 too");
        return true;
    }
    *replaced = !accounted && packing != SCAN_LZMA;
    struct scan_region *region =
        scan_add_region(view, 0, view->input->size, view->region->name,
                        *replaced ? (enum scan_role)view->region->role : SCAN_DATA, error);
    if (region)
        region->packing = (uint8_t)packing;
    return region != NULL;
}

/* Nothing accounts for it: why is it not clean? */
static bool give_up(const struct scan_view *view, bool some, const struct known *known,
                    struct tc_error *error) {
    struct scan *scan = view->scan;
    bool text = false;
    if (view->region->role == SCAN_MEMBER && !some && !is_text(view, &text, error))
        return false;
    if (text)
        return true;
    bool foreign = known->why->code && (strcmp(known->why->code, "wrong-file") == 0 ||
                                        strcmp(known->why->code, "unknown-format") == 0 ||
                                        strcmp(known->why->code, "empty") == 0);
    if (some && (foreign || known->why->class == TC_OK))
        scan_note(scan, "trailing", "something that is no pickle stands behind the last one");
    else if (!foreign) {
        /* A file that it needs is not there. */
        if (known->why->class == TC_IO)
            known->why->class = TC_INVALID;
        return scan_note_broken(scan, known->why, error);
    } else if (scan->other->class == TC_OK)
        *scan->other = *known->why;
    return true;
}

static bool look_at_formats(const struct scan_view *view, bool accounted, bool some,
                            struct tc_error *error) {
    struct known known = {.why = calloc(1, sizeof *known.why)};
    bool ok = known.why ? true : tc_fail_memory(error);
    bool wanted = !accounted || view->region->role == SCAN_FILE;
    bool graph = false;
    if (ok && wanted && view->input->size)
        ok = try_formats(view, &known, error);
    else if (ok && !view->input->size)
        tc_fail(known.why, TC_INVALID, "empty", "the file is empty");
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
    if (!look_at_rows(view, &accounted, &some, error) || !scan_zip_seen(view, error))
        return false;
    if (view->zip && !scan_zip(view, &accounted, error))
        return false;
    if (!scan_tar(view, &accounted, error) || !scan_source_text(view, &accounted, error) ||
        !find_native(view, error))
        return false;
    /* A zip that can't be read was told of already. */
    return view->region->role == SCAN_DATA || (view->zip && !accounted) ||
           look_at_formats(view, accounted, some, error);
}

static bool no_open(struct tc_reader *reader, struct tc_error *error) {
    (void)reader;
    (void)error;
    return true;
}

static void no_close(struct tc_reader *reader) {
    (void)reader;
}

/* A reader of bytes as they are, for what wants one. */
static const struct tc_backend scanned = {.name = "scanned", .open = no_open, .close = no_close};

/* A member has a name that leads nowhere: what is in an archive opens no files. */
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

/* What can't be unpacked whole is looked at as far as it goes. */
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
    struct scan_source *source = new_source(scan_unpack(scan, &region, damage, error), true, error);
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
    drop_source(source);
    free(damage);
    return ok;
}

bool scan_file(struct scan *scan, const char *path, struct tc_error *error) {
    struct tc_input *input = tc_input_open(path, NULL, error);
    struct scan_source *source = new_source(input, false, error);
    if (!source)
        return false;
    bool ok = scan->broken && scan->other ? true : tc_fail_memory(error);
    scan->most_unpacked = tc_made_limit(scan->options->limits.made, source->input->size);
    scan->most_regions = FREE_REGIONS + source->input->size / BYTES_A_REGION;
    source->users++; /* ours: it is asked at last whether it changed */
    ok = ok && push(scan,
                    (struct scan_region){
                        .source = source, .length = source->input->size, .role = SCAN_FILE},
                    error);
    while (ok && scan->pending) {
        struct scan_region *region = scan->pending;
        scan->pending = region->next;
        ok = look_at_region(scan, *region, error);
        drop_source(region->source);
    }
    ok = ok && tc_input_unchanged(source->input, error);
    /* More memory than is allowed: what is not looked at is not proven. */
    if (!ok && error->class == TC_UNSAFE) {
        if (scan->broken->class == TC_OK)
            *scan->broken = *error;
        *error = (struct tc_error){0};
        ok = true;
    }
    if (!ok)
        tc_error_in_file(error, path);
    drop_source(source);
    return ok;
}
