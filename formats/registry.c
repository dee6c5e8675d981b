#include "formats/registry.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/memory.h"
#include "core/base/near.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/format/aliases.h"
#include "core/format/restore_metadata.h"
#include "formats/foreign.h"
#include "formats/onnx/options.h"

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

/* What else people call the formats. Of several formats with one alias the first is
 * meant, unless the file's extension says otherwise. */
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

/* Whether a user may call the format so: by its name, an extension with or without
 * the dot, or an alias. */
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

/* How long the extension is by which tc_registry_for_path knows the format. */
static size_t extension_length(const struct tc_backend *backend, struct tc_text name) {
    size_t longest = 0;
    for (const char *const *extension = backend->extensions; *extension; extension++) {
        size_t size = strlen(*extension);
        if (size < name.length && size > longest &&
            strncasecmp(name.bytes + name.length - size, *extension, size) == 0)
            longest = size;
    }
    return longest;
}

struct tc_text tc_registry_stem(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    const char *slash = memrchr(path, '/', length);
    size_t start = slash && length > 1 ? (size_t)(slash - path) + 1 : 0;
    struct tc_text name = {path + start, length - start};
    if (path[length]) /* a folder */
        return name;
    for (bool more = true; more;) {
        size_t longest = 0;
        more = false;
        for (size_t i = 0; tc_registry[i]; i++) {
            size_t own = extension_length(tc_registry[i], name);
            if (own > longest) {
                longest = own;
                more = tc_registry_is_index(tc_registry[i]);
            }
        }
        name.length -= longest;
    }
    return name;
}

bool tc_registry_indexed_path(const char *path, char *indexed, size_t size) {
    const struct tc_backend *backend = tc_registry_for_path(path);
    if (!backend || !tc_registry_is_index(backend))
        return false;
    /* A path that is too long for `indexed` is cut: the system refuses it anyway. */
    size_t length = strlen(path) - strlen(backend->extensions[0]);
    snprintf(indexed, size, "%.*s", (int)(length < size ? length : size - 1), path);
    return true;
}

const struct tc_backend *tc_registry_for_one(void) {
    return &tc_backend_npy;
}

const struct tc_backend *tc_registry_for_hub(const struct tc_backend *original) {
    return original == &tc_backend_safetensors ? &tc_backend_deathtensors : &tc_backend_safetensors;
}

/* Whether a format before this one, or an entry before this one, has the option. */
static bool is_listed_before(size_t format, size_t entry) {
    const struct tc_format_option *option = tc_registry[format]->options[entry];
    for (size_t f = 0; f < format; f++)
        if (tc_backend_declares(tc_registry[f], option))
            return true;
    for (size_t i = 0; i < entry; i++)
        if (tc_registry[format]->options[i] == option)
            return true;
    return false;
}

const struct tc_format_option *tc_registry_option(enum tc_option_use use, size_t position) {
    for (size_t f = 0; tc_registry[f]; f++) {
        const struct tc_format_option *const *options = tc_registry[f]->options;
        for (size_t i = 0; options && options[i]; i++)
            if (options[i]->use == use && !is_listed_before(f, i) && position-- == 0)
                return options[i];
    }
    return NULL;
}

bool tc_registry_is_index(const struct tc_backend *backend) {
    return backend == &tc_backend_index;
}

static bool load_head(struct tc_probe *probe, struct tc_input *input, struct tc_error *error) {
    *probe = (struct tc_probe){.input = input};
    probe->length = input->size < sizeof probe->head ? input->size : sizeof probe->head;
    return tc_input_read(input, 0, probe->head, probe->length, error);
}

/* The format with the highest score; of several the one that the name has. */
static const struct tc_backend *best_match(const struct tc_probe *probe,
                                           const struct tc_backend *by_name) {
    const struct tc_backend *best = NULL;
    int best_score = 0;
    for (size_t i = 0; tc_registry[i]; i++) {
        int score = tc_registry[i]->probe(probe);
        if (score > best_score || (score == best_score && score && tc_registry[i] == by_name)) {
            best = tc_registry[i];
            best_score = score;
        }
    }
    return best;
}

/* A probe that could not look has not said no. */
static bool probes_looked(struct tc_input *input, struct tc_error *error) {
    return tc_input_sound(input, error) && (!tc_memory_lacked() || tc_fail_memory(error));
}

bool tc_registry_recognise(struct tc_input *input, const struct tc_backend **backend,
                           struct tc_error *error) {
    struct tc_probe probe;
    if (!load_head(&probe, input, error))
        return false;
    *backend = best_match(&probe, tc_registry_for_path(input->path));
    return probes_looked(input, error);
}

const struct tc_backend *tc_registry_probe(struct tc_input *input, struct tc_error *error) {
    struct tc_probe probe;
    if (!load_head(&probe, input, error))
        return NULL;
    const struct tc_backend *by_name = tc_registry_for_path(input->path);
    const struct tc_backend *best = best_match(&probe, by_name);
    if (!probes_looked(input, error))
        return NULL;
    if (best)
        return best;
    /* Where the extension is a known format's, and the content nothing else that is
     * known, the format's own open says best what is wrong. */
    if (by_name && !foreign_recognised(&probe))
        return by_name;
    foreign_explain(&probe, error);
    return NULL;
}

bool tc_registry_explain(struct tc_input *input, struct tc_error *error) {
    struct tc_probe probe;
    return load_head(&probe, input, error) && foreign_explain(&probe, error);
}

struct tc_reader *tc_registry_open(const char *path, const struct tc_backend *backend,
                                   const struct tc_format_options *options,
                                   struct tc_error *error) {
    struct tc_input *input = tc_reader_input(options, path, NULL, error);
    return input ? tc_registry_open_input(input, backend, options, error) : NULL;
}

/* A file without tensors is accepted; one whose tensors were all left out fails. */
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
                   !tc_metadata_types_restore(reader, error) ||
                   !tc_aliases_restore(reader, error) || !something_left(reader, error))) {
        tc_reader_close(reader);
        return NULL;
    }
    if (reader && input->copied)
        tc_reader_warn(reader, "the server gives no ranges: all of the file was fetched first");
    return reader;
}
