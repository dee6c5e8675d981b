/*
 * The list of regions, the findings and the damage. The region that was added last is
 * looked at first, so that nested archives need no recursion, and at most one archive
 * of each depth is unpacked at a time. All limits are for the whole file.
 */

#include "formats/scan/walk.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/arena.h"
#include "core/base/limits.h"
#include "core/base/path.h"
#include "core/remote/address.h"
#include "core/remote/client.h"
#include "core/remote/remote.h"

/* The least bytes that an honest member of an archive takes, with its header. */
#define BYTES_A_REGION 64u
#define MAX_FINDINGS 100000u
/* A finding that repeats one of so many before it is not added. */
#define REMEMBERED 64u

void scan_source_drop(struct scan_source *source) {
    if (!source || --source->users)
        return;
    tc_input_close(source->input);
    free(source);
}

struct scan_source *scan_source_new(struct tc_input *input, bool packed, struct tc_error *error) {
    struct scan_source *source = input ? malloc(sizeof *source) : NULL;
    if (source)
        *source = (struct scan_source){input, 1, packed};
    else if (input) {
        tc_fail_memory(error);
        tc_input_close(input);
    }
    return source;
}

/* What is found and wrong */

bool scan_note_broken(struct scan *scan, const struct tc_error *damage, struct tc_error *error) {
    if (error && damage->class == TC_IO) {
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

static bool is_repeated(const struct scan *scan, const struct scan_finding *finding) {
    size_t first = scan->count > REMEMBERED ? scan->count - REMEMBERED : 0;
    for (size_t i = first; i < scan->count; i++) {
        const struct scan_finding *other = &scan->findings[i];
        if (other->offset == finding->offset && other->kind == finding->kind &&
            other->relative == finding->relative && other->what == finding->what &&
            tc_text_equal(other->member, finding->member) &&
            tc_text_equal(other->name, finding->name))
            return true;
    }
    return false;
}

bool scan_add_finding(struct scan *scan, struct scan_finding finding, struct tc_error *error) {
    const struct scan_region *region = scan->region;
    scan->seen[finding.level] = true;
    finding.member = region->name;
    finding.relative = region->source->packed;
    finding.offset += region->offset;
    /* Findings of allowed names must leave room for the others. */
    size_t most = finding.level == SCAN_ALLOWED ? MAX_FINDINGS : 2 * MAX_FINDINGS;
    if (scan->count >= most) {
        scan->left_out++;
        return true;
    }
    if (is_repeated(scan, &finding))
        return true;
    if (scan->count == scan->capacity) {
        size_t capacity = scan->capacity ? scan->capacity * 2 : 64;
        struct scan_finding *findings = reallocarray(scan->findings, capacity, sizeof *findings);
        if (!findings)
            return tc_fail_memory(error);
        scan->findings = findings;
        scan->capacity = capacity;
    }
    /* The name is in the pickle machine's arena, which is released before findings are
     * printed. */
    finding.name.bytes = tc_arena_copy(&scan->arena, finding.name.length ? finding.name.bytes : "",
                                       finding.name.length, error);
    if (!finding.name.bytes)
        return false;
    scan->findings[scan->count++] = finding;
    return true;
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

void scan_allow_regions(struct scan *scan, uint64_t size) {
    scan->most_regions += size / BYTES_A_REGION;
}

struct scan_region *scan_push_region(struct scan *scan, struct scan_region region,
                                     struct tc_error *error) {
    bool many = scan->regions >= scan->options->limits.tensors;
    if (many || scan->regions >= scan->most_regions) {
        /* The scan goes on with the regions that are in the list. */
        scan_note_limit(scan, "members", many ? "--max-tensors" : NULL);
        scan_source_drop(region.source);
        return tc_arena_alloc(&scan->arena, sizeof region, error);
    }
    struct scan_region *added = tc_arena_alloc(&scan->arena, sizeof *added, error);
    if (!added) {
        scan_source_drop(region.source);
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
    return scan_push_region(view->scan, region, error);
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
        scan_source_new(scan_keep(bytes, length, outer->source->input, error), true, error);
    struct scan_region region = {.source = source,
                                 .length = length,
                                 .name = outer->name,
                                 .role = (uint8_t)role,
                                 .depth = outer->depth + 1,
                                 .archived = outer->archived};
    return source && scan_push_region(scan, region, error);
}

bool scan_machine_failed(const struct tc_error *error) {
    int errnum = error->class == TC_IO ? error->errnum : 0;
    return errnum == EIO || errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM;
}

/* A pipe or a device is never opened. */
static struct tc_input *open_plain(struct scan *scan, const char *path, struct tc_error *missing,
                                   struct tc_error *error) {
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        tc_fail(missing, TC_INVALID, "not-a-file", "this is no plain file");
        return NULL;
    }
    struct tc_input *input = tc_input_open(path, &scan->pool, missing);
    if (!input && scan_machine_failed(missing))
        *error = *missing;
    return input;
}

/* A file of an address: that it is not there is noted; that it can't be told is an error. */
static struct tc_input *open_remote(struct tc_remote *remote, const char *address,
                                    struct tc_error *missing, struct tc_error *error) {
    struct tc_input *input = tc_remote_open(remote, address, missing);
    bool has = false;
    if (!input && tc_remote_has(remote, address, &has, error) && has)
        *error = *missing;
    return input;
}

/* Opens a file; *source is NULL where that fails, which is recorded. */
static bool open_file(struct scan *scan, const char *path, struct scan_source **source,
                      struct tc_error *error) {
    struct tc_remote *remote = scan->options->remote;
    struct tc_error *missing = calloc(1, sizeof *missing);
    *source = NULL;
    if (!missing)
        return tc_fail_memory(error);
    struct tc_input *input = remote && tc_address_is(path)
                                 ? open_remote(remote, path, missing, error)
                                 : open_plain(scan, path, missing, error);
    bool failed = error->class != TC_OK;
    if (!failed && !input)
        scan_note(scan, missing->code, "%s: %s", path, missing->message);
    free(missing);
    if (!input)
        return !failed;
    scan->most_regions++;
    scan_allow_regions(scan, input->size);
    *source = scan_source_new(input, false, error);
    return *source != NULL;
}

bool scan_add_file(const struct scan_view *view, const char *path, struct tc_text name,
                   enum scan_role role, struct tc_error *error) {
    struct scan *scan = view->scan;
    struct scan_source *source;
    char *copy = tc_arena_copy(&scan->arena, name.bytes, name.length, error);
    if (!copy || !open_file(scan, path, &source, error))
        return false;
    if (!source)
        return true;
    struct scan_region region = {.source = source,
                                 .length = source->input->size,
                                 .name = {copy, name.length},
                                 .role = (uint8_t)role,
                                 .depth = view->region->depth + 1};
    return scan_push_region(scan, region, error);
}

/* The path of a file in the folder of the one that is looked at. */
static bool path_beside(const struct scan_view *view, struct tc_text name, struct tc_buffer *path,
                        struct tc_error *error) {
    const char *whole = view->input->path;
    size_t folder = (size_t)(tc_path_name(whole) - whole);
    /* With "./" before it, "-" is a file's name and not the standard input. */
    tc_buffer_add(path, folder ? whole : "./", folder ? folder : 2);
    tc_buffer_add_text(path, name);
    tc_buffer_add(path, "", 1);
    if (!tc_buffer_ok(path, error))
        return false;
    if (!view->scan->options->remote || !tc_address_is(path->bytes))
        return true;
    char *address = tc_remote_beside(path->bytes, folder, error);
    path->length = 0;
    tc_buffer_add_string(path, address ? address : "");
    tc_buffer_add(path, "", 1);
    free(address);
    return address && tc_buffer_ok(path, error);
}

bool scan_open_beside(const struct scan_view *view, struct tc_text name,
                      struct scan_source **source, struct tc_error *error) {
    struct tc_buffer path = {0};
    bool ok =
        path_beside(view, name, &path, error) && open_file(view->scan, path.bytes, source, error);
    tc_buffer_release(&path);
    return ok;
}

bool scan_add_beside(const struct scan_view *view, struct tc_text name, enum scan_role role,
                     struct tc_error *error) {
    struct tc_buffer path = {0};
    bool ok =
        path_beside(view, name, &path, error) && scan_add_file(view, path.bytes, name, role, error);
    tc_buffer_release(&path);
    return ok;
}
