#include "formats/model_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/notes.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/file_sums.h"
#include "core/format/quant_config.h"
#include "core/io/input.h"
#include "core/io/listing.h"
#include "core/remote/address.h"
#include "formats/model_name.h"
#include "formats/model_open.h"
#include "formats/registry.h"

#define CONFIG "config.json"
/* What is read and hashed at a time. */
#define COPY_BYTES ((size_t)1 << 20)

/* What is being listed. */
struct listing_state {
    struct model_copy *copy;
    const struct model *model;
    struct tc_plan *plan;
    struct tc_name_map weights; /* names of the files that the reader reads */
    struct tc_name_map outputs; /* names of the files that are written */
};

/* The folder's path, a slash and a name; from malloc, NULL without memory. */
static char *join(const char *folder, const char *name) {
    size_t length = strlen(folder);
    char *path = NULL;
    bool slash = length == 0 || folder[length - 1] == '/';
    return asprintf(&path, "%s%s%s", folder, slash ? "" : "/", name) < 0 ? NULL : path;
}

static bool is_below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 &&
           (path[length] == '/' || (length && folder[length - 1] == '/' && path[length]));
}

bool model_copy_may_take(const char *real, const char *root, const struct cache_blobs *blobs,
                         struct tc_error *error) {
    if (is_below(real, root) || cache_blobs_hold(blobs, real))
        return true;
    tc_fail(error, TC_UNSAFE, "link-outside", "this is a link that leads out of the folder");
    return tc_error_hint(error, "copy what it leads to into the folder, or remove the link");
}

/* Whether something may be taken that lies here, once all links are resolved. */
static bool check_place(const struct model_copy *copy, const char *name, const char *real,
                        struct tc_error *error) {
    return model_copy_may_take(real, copy->root, &copy->blobs, error) ||
           tc_error_in_file(error, name);
}

/* Looks where a link leads. */
static bool check_link(const struct model_copy *copy, const char *path, struct tc_error *error) {
    if (!copy->root)
        return true;
    char *real = realpath(path, NULL);
    if (!real) {
        bool broken = tc_path_missing(errno);
        tc_fail_errno(error, errno, broken ? "link-broken" : "open",
                      broken ? "this is a link that leads nowhere" : "cannot tell where it lies");
        if (broken)
            error->class = TC_UNSAFE;
        return tc_error_in_file(error, path);
    }
    bool ok = check_place(copy, path, real, error);
    free(real);
    return ok;
}

/* A file that the reader reads: in the folder, or in one below, which is then the model's as a
 * whole. */
static bool add_weight(struct listing_state *state, const char *path, struct tc_error *error) {
    const char *folder = state->copy->path;
    size_t length = strlen(folder);
    bool inside = strncmp(path, folder, length) == 0 && strlen(path) > length;
    const char *below = inside ? path + length : tc_path_name(path);
    while (*below == '/')
        below++;
    char *joined = join(folder, below);
    bool ok = joined ? check_link(state->copy, joined, error) : tc_fail_memory(error);
    free(joined);
    struct tc_text name = {below, strcspn(below, "/")};
    return ok && (tc_name_map_find(&state->weights, name) ||
                  tc_name_map_add(&state->weights, name, 0, error));
}

/* All files that the reader reads; links among them are checked, too. */
static bool list_weights(struct listing_state *state, const struct tc_reader *reader,
                         struct tc_error *error) {
    struct tc_input *input;
    for (size_t at = 0; (input = tc_reader_next_file(reader, &at));)
        if (!add_weight(state, input->path, error))
            return false;
    return true;
}

static bool add_output(struct listing_state *state, const char *name, struct tc_error *error) {
    return !name || tc_name_map_add(&state->outputs, tc_text_of(name), 0, error);
}

static bool list_outputs(struct listing_state *state, struct tc_error *error) {
    const struct tc_plan *plan = state->plan;
    bool ok =
        add_output(state, plan->index_name, error) && add_output(state, plan->sidecar_name, error);
    for (size_t i = 0; i < plan->file_count && ok; i++)
        ok = add_output(state, plan->files[i].name, error) &&
             add_output(state, plan->files[i].companion, error);
    return ok;
}

static bool note(struct listing_state *state, const char *name, struct tc_error *error,
                 const char *what) {
    return tc_plan_note(state->plan, TC_WARNING, TC_KIND_OUTPUT, tc_text_of(name), error, "%s",
                        what);
}

/* Whether an entry of the folder itself, not of one below, is left out, and why. */
static const char *left_out(const struct listing_state *state, const struct tc_entry *entry) {
    struct tc_text variant = state->model->name.variant;
    struct model_name name = model_name_parse(entry->name, variant);
    if (entry->kind == TC_ENTRY_FOLDER && state->model->backend == &tc_backend_zero &&
        tc_text_starts(entry->name, TC_TEXT("global_step")))
        return "folders of other checkpoints of the training are not copied";
    if (entry->kind == TC_ENTRY_FOLDER)
        return tc_text_equal(entry->name, TC_TEXT(".git")) ||
                       tc_text_equal(entry->name, TC_TEXT(".cache"))
                   ? "folders of version control and of downloads are not copied"
                   : NULL;
    if (entry->kind != TC_ENTRY_FILE)
        return NULL;
    if (state->plan->dequantised && tc_text_equal(entry->name, TC_TEXT("hf_quant_config.json")))
        return "what it says of quantised weights is over: they are plain now";
    if (tc_text_ends(entry->name, TC_TEXT(".distcp")))
        return "files of the same weights in another form are not copied";
    if (tc_name_map_find(&state->outputs, entry->name))
        return "files that have the name of one that is written are not copied";
    return name.is_weights && !model_name_is_training(entry->name) &&
                   model_name_same_weights(&name, &state->model->name)
               ? "files of the same weights in another form are not copied"
               : NULL;
}

static bool ends_with_any(struct tc_text name, const char *const *endings) {
    for (; *endings; endings++)
        if (tc_text_ends(name, tc_text_of(*endings)))
            return true;
    return false;
}

static bool is_program(struct tc_text name) {
    static const char *const endings[] = {".py", ".pyc", ".pyw", ".pyx",
                                          ".so", ".sh",  ".dll", NULL};
    return ends_with_any(name, endings);
}

/* Whether a file is a pickle, by its content, or by a name that programs take for one. */
static bool find_pickle(const struct model_copy *copy, const char *path, struct tc_text name,
                        bool *pickle, struct tc_error *error) {
    static const char *const endings[] = {".pkl",  ".pickle", ".pt",  ".pth",
                                          ".ckpt", ".joblib", ".bin", NULL};
    const struct tc_backend *backend = NULL;
    struct tc_input *input = tc_reader_input(copy->options, path, NULL, error);
    bool ok = input && tc_registry_recognise(input, &backend, error);
    tc_input_close(input);
    *pickle = backend == &tc_backend_pt || ends_with_any(name, endings);
    return ok || tc_error_in_file(error, path);
}

/* Names what could run when the copied folder is used. */
static bool note_dangers(struct listing_state *state, const char *path, const char *name,
                         struct tc_text last, struct tc_error *error) {
    if (is_program(last))
        return note(state, name, error, "programs are copied with the model; look at them first");
    bool pickle;
    if (!find_pickle(state->copy, path, last, &pickle, error))
        return false;
    return !pickle ||
           note(state, name, error,
                "pickles are copied with the model; loading one may run anything (tconv scan)");
}

static bool add_entry(struct model_copy *copy, struct model_copy_entry entry,
                      struct tc_error *error) {
    if (copy->count == copy->capacity) {
        size_t capacity = copy->capacity ? 2 * copy->capacity : 64;
        struct model_copy_entry *entries =
            reallocarray(copy->entries, capacity, sizeof *copy->entries);
        if (!entries)
            return tc_fail_memory(error);
        copy->entries = entries;
        copy->capacity = capacity;
    }
    entry.name = tc_arena_copy(&copy->arena, entry.name, strlen(entry.name), error);
    if (entry.name)
        copy->entries[copy->count++] = entry;
    return entry.name != NULL;
}

static bool fail_special(const char *path, struct tc_error *error) {
    tc_fail(error, TC_UNSAFE, "special-file", "a pipe, a device or a socket is not copied");
    tc_error_hint(error, "remove it, or copy no files with --only-weights");
    return tc_error_in_file(error, path);
}

/* One entry of the folder `below` (its path in the model's, "" for that itself). */
static bool list_entry(struct listing_state *state, const char *below, const struct tc_entry *entry,
                       struct tc_error *error) {
    struct model_copy *copy = state->copy;
    char *name = below[0] ? join(below, entry->name.bytes) : strdup(entry->name.bytes);
    char *path = name ? join(copy->path, name) : NULL;
    bool ok = path || tc_fail_memory(error);
    const char *why = ok && !below[0] ? left_out(state, entry) : NULL;
    if (!ok || (!below[0] && tc_name_map_find(&state->weights, entry->name)))
        ;
    else if (why)
        ok = note(state, name, error, why);
    else if (entry->link && !check_link(copy, path, error))
        ok = false;
    else if (entry->kind == TC_ENTRY_SPECIAL)
        ok = fail_special(path, error);
    else {
        bool is_folder = entry->kind == TC_ENTRY_FOLDER;
        bool tells_scales = !is_folder && state->plan->dequantised && strcmp(name, CONFIG) == 0;
        struct model_copy_entry kept = {name, is_folder, tells_scales};
        ok = add_entry(copy, kept, error) &&
             (is_folder || note_dangers(state, path, name, entry->name, error)) &&
             (!tells_scales ||
              tc_plan_note(state->plan, TC_CHANGE, TC_KIND_DEQUANTISED, tc_text_of(name), error,
                           "the configuration is written without quantization_config"));
    }
    free(name);
    free(path);
    return ok;
}

static bool check_limits(struct model_copy *copy, const char *below, size_t more,
                         struct tc_error *error) {
    unsigned depth = below[0] != '\0';
    for (const char *at = below; *at; at++)
        depth += *at == '/';
    copy->seen += more;
    if (copy->seen <= TC_MAX_FOLDER_ENTRIES && depth <= TC_MAX_FOLDER_DEPTH)
        return true;
    if (depth > TC_MAX_FOLDER_DEPTH)
        tc_fail(error, TC_UNSAFE, "folder-limit", "folders lie more than %u deep in each other",
                TC_MAX_FOLDER_DEPTH);
    else
        tc_fail(error, TC_UNSAFE, "folder-limit", "the folder and those below have over %u entries",
                TC_MAX_FOLDER_ENTRIES);
    tc_error_hint(error, TC_FIXED_LIMIT);
    return tc_error_in_file(error, copy->path);
}

static bool list_folder(struct listing_state *state, const char *below, struct tc_error *error) {
    struct tc_listing listing;
    /* An address has no slash at its end. */
    char *path =
        below[0] || state->copy->root ? join(state->copy->path, below) : strdup(state->copy->path);
    tc_listing_init(&listing);
    bool ok =
        path ? model_list(&listing, path, state->copy->options, error) : tc_fail_memory(error);
    /* The kernel may count the links of a circle sooner than check_link sees where one leads. */
    if (!ok && error->class == TC_IO && error->errnum == ELOOP) {
        error->class = TC_UNSAFE;
        error->code = "link-broken";
    }
    ok = ok && check_limits(state->copy, below, listing.count, error);
    for (size_t i = 0; i < listing.count && ok; i++)
        ok = list_entry(state, below, &listing.entries[i], error);
    tc_listing_release(&listing);
    free(path);
    return ok;
}

bool model_copy_list(struct model_copy *copy, const char *path, const struct model *model,
                     const struct tc_reader *reader, bool only_weights, struct tc_plan *plan,
                     struct tc_error *error) {
    struct listing_state state = {.copy = copy, .model = model, .plan = plan};
    bool here = !tc_address_is(path);
    *copy = (struct model_copy){.path = path, .options = reader->options};
    tc_arena_init(&copy->arena, 0);
    if (here && !(copy->root = realpath(path, NULL)))
        return tc_fail_errno(error, errno, "open", "cannot open the folder");
    int failed = here ? cache_blobs_find(&copy->blobs, path) : 0;
    if (failed)
        return tc_fail_errno(error, failed, "open", "cannot look for the cache's blobs");
    tc_name_map_init(&state.weights, NULL);
    tc_name_map_init(&state.outputs, NULL);
    bool ok = list_weights(&state, reader, error) && list_outputs(&state, error) &&
              (only_weights || list_folder(&state, "", error));
    /* Folders that are found on the way are listed in their turn. */
    for (size_t i = 0; i < copy->count && ok; i++)
        if (copy->entries[i].is_folder)
            ok = list_folder(&state, copy->entries[i].name, error);
    tc_name_map_release(&state.weights);
    tc_name_map_release(&state.outputs);
    return ok;
}

/* Checks once more where a file lies that is open: a link may have changed. */
static bool check_open(const struct model_copy *copy, struct tc_input *input,
                       struct tc_error *error) {
    char link[32];
    if (!copy->root)
        return true;
    int fd = tc_input_acquire(input, error);
    if (fd < 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    char *real = realpath(link, NULL);
    if (!real || access("/proc/self/fd", X_OK) != 0) {
        free(real);
        real = realpath(input->path, NULL);
    }
    tc_input_release(input);
    bool ok = real ? check_place(copy, input->path, real, error)
                   : tc_fail(error, TC_IO, "changed", "the file changed while it was read");
    free(real);
    return ok ? true : tc_error_in_file(error, input->path);
}

/* Writes a config without what it says of quantised weights. */
static bool write_config(struct tc_outfile *out, struct tc_input *input, unsigned char *sum,
                         struct tc_error *error) {
    struct tc_buffer text = {0};
    if (input->size > TC_QUANT_CONFIG_LIMIT) {
        tc_fail(error, TC_UNSAFE, "header-limit", "the configuration is over %llu bytes",
                (unsigned long long)TC_QUANT_CONFIG_LIMIT);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    char *config = tc_input_load(input, 0, input->size, error);
    bool ok = config && tc_quant_config_drop((struct tc_text){config, input->size}, &text, error) &&
              (!sum || tc_sha256_of(text.bytes, text.length, sum, error)) &&
              tc_outfile_write(out, text.bytes, text.length, error);
    tc_buffer_release(&text);
    free(config);
    return ok || tc_error_in_file(error, input->path);
}

/* Copies and hashes: the kernel's copy would show nobody the bytes. */
static bool copy_and_sum(struct tc_outfile *out, struct tc_input *input, unsigned char *sum,
                         struct tc_error *error) {
    struct tc_sha256 hash;
    char *buffer = malloc(COPY_BYTES);
    bool ok = (buffer || tc_fail_memory(error)) && tc_sha256_init(&hash, error);
    if (!ok) {
        free(buffer);
        return false;
    }
    tc_input_expect(input, 0, input->size);
    for (uint64_t at = 0; at < input->size && ok;) {
        size_t step = input->size - at < COPY_BYTES ? (size_t)(input->size - at) : COPY_BYTES;
        ok = tc_input_read(input, at, buffer, step, error) &&
             tc_outfile_write(out, buffer, step, error);
        if (ok)
            tc_sha256_update(&hash, buffer, step);
        at += step;
    }
    tc_sha256_finish(&hash, sum);
    free(buffer);
    return ok;
}

/* Writes what the file becomes. */
static bool write_copy(struct tc_outfile *out, struct tc_input *input,
                       struct model_copy_entry *entry, bool sums, struct tc_error *error) {
    unsigned char *sum = sums ? entry->sum : NULL;
    return entry->tells_scales ? write_config(out, input, sum, error)
           : sum               ? copy_and_sum(out, input, sum, error)
                               : tc_outfile_copy(out, input, 0, input->size, error);
}

static bool copy_file(const struct model_copy *copy, const char *path,
                      struct model_copy_entry *entry, struct tc_publish *publish,
                      struct tc_error *error) {
    struct tc_input *input = tc_reader_input(copy->options, path, NULL, error);
    struct tc_outfile *out = input && check_open(copy, input, error)
                                 ? tc_outfile_open(publish, entry->name, error)
                                 : NULL;
    bool ok = out != NULL;
    if (ok) {
        mode_t mask = umask(0);
        umask(mask);
        mode_t most = copy->root ? input->mode : 0666;
        out->mode = (most & ~mask) | 0600;
        ok = write_copy(out, input, entry, copy->sums, error) && tc_outfile_seal(out, error) &&
             tc_input_unchanged(input, error);
        entry->size = out->end;
    }
    tc_input_close(input);
    return ok;
}

static bool copy_folder(const struct model_copy *copy, const char *path,
                        struct model_copy_entry *entry, struct tc_publish *publish,
                        struct tc_error *error) {
    struct stat status = {.st_mode = 0777};
    if (copy->root && stat(path, &status) != 0) {
        tc_fail_errno(error, errno, "changed", "the folder changed while it was read");
        return tc_error_in_file(error, path);
    }
    entry->mode = status.st_mode & 0777;
    return tc_publish_add_folder(publish, entry->name, entry->mode, error);
}

bool model_copy_write(struct model_copy *copy, struct tc_publish *publish, struct tc_error *error) {
    bool ok = true;
    for (size_t i = 0; i < copy->count && ok; i++) {
        struct model_copy_entry *entry = &copy->entries[i];
        char *path = join(copy->path, entry->name);
        if (!path)
            ok = tc_fail_memory(error);
        else
            ok = (entry->is_folder ? copy_folder : copy_file)(copy, path, entry, publish, error);
        free(path);
    }
    return ok;
}

static bool check_file(const struct model_copy_entry *entry, const struct tc_publish *publish,
                       struct tc_error *error) {
    const struct tc_outfile *out = tc_publish_find(publish, entry->name);
    struct tc_input *input = out ? tc_outfile_reopen(out, NULL, error) : NULL;
    char got[2 * TC_SHA256_BYTES + 1];
    char meant[2 * TC_SHA256_BYTES + 1];
    bool ok = input && tc_input_sum(input, got, error);
    tc_hex(entry->sum, TC_SHA256_BYTES, meant);
    if (!out || (ok && strcmp(got, meant) != 0))
        ok = tc_fail(error, TC_IO, "verification", "the copy has other bytes (SHA-256 mismatch)");
    tc_input_close(input);
    return ok || tc_error_in_file(error, entry->name);
}

bool model_copy_check(const struct model_copy *copy, const struct tc_publish *publish,
                      struct tc_error *error) {
    for (size_t i = 0; i < copy->count; i++)
        if (!copy->entries[i].is_folder && !check_file(&copy->entries[i], publish, error))
            return false;
    return true;
}

void model_copy_release(struct model_copy *copy) {
    tc_arena_release(&copy->arena);
    free(copy->entries);
    free(copy->root);
    cache_blobs_release(&copy->blobs);
    *copy = (struct model_copy){0};
}
