#include "formats/scan.h"

#include <stdlib.h>
#include <string.h>

#include "formats/registry.h"
#include "formats/scan_bytes.h"
#include "formats/torch.h"
#include "formats/zip_read.h"

/* What is packed in a zip is unpacked to memory to be looked at. */
#define MAX_UNPACKED (UINT64_C(256) << 20)

static bool scan_member(struct scan *scan, struct tc_reader *reader,
                        const struct zip_member *member, struct tc_error *error) {
    bool storage = memmem(member->name.bytes, member->name.length, "/data/", 6) != NULL;
    enum named named = storage                             ? STORAGE_NAMED
                       : scan_name_is_pickle(member->name) ? PICKLE_NAMED
                                                           : NOT_NAMED;
    if (member->method == ZIP_STORED) {
        struct tc_error *damage = calloc(1, sizeof *damage);
        if (!damage)
            return tc_fail_memory(error);
        if (!zip_verify_stored(reader->input, member, damage))
            scan_note_broken(scan, damage);
        free(damage);
        return scan_content(scan, reader->input, member->data, NULL, member->size, named, error);
    }
    /* Weights may be packed too, and be large; a pickle is looked for where
     * one may be. */
    if (storage && member->size > MAX_UNPACKED)
        return true;
    struct tc_error *damage = calloc(1, sizeof *damage);
    char *bytes = NULL;
    if (!damage)
        return tc_fail_memory(error);
    if (member->size > MAX_UNPACKED)
        tc_fail(damage, TC_UNSAFE, "scan-limit",
                "a packed member of %llu bytes (this limit is fixed)",
                (unsigned long long)member->size);
    else
        bytes = zip_load(reader, member, damage);
    bool memory = damage->class == TC_IO;
    if (memory)
        *error = *damage;
    else if (!bytes)
        scan_note_broken(scan, damage);
    free(damage);
    scan->relative = true;
    bool ok = !memory && (!bytes || scan_content(scan, NULL, 0, (unsigned char *)bytes,
                                                 member->size, named, error));
    scan->relative = false;
    return ok;
}

/* A reader that serves as the zip's owner. */
static bool no_open(struct tc_reader *reader, struct tc_error *error) {
    (void)reader;
    (void)error;
    return true;
}

static void no_close(struct tc_reader *reader) {
    (void)reader;
}

static const struct tc_backend scanned = {.name = "scanned", .open = no_open, .close = no_close};

/* A name that is there twice is read differently by different loaders. */
static bool check_names(struct scan *scan, const struct zip *zip, struct tc_error *error) {
    struct tc_table names;
    struct tc_error *twice = calloc(1, sizeof *twice);
    if (!twice)
        return tc_fail_memory(error);
    tc_table_init(&names, &scan->arena, UINT32_MAX - 2);
    for (size_t i = 0; i < zip->count; i++) {
        struct tc_tensor entry = {.name = zip->members[i].name};
        scan->script |= tc_text_ends(entry.name, TC_TEXT("/constants.pkl"));
        if (twice->class == TC_OK && !tc_table_add(&names, &entry, twice))
            scan_note_broken(scan, twice);
    }
    tc_table_release(&names);
    free(twice);
    return true;
}

#define LOCAL_BYTES 30u
#define FRAGMENT_WINDOW ((size_t)1 << 20)
/* The file is broken whatever they hold; this many are enough to tell why. */
#define MAX_FRAGMENTS 10000u

/* One member of a broken zip, by its local header alone: the pickle that starts
 * where its data would, packed or not. */
static bool scan_fragment(struct scan *scan, struct tc_input *input, uint64_t at,
                          struct tc_error *error) {
    unsigned char header[LOCAL_BYTES];
    if (input->size - at < LOCAL_BYTES)
        return true;
    if (!tc_input_read(input, at, header, LOCAL_BYTES, error))
        return false;
    uint64_t data = at + LOCAL_BYTES + (header[26] | (uint64_t)header[27] << 8) +
                    (header[28] | (uint64_t)header[29] << 8);
    if (data >= input->size)
        return true;
    if (header[8] == ZIP_STORED)
        return scan_try(scan, input, data, NULL, input->size - data, error);
    if (header[8] != ZIP_DEFLATED)
        return true;
    struct tc_inflater inflater = {0};
    struct tc_error *ignored = calloc(1, sizeof *ignored);
    unsigned char *bytes = malloc(FRAGMENT_WINDOW);
    size_t length = 0;
    bool ok = ignored && bytes ? tc_inflater_init(&inflater, input, data, input->size, error)
                               : tc_fail_memory(error);
    /* As far as it goes, a byte at a time: nothing says how long it is. */
    while (ok && length < FRAGMENT_WINDOW && tc_inflate(&inflater, bytes + length, 1, ignored))
        length++;
    ok = ok && (!length || scan_try(scan, NULL, 0, bytes, length, error));
    tc_inflater_release(&inflater);
    free(bytes);
    free(ignored);
    return ok;
}

/* Every local header of a zip that can't be read as one: what is in there may
 * still be found by some loader. */
static bool scan_fragments(struct scan *scan, struct tc_reader *reader, struct tc_error *error) {
    struct tc_input *input = reader->input;
    unsigned char *window = malloc(FRAGMENT_WINDOW);
    bool ok = window ? true : tc_fail_memory(error);
    size_t count = 0;
    for (uint64_t at = 0; at < input->size && ok && count < MAX_FRAGMENTS;) {
        uint64_t left = input->size - at;
        size_t size = left < FRAGMENT_WINDOW ? left : FRAGMENT_WINDOW;
        ok = tc_input_read(input, at, window, size, error);
        const unsigned char *found = window;
        while (ok && count++ < MAX_FRAGMENTS &&
               (found = memmem(found, size - (size_t)(found - window), "PK\3\4", 4))) {
            ok = scan_fragment(scan, input, at + (uint64_t)(found - window), error);
            found += 4;
        }
        /* A header may lie across two windows. */
        at += size < left ? size - 3 : size;
    }
    free(window);
    return ok;
}

static bool scan_zip(struct scan *scan, struct tc_reader *reader, struct tc_error *error) {
    struct zip zip = {0};
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    bool opened = zip_open(&zip, reader, damage);
    bool ok = true;
    if (!opened && damage->class == TC_IO) {
        *error = *damage;
        ok = false;
    } else if (!opened) {
        scan_note_broken(scan, damage);
        ok = scan_fragments(scan, reader, error);
        zip.count = 0; /* what it read of the directory is in there too */
    }
    free(damage);
    ok = ok && check_names(scan, &zip, error);
    for (size_t i = 0; i < zip.count && ok; i++) {
        const struct zip_member *member = &zip.members[i];
        char *name = tc_arena_copy(&scan->arena, member->name.bytes, member->name.length, error);
        if (!(ok = name != NULL))
            break;
        scan->member = (struct tc_text){name, member->name.length};
        ok = scan_member(scan, reader, member, error);
    }
    scan->member = (struct tc_text){NULL, 0};
    zip_release(&zip);
    return ok;
}

static void on_member(void *context, const char *name) {
    ((struct scan *)context)->member = tc_text_of(name);
}

static bool scan_tar(struct scan *scan, struct tc_reader *reader, struct tc_error *error) {
    struct torch torch = {.watch = {.context = scan,
                                    .on_member = on_member,
                                    .on_global = scan_on_global,
                                    .on_call = scan_on_call}};
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    torch_init(&torch, reader);
    bool ok = torch_open_tar(&torch, damage);
    bool foreign = damage->code && strcmp(damage->code, "wrong-file") == 0;
    if (!ok && (damage->class == TC_IO || foreign)) {
        *error = *damage;
    } else {
        if (!ok)
            scan_note_broken(scan, damage);
        scan->pickles++;
        ok = true;
    }
    scan->member = (struct tc_text){NULL, 0};
    torch_release(&torch);
    free(damage);
    return ok;
}

/* What is no pickle and holds none: a known format, or nothing that is known.
 * An unknown file might still be a pickle that starts oddly. */
static bool scan_other(struct scan *scan, struct tc_reader *reader, struct tc_error *error) {
    struct tc_error *unknown = calloc(1, sizeof *unknown);
    if (!unknown)
        return tc_fail_memory(error);
    const struct tc_backend *backend = tc_registry_probe(reader->input, unknown);
    bool known = backend && strcmp(backend->name, "pt") != 0;
    bool ok = true;
    if (!known) {
        ok = scan_try(scan, reader->input, 0, NULL, reader->input->size, error);
        /* Not a whole pickle, nothing found in it: what is it then? */
        if (ok && scan->pickles == 0 && !scan->unsafe) {
            if (backend)
                tc_fail(unknown, TC_INVALID, "pickle", "neither a pickle nor an archive of some");
            else
                *error = *unknown;
            scan_note_broken(scan, unknown);
            ok = backend != NULL;
        }
    }
    free(unknown);
    return ok;
}

/* At its start, or by the record at its end: Python looks there. */
static bool is_zip(const struct tc_probe *probe) {
    unsigned char tail[22];
    struct tc_error ignored = {0};
    if (probe->length >= 4 && memcmp(probe->head, "PK", 2) == 0)
        return true;
    return probe->input->size > sizeof tail &&
           tc_input_read(probe->input, probe->input->size - sizeof tail, tail, sizeof tail,
                         &ignored) &&
           memcmp(tail, "PK\5\6", 4) == 0;
}

static bool scan_input(struct scan *scan, struct tc_reader *reader, struct tc_error *error) {
    struct tc_probe probe = {.input = reader->input};
    struct tc_input *input = reader->input;
    probe.length = input->size < sizeof probe.head ? input->size : sizeof probe.head;
    if (!tc_input_read(input, 0, probe.head, probe.length, error))
        return false;
    uint64_t pickle;
    /* A pickle may stand before the zip. */
    bool zip = is_zip(&probe);
    if (zip && memcmp(probe.head, "PK", 2) != 0 &&
        !scan_try(scan, input, 0, NULL, input->size, error))
        return false;
    if (zip)
        return scan_zip(scan, reader, error);
    if (torch_legacy_seen(&probe))
        return scan_range(scan, input, 0, input->size, 5, error);
    if (probe.length >= 262 && memcmp(probe.head + 257, "ustar", 5) == 0)
        return scan_tar(scan, reader, error);
    if (probe.length >= 8 && memcmp(probe.head, "\x93NUMPY", 6) == 0)
        return !scan_holds_objects(probe.head, probe.length, &pickle) ||
               scan_content(scan, input, 0, NULL, input->size, NOT_NAMED, error);
    if (scan_looks_like_pickle(probe.head, probe.length))
        return scan_range(scan, input, 0, input->size, SIZE_MAX, error);
    return scan_other(scan, reader, error);
}

bool scan_file(struct scan *scan, const char *path, struct tc_error *error) {
    struct tc_input *input = tc_input_open(path, NULL, error);
    struct tc_reader *reader = input ? tc_reader_open(&scanned, input, scan->options, error) : NULL;
    if (!reader || !scan->broken) {
        tc_reader_close(reader);
        return reader ? tc_fail_memory(error) : false;
    }
    /* Nodes of one pickle are of no use to the next, but names stay. */
    bool ok = scan_input(scan, reader, error) && tc_input_unchanged(reader->input, error);
    if (!ok)
        tc_error_in_file(error, path);
    tc_reader_close(reader);
    return ok;
}
