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
#include "core/format/backend.h"
#include "core/io/input.h"
#include "core/io/listing.h"
#include "formats/model_name.h"
#include "formats/registry.h"

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

char *model_copy_blobs(const char *path) {
    static const char snapshots[] = "/snapshots/";
    char *root = realpath(path, NULL);
    const char *last = NULL;
    for (const char *at = root; at && (at = strstr(at, snapshots)); at++)
        last = at;
    char *blobs = NULL;
    if (last && asprintf(&blobs, "%.*s/blobs", (int)(last - root), root) < 0)
        blobs = NULL;
    free(root);
    char *real = blobs ? realpath(blobs, NULL) : NULL;
    free(blobs);
    return real;
}

static bool is_below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 &&
           (path[length] == '/' || (length && folder[length - 1] == '/' && path[length]));
}

/* Whether something may be taken that lies here, once all links are resolved. */
static bool check_place(const struct model_copy *copy, const char *name, const char *real,
                        struct tc_error *error) {
    if (is_below(real, copy->root) || (copy->blobs && is_below(real, copy->blobs)))
        return true;
    tc_fail(error, TC_UNSAFE, "link-outside", "this is a link that leads out of the folder");
    tc_error_hint(error, "copy what it leads to into the folder, or remove the link");
    return tc_error_in_file(error, name);
}

/* Looks where a link leads. */
static bool check_link(const struct model_copy *copy, const char *path, struct tc_error *error) {
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

static bool add_weight(struct listing_state *state, const char *path, struct tc_error *error) {
    struct tc_text name = tc_text_of(tc_path_name(path));
    char *joined = join(state->copy->path, name.bytes);
    bool ok = joined ? check_link(state->copy, joined, error) : tc_fail_memory(error);
    free(joined);
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
    if (entry->kind == TC_ENTRY_FOLDER)
        return tc_text_equal(entry->name, TC_TEXT(".git")) ||
                       tc_text_equal(entry->name, TC_TEXT(".cache"))
                   ? "folders of version control and of downloads are not copied"
                   : NULL;
    if (entry->kind != TC_ENTRY_FILE)
        return NULL;
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
static bool find_pickle(const char *path, struct tc_text name, bool *pickle,
                        struct tc_error *error) {
    static const char *const endings[] = {".pkl",  ".pickle", ".pt",  ".pth",
                                          ".ckpt", ".joblib", ".bin", NULL};
    const struct tc_backend *backend = NULL;
    struct tc_input *input = tc_input_open(path, NULL, error);
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
    if (!find_pickle(path, last, &pickle, error))
        return false;
    return !pickle ||
           note(state, name, error,
                "pickles are copied with the model; loading one may run anything (tconv scan)");
}

static bool add_entry(struct model_copy *copy, const char *name, bool is_folder,
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
    const char *kept = tc_arena_copy(&copy->arena, name, strlen(name), error);
    if (kept)
        copy->entries[copy->count++] = (struct model_copy_entry){kept, is_folder};
    return kept != NULL;
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
        ok = add_entry(copy, name, is_folder, error) &&
             (is_folder || note_dangers(state, path, name, entry->name, error));
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
    char *path = join(state->copy->path, below);
    tc_listing_init(&listing);
    bool ok = path ? tc_listing_read(&listing, path, error) : tc_fail_memory(error);
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
    *copy = (struct model_copy){.path = path, .root = realpath(path, NULL)};
    tc_arena_init(&copy->arena, 0);
    if (!copy->root)
        return tc_fail_errno(error, errno, "open", "cannot open the folder");
    copy->blobs = model_copy_blobs(path);
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

static bool copy_file(const struct model_copy *copy, const char *path, const char *name,
                      struct tc_publish *publish, struct tc_error *error) {
    struct tc_input *input = tc_input_open(path, NULL, error);
    struct tc_outfile *out =
        input && check_open(copy, input, error) ? tc_outfile_open(publish, name, error) : NULL;
    bool ok = out != NULL;
    if (ok) {
        mode_t mask = umask(0);
        umask(mask);
        out->mode = (input->mode & ~mask) | 0600;
        ok = tc_outfile_copy(out, input, 0, input->size, error) && tc_outfile_seal(out, error) &&
             tc_input_unchanged(input, error);
    }
    tc_input_close(input);
    return ok;
}

bool model_copy_write(struct model_copy *copy, struct tc_publish *publish, struct tc_error *error) {
    bool ok = true;
    for (size_t i = 0; i < copy->count && ok; i++) {
        const struct model_copy_entry *entry = &copy->entries[i];
        struct stat status;
        char *path = join(copy->path, entry->name);
        if (!path)
            ok = tc_fail_memory(error);
        else if (!entry->is_folder)
            ok = copy_file(copy, path, entry->name, publish, error);
        else if (stat(path, &status) != 0) {
            tc_fail_errno(error, errno, "changed", "the folder changed while it was read");
            ok = tc_error_in_file(error, path);
        } else
            ok = tc_publish_add_folder(publish, entry->name, status.st_mode & 0777, error);
        free(path);
    }
    return ok;
}

void model_copy_release(struct model_copy *copy) {
    tc_arena_release(&copy->arena);
    free(copy->entries);
    free(copy->root);
    free(copy->blobs);
    *copy = (struct model_copy){0};
}
