#include "formats/registry.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/metadata.h"
#include "core/ties.h"

#define TC_FORMAT(name) extern const struct tc_backend tc_backend_##name;
#include "formats/registry.def"
#undef TC_FORMAT

const struct tc_backend *const tc_registry[] = {
#define TC_FORMAT(name) &tc_backend_##name,
#include "formats/registry.def"
#undef TC_FORMAT
    NULL,
};

const struct tc_backend *tc_registry_named(const char *name) {
    for (size_t i = 0; tc_registry[i]; i++)
        if (strcmp(tc_registry[i]->name, name) == 0)
            return tc_registry[i];
    return NULL;
}

/* What people call them beside their names and extensions; of one that stands
 * for several formats the first is the usual one. */
static const struct format_alias {
    const char *alias;
    const struct tc_backend *backend;
} aliases[] = {
    {"numpy", &tc_backend_npy},
    {"numpy", &tc_backend_npz},
    {"np", &tc_backend_npy},
    {"np", &tc_backend_npz},
    {"array", &tc_backend_npy},
    {"arrays", &tc_backend_npz},
    {"safetensor", &tc_backend_safetensors},
    {"safe", &tc_backend_safetensors},
    {"st", &tc_backend_safetensors},
    {"sft", &tc_backend_safetensors},
    {"deathtensor", &tc_backend_deathtensors},
    {"death", &tc_backend_deathtensors},
    {"torch", &tc_backend_pt},
    {"torch", &tc_backend_ot},
    {"pytorch", &tc_backend_pt},
    {"pytorch", &tc_backend_ot},
    {"checkpoint", &tc_backend_pt},
    {"pickle", &tc_backend_pt},
    {"tch", &tc_backend_ot},
    {"libtorch", &tc_backend_ot},
    {"tch-rs", &tc_backend_ot},
    {"protobuf", &tc_backend_pb},
    {"protobuf", &tc_backend_onnx},
    {"proto", &tc_backend_pb},
    {"tensorproto", &tc_backend_pb},
    {"tensorproto", &tc_backend_tf},
    {"tensorflow", &tc_backend_tf},
    {"tensorflow", &tc_backend_tfrecord},
    {"shards", &tc_backend_index},
};
#define ALIASES (sizeof aliases / sizeof *aliases)

/* Its name, an extension with or without the dot, or an alias. */
static bool is_called(const struct tc_backend *backend, struct tc_text name) {
    if (tc_names_alike(name, tc_text_of(backend->name)))
        return true;
    for (const char *const *extension = backend->extensions; *extension; extension++)
        if (tc_names_alike(name, tc_text_of(*extension)) ||
            tc_names_alike(name, tc_text_of(*extension + 1)))
            return true;
    for (size_t i = 0; i < ALIASES; i++)
        if (aliases[i].backend == backend && tc_names_alike(name, tc_text_of(aliases[i].alias)))
            return true;
    return false;
}

const struct tc_backend *tc_registry_called(const char *name, const char *path) {
    struct tc_text wanted = tc_text_of(name);
    const struct tc_backend *own = tc_registry_named(name);
    const struct tc_backend *by_path = path ? tc_registry_for_path(path) : NULL;
    if (own || (by_path && is_called(by_path, wanted)))
        return own ? own : by_path;
    for (size_t i = 0; i < ALIASES; i++)
        if (tc_names_alike(wanted, tc_text_of(aliases[i].alias)))
            return aliases[i].backend;
    for (size_t i = 0; tc_registry[i]; i++)
        if (is_called(tc_registry[i], wanted))
            return tc_registry[i];
    return NULL;
}

bool tc_registry_hint(const char *name, struct tc_error *error, const char *otherwise) {
    struct tc_near near;
    tc_near_init(&near, tc_text_of(name));
    for (size_t i = 0; tc_registry[i]; i++) {
        tc_near_try(&near, tc_text_of(tc_registry[i]->name));
        for (const char *const *extension = tc_registry[i]->extensions; *extension; extension++)
            tc_near_try(&near, tc_text_of(*extension + 1));
    }
    for (size_t i = 0; i < ALIASES; i++)
        tc_near_try(&near, tc_text_of(aliases[i].alias));
    return tc_near_hint(&near, error, otherwise);
}

const struct tc_backend *tc_registry_for_path(const char *path) {
    const char *name = tc_path_name(path);
    size_t length = strlen(name);
    const struct tc_backend *best = NULL;
    size_t best_length = 0;
    for (size_t i = 0; tc_registry[i]; i++)
        for (const char *const *extension = tc_registry[i]->extensions; *extension; extension++) {
            size_t size = strlen(*extension);
            if (size < length && size > best_length &&
                strcasecmp(name + length - size, *extension) == 0) {
                best = tc_registry[i];
                best_length = size;
            }
        }
    return best;
}

bool tc_registry_is_index(const struct tc_backend *backend) {
    return backend == &tc_backend_index;
}

/* Files that end up where a model should be. */
static const struct foreign {
    const char *magic;
    size_t length;
    size_t offset;
    enum tc_class class;
    const char *what;
    const char *hint;
} foreigners[] = {
    {"version https://git-lfs", 23, 0, TC_INVALID, "a git-lfs pointer, not the file itself",
     "fetch the file with: git lfs pull"},
    {"<!DOCTYPE", 9, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<!doctype", 9, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<html", 5, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<HTML", 5, 0, TC_INVALID, "an HTML page; the download went wrong", NULL},
    {"<?xml", 5, 0, TC_INVALID, "an XML document; the download may have gone wrong", NULL},
    {"\x1f\x8b", 2, 0, TC_UNSUPPORTED, "gzip-compressed", "unpack it first with: gzip -d"},
    {"\xfd"
     "7zXZ",
     5, 0, TC_UNSUPPORTED, "xz-compressed", "unpack it first with: xz -d"},
    {"BZh", 3, 0, TC_UNSUPPORTED, "bzip2-compressed", "unpack it first with: bzip2 -d"},
    {"\x28\xb5\x2f\xfd", 4, 0, TC_UNSUPPORTED, "zstd-compressed", "unpack it first with: zstd -d"},
    {"7z\xbc\xaf\x27\x1c", 6, 0, TC_UNSUPPORTED, "a 7z archive", "unpack it first"},
    {"Rar!\x1a\x07", 6, 0, TC_UNSUPPORTED, "a RAR archive", "unpack it first"},
    {"ustar", 5, 257, TC_UNSUPPORTED, "a tar archive", "unpack it first with: tar -xf"},
    {"GGUF", 4, 0, TC_UNSUPPORTED, "a GGUF file", NULL},
    {"\x89HDF\r\n\x1a\n", 8, 0, TC_UNSUPPORTED, "an HDF5 file", NULL},
    {"\x7f"
     "ELF",
     4, 0, TC_UNSUPPORTED, "a program (ELF)", NULL},
    {"PK\3\4", 4, 0, TC_UNSUPPORTED, "a zip archive of some other kind", NULL},
    {"\x80\x02", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
    {"\x80\x03", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
    {"\x80\x04", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
    {"\x80\x05", 2, 0, TC_UNSUPPORTED, "a Python pickle", NULL},
};

static const struct foreign *find_foreign(const struct tc_probe *probe, size_t start) {
    for (size_t i = 0; i < sizeof foreigners / sizeof *foreigners; i++) {
        const struct foreign *foreign = &foreigners[i];
        size_t at = foreign->offset + start;
        if (probe->length >= at + foreign->length &&
            memcmp(probe->head + at, foreign->magic, foreign->length) == 0)
            return foreign;
    }
    return NULL;
}

/* Printable characters and white space only; the last one may be cut. */
static bool looks_like_text(const struct tc_probe *probe) {
    const char *bytes = (const char *)probe->head;
    size_t at = 0;
    while (at < probe->length) {
        uint32_t character;
        size_t step = tc_utf8_length(bytes + at, probe->length - at, &character);
        if (step == 0)
            return at > 0 && probe->length - at < 4 && probe->length == sizeof probe->head;
        if (character < 0x20 && !strchr("\t\n\r\f", (int)character))
            return false;
        at += step;
    }
    return true;
}

/* Nothing knows the file by its content: say what it is. What has a format's
 * extension, and is not plainly something else, that format's open explains. */
static const struct tc_backend *explain(const struct tc_probe *probe,
                                        const struct tc_backend *by_name, struct tc_error *error) {
    size_t blank = 0;
    while (blank < probe->length && memchr(" \t\r\n", probe->head[blank], 4))
        blank++;
    const struct foreign *foreign = find_foreign(probe, 0);
    if (!foreign)
        foreign = find_foreign(probe, blank);
    bool json = blank < probe->length && probe->head[blank] == '{';
    bool text = looks_like_text(probe);
    if (foreign) {
        tc_fail(error, foreign->class, "wrong-file", "this is %s", foreign->what);
        if (foreign->hint)
            tc_error_hint(error, "%s", foreign->hint);
    } else if (probe->length == 0) {
        tc_fail(error, TC_INVALID, "empty", "the file is empty");
    } else if (by_name && (json || !text)) {
        return by_name;
    } else if (text) {
        tc_fail(error, TC_INVALID, "wrong-file", "this is a text file, no tensors");
    } else {
        tc_fail(error, TC_INVALID, "unknown-format", "not a file of any known format");
        tc_error_hint(error, "tconv formats lists what is read; -f FORMAT names one");
    }
    return NULL;
}

const struct tc_backend *tc_registry_probe(struct tc_input *input, struct tc_error *error) {
    struct tc_probe probe = {.input = input};
    probe.length = input->size < sizeof probe.head ? input->size : sizeof probe.head;
    if (!tc_input_read(input, 0, probe.head, probe.length, error))
        return NULL;
    const struct tc_backend *by_name = tc_registry_for_path(input->path);
    const struct tc_backend *best = NULL;
    int best_score = 0;
    for (size_t i = 0; tc_registry[i]; i++) {
        int score = tc_registry[i]->probe(&probe);
        if (score > best_score || (score == best_score && score && tc_registry[i] == by_name)) {
            best = tc_registry[i];
            best_score = score;
        }
    }
    if (best)
        return best;
    return explain(&probe, by_name, error);
}

struct tc_reader *tc_registry_open(const char *path, const struct tc_backend *backend,
                                   const struct tc_format_options *options,
                                   struct tc_error *error) {
    struct tc_input *input = tc_input_open(path, NULL, error);
    return input ? tc_registry_open_input(input, backend, options, error) : NULL;
}

/* An empty file is legal; one of which nothing can be read is not read. */
static bool something_left(const struct tc_reader *reader, struct tc_error *error) {
    return reader->table.count || !tc_notes_count(&reader->notes, TC_LOSS, TC_KIND_SKIPPED) ||
           tc_reader_refuse_rest(reader, error);
}

struct tc_reader *tc_registry_open_input(struct tc_input *input, const struct tc_backend *backend,
                                         const struct tc_format_options *options,
                                         struct tc_error *error) {
    if (!backend)
        backend = tc_registry_probe(input, error);
    if (!backend) {
        tc_error_in_file(error, input->path);
        tc_input_close(input);
        return NULL;
    }
    struct tc_reader *reader = tc_reader_open(backend, input, options, error);
    bool sidecar = !(backend->caps & TC_CAN_FILE_METADATA) && backend->caps & TC_CAN_WRITE;
    if (reader && ((sidecar && !tc_sidecar_restore(reader, error)) ||
                   !tc_ties_restore(reader, error) || !something_left(reader, error))) {
        tc_reader_close(reader);
        return NULL;
    }
    return reader;
}
