#include "cmd/batch/list.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/batch/inside.h"
#include "core/base/name_map.h"
#include "core/base/path.h"
#include "core/io/listing.h"
#include "formats/model_name.h"
#include "formats/model_whole.h"
#include "formats/registry.h"

/* Files that show that a folder is one model, with all that lies in it. */
static const char *const model_configs[] = {"config.json", "adapter_config.json"};

bool batch_list_init(struct batch_list *list, const char *destination,
                     const struct tc_backend *target, struct tc_error *error) {
    *list = (struct batch_list){.target = target};
    tc_arena_init(&list->arena, 0);
    char *trimmed = tc_path_trim(destination);
    list->destination =
        trimmed ? tc_arena_copy(&list->arena, trimmed, strlen(trimmed), error) : NULL;
    free(trimmed);
    list->destination_exists = stat(destination, &list->destination_status) == 0;
    if (!list->destination_exists && !tc_path_missing(errno)) {
        tc_fail_errno(error, errno, "output-folder", "cannot look at the destination");
        return tc_error_in_file(error, destination);
    }
    if (list->destination_exists && !S_ISDIR(list->destination_status.st_mode)) {
        tc_fail(error, TC_USAGE, "output-folder", "the destination of a batch is a folder");
        return tc_error_in_file(error, destination);
    }
    return list->destination || tc_fail_memory(error);
}

void batch_list_release(struct batch_list *list) {
    tc_arena_release(&list->arena);
    free(list->models);
    *list = (struct batch_list){0};
}

static bool over_limit(struct tc_error *error, const char *what, unsigned most) {
    tc_fail(error, TC_UNSAFE, "batch-limit", "there are over %u %s", most, what);
    return tc_error_hint(error, "this limit is fixed: make several batches, of one folder each");
}

/* Places */

const char *batch_place(struct batch_list *list, struct tc_text relative, bool folder,
                        struct tc_error *error) {
    struct tc_buffer path = {0};
    const char *slash = memrchr(relative.bytes, '/', relative.length);
    size_t before = slash ? (size_t)(slash - relative.bytes) + 1 : 0;
    tc_buffer_add_string(&path, list->destination);
    if (strcmp(list->destination, "/") != 0)
        tc_buffer_add_string(&path, "/");
    if (folder) {
        tc_buffer_add_text(&path, relative);
    } else {
        char *name =
            tc_arena_copy(&list->arena, relative.bytes + before, relative.length - before, error);
        if (!name) {
            tc_buffer_release(&path);
            return NULL;
        }
        tc_buffer_add(&path, relative.bytes, before);
        tc_buffer_add_text(&path, tc_registry_stem(name));
    }
    tc_buffer_add_string(&path, folder || list->per_tensor ? "/" : list->target->extensions[0]);
    const char *kept = tc_buffer_ok(&path, error)
                           ? tc_arena_copy(&list->arena, path.bytes, path.length, error)
                           : NULL;
    tc_buffer_release(&path);
    return kept;
}

/* Whether a file may be the index of shards or one of them: by its name, or because in its format
 * an index is called as any other file. */
static bool may_have_shards(const char *path) {
    struct model_name name = model_name_parse(tc_text_of(tc_path_name(path)), (struct tc_text){0});
    const struct tc_sharding *sharding = name.backend ? name.backend->sharding : NULL;
    return name.is_index || name.is_shard ||
           (sharding && sharding->index_ending && !sharding->index_ending[0]);
}

static bool add_model(struct batch_list *list, const char *input, struct tc_text relative,
                      uint64_t size, bool folder, struct tc_error *error) {
    if (list->count == BATCH_MAX_MODELS)
        return over_limit(error, "models in one batch", BATCH_MAX_MODELS);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        struct batch_model *models = reallocarray(list->models, capacity, sizeof *models);
        if (!models)
            return tc_fail_memory(error);
        list->models = models;
        list->capacity = capacity;
    }
    struct batch_model *model = &list->models[list->count];
    *model = (struct batch_model){.size = size, .folder = folder, .shards = may_have_shards(input)};
    model->input = tc_arena_copy(&list->arena, input, strlen(input), error);
    model->output = batch_place(list, relative, folder, error);
    list->count++;
    return model->input && model->output;
}

static void set_problem(struct batch_list *list, enum tc_class class, const char *problem) {
    list->models[list->count - 1].problem = problem;
    list->models[list->count - 1].class = class;
}

/* Folders */

/* A folder that is still to be walked. */
struct waiting {
    char *path;
    char *relative; /* below the source, without a slash at its end; empty: the source itself */
    unsigned depth;
};

struct walk {
    struct batch_list *list;
    struct waiting *waiting;
    size_t count;
    size_t capacity;
    bool whole;       /* the folder at hand is one model, but for what does not belong to it */
    bool links;       /* something in it is a link */
    const char *root; /* the folder where it began, without links */
};

static char *join(const char *folder, struct tc_text name) {
    size_t length = strlen(folder);
    char *path = NULL;
    bool slash = length && folder[length - 1] != '/';
    return asprintf(&path, "%s%s%.*s", folder, slash ? "/" : "", (int)name.length, name.bytes) < 0
               ? NULL
               : path;
}

static bool push(struct walk *walk, char *path, char *relative, unsigned depth,
                 struct tc_error *error) {
    if (walk->count == walk->capacity) {
        size_t capacity = walk->capacity ? 2 * walk->capacity : 64;
        struct waiting *waiting = reallocarray(walk->waiting, capacity, sizeof *waiting);
        if (waiting) {
            walk->waiting = waiting;
            walk->capacity = capacity;
        }
    }
    if (!path || !relative || walk->count == walk->capacity) {
        free(path);
        free(relative);
        return tc_fail_memory(error);
    }
    walk->waiting[walk->count++] = (struct waiting){path, relative, depth};
    return true;
}

static bool is_hidden(struct tc_text name) {
    return name.bytes[0] == '.';
}

/* What an entry is as the name of weights; without a backend it is none. */
static struct model_name weights_name(const struct tc_entry *entry) {
    struct model_name none = {0};
    /* A link that leads nowhere counts: a download that was not finished has some. */
    bool is_file = entry->kind == TC_ENTRY_FILE || entry->kind == TC_ENTRY_BROKEN;
    if (!is_file || is_hidden(entry->name) || model_name_is_training(entry->name))
        return none;
    return model_name_parse(entry->name, (struct tc_text){0});
}

/* Whether shards of the format have no index: who opens the first opens them all. */
static bool opens_by_first(const struct tc_backend *backend) {
    return backend->sharding && !backend->sharding->index_ending;
}

/* Whether the file that names a shard's fellows is there: STEM.EXT and the ending of indices. */
static bool has_index(const struct tc_listing *listing, const struct model_name *shard) {
    const struct tc_sharding *sharding = shard->backend->sharding;
    struct tc_buffer name = {0};
    if (opens_by_first(shard->backend))
        return false;
    tc_buffer_add_text(&name, shard->stem);
    tc_buffer_add_text(&name, shard->extension);
    tc_buffer_add_string(&name, sharding ? sharding->index_ending : "");
    bool there =
        !name.failed && tc_listing_find(listing, (struct tc_text){name.bytes, name.length}) != NULL;
    tc_buffer_release(&name);
    return there;
}

static bool is_model_folder(const struct tc_listing *listing) {
    bool config = false;
    for (size_t i = 0; i < sizeof model_configs / sizeof *model_configs; i++)
        config |= tc_listing_find(listing, tc_text_of(model_configs[i])) != NULL;
    for (size_t i = 0; config && i < listing->count; i++)
        if (weights_name(&listing->entries[i]).backend)
            return true;
    return false;
}

static uint64_t weights_size(const struct tc_listing *listing) {
    uint64_t size = 0;
    for (size_t i = 0; i < listing->count; i++)
        if (weights_name(&listing->entries[i]).backend)
            size += listing->entries[i].size;
    return size;
}

/* Sets of shards that no index names: STEM, variant, extension and count are those of all files of
 * a set, which the first of them in the listing stands for. */
struct shard_set {
    uint64_t size;
    size_t count;
};

struct shard_sets {
    struct tc_arena arena;
    struct tc_name_map map; /* a set's name to its place in the list */
    struct shard_set *list;
    size_t weights; /* files of weights in the folder, those of no set too */
};

/* What all files of a set have in common, as bytes; in the arena. */
static struct tc_text set_name(struct tc_arena *arena, const struct model_name *shard,
                               struct tc_error *error) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, shard->stem);
    tc_buffer_add(&name, "", 1);
    tc_buffer_add_text(&name, shard->variant);
    tc_buffer_add(&name, "", 1);
    tc_buffer_add_text(&name, shard->extension);
    tc_buffer_addf(&name, "%u", shard->total);
    char *kept =
        tc_buffer_ok(&name, error) ? tc_arena_copy(arena, name.bytes, name.length, error) : NULL;
    struct tc_text text = {kept, kept ? name.length : 0};
    tc_buffer_release(&name);
    return text;
}

static void release_sets(struct shard_sets *sets) {
    tc_name_map_release(&sets->map);
    tc_arena_release(&sets->arena);
    free(sets->list);
}

/* Finds all sets of a folder in one pass. To be released also on failure. */
static bool find_sets(struct shard_sets *sets, const struct tc_listing *listing,
                      struct tc_error *error) {
    *sets = (struct shard_sets){0};
    tc_arena_init(&sets->arena, 0);
    tc_name_map_init(&sets->map, NULL);
    sets->list = calloc(listing->count ? listing->count : 1, sizeof *sets->list);
    bool ok = sets->list || tc_fail_memory(error);
    for (size_t i = 0; i < listing->count && ok; i++) {
        struct model_name name = weights_name(&listing->entries[i]);
        sets->weights += name.backend != NULL;
        if (!name.backend || !name.is_shard)
            continue;
        struct tc_text key = set_name(&sets->arena, &name, error);
        ok = key.bytes != NULL;
        const uint32_t *found = ok ? tc_name_map_find(&sets->map, key) : NULL;
        uint32_t place = found ? *found : (uint32_t)sets->map.count;
        ok = ok && (found || tc_name_map_add(&sets->map, key, place, error));
        if (ok) {
            sets->list[place].count++;
            sets->list[place].size += listing->entries[i].size;
        }
    }
    return ok;
}

/* Shards that no index names are one model together, which is opened by its first file where the
 * format is made for that, else by its folder: then there can be no other model in it. Shards that
 * are missing, the first too, are found out when it is opened. */
static bool add_loose_shards(struct batch_list *list, struct shard_sets *sets, const char *folder,
                             const char *first, const struct model_name *shard,
                             struct tc_text relative, struct tc_error *error) {
    bool by_first = opens_by_first(shard->backend);
    struct tc_text key = set_name(&sets->arena, shard, error);
    if (!key.bytes)
        return false;
    struct shard_set *set = &sets->list[*tc_name_map_find(&sets->map, key)];
    size_t count = set->count;
    set->count = 0; /* the first stands for all */
    if (!count)
        return true;
    if (!add_model(list, by_first ? first : folder, relative, set->size, false, error))
        return false;
    list->models[list->count - 1].shards = true;
    if (by_first && shard->number > 1)
        set_problem(list, TC_INVALID, "shards of which the first is missing");
    if (sets->weights > count && !by_first)
        set_problem(list, TC_UNSUPPORTED,
                    "shards without an index, in a folder that has other models too");
    return true;
}

/* A link that a model begins with leads to a file of the tree. */
static bool check_link(struct walk *walk, const struct tc_entry *entry, const char *path,
                       struct tc_error *error) {
    bool inside = true;
    if (entry->link && !batch_stays_inside(path, walk->root, &inside, error))
        return false;
    if (!inside)
        set_problem(walk->list, TC_UNSAFE, BATCH_LEADS_OUT);
    return true;
}

static bool add_entry(struct walk *walk, const struct waiting *folder,
                      const struct tc_listing *listing, struct shard_sets *sets,
                      const struct tc_entry *entry, struct tc_error *error) {
    struct batch_list *list = walk->list;
    size_t before = list->count;
    struct model_name name = weights_name(entry);
    if (is_hidden(entry->name))
        return true;
    if (entry->kind == TC_ENTRY_FOLDER && entry->link) {
        list->links++;
        return true;
    }
    char *path = join(folder->path, entry->name);
    char *relative = folder->relative[0] ? join(folder->relative, entry->name)
                                         : strndup(entry->name.bytes, entry->name.length);
    if (entry->kind == TC_ENTRY_FOLDER)
        return push(walk, path, relative, folder->depth + 1, error);
    bool ok = (path && relative) || tc_fail_memory(error);
    struct tc_text place = {relative, relative ? strlen(relative) : 0};
    if (walk->whole && model_whole_has(listing, entry->name))
        name.backend = NULL; /* the folder stands for it */
    if (ok && name.backend && name.is_shard && !has_index(listing, &name)) {
        /* Its place is that of STEM.EXT. */
        size_t cut = entry->name.length - name.stem.length;
        place.length -= cut < place.length ? cut : 0;
        ok = add_loose_shards(list, sets, folder->path, path, &name, place, error);
        if (ok && list->count > before && opens_by_first(name.backend))
            ok = check_link(walk, entry, path, error);
    } else if (ok && name.backend && !name.is_shard) {
        ok = add_model(list, path, place, entry->size, false, error);
        if (ok && entry->kind == TC_ENTRY_BROKEN)
            set_problem(list, TC_IO, "a link that leads nowhere");
        else if (ok)
            ok = check_link(walk, entry, path, error);
    }
    free(path);
    free(relative);
    return ok;
}

static bool find_destination(const struct batch_list *list, const char *path, bool *found,
                             struct tc_error *error) {
    struct stat status;
    *found = false;
    if (!list->destination_exists)
        return true;
    if (stat(path, &status) != 0) {
        tc_fail_errno(error, errno, "open", "cannot open");
        return tc_error_in_file(error, path);
    }
    *found = status.st_dev == list->destination_status.st_dev &&
             status.st_ino == list->destination_status.st_ino;
    return true;
}

/* The name under which a source goes below DST, where it is a model itself. */
static struct tc_text own_name(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    const char *slash = memrchr(path, '/', length);
    size_t start = slash && length > 1 ? (size_t)(slash - path) + 1 : 0;
    return (struct tc_text){path + start, length - start};
}

/* A folder that is one model becomes a file, called as the folder. */
static bool add_whole(struct walk *walk, const char *path, const struct tc_listing *listing,
                      struct tc_text place, struct tc_error *error) {
    struct model_whole whole = model_whole_find(listing);
    walk->whole = whole.found;
    if (!whole.found)
        return true;
    /* Where a file can hold no model, a folder does. */
    struct batch_list *list = walk->list;
    bool per_tensor = list->per_tensor;
    list->per_tensor = per_tensor || list->target == tc_registry_for_one();
    bool ok = add_model(list, path, place, whole.size, false, error);
    list->per_tensor = per_tensor;
    if (ok && whole.problem)
        set_problem(list, whole.class, whole.problem);
    return ok;
}

static bool walk_folder(struct walk *walk, const struct waiting *folder, struct tc_error *error) {
    struct batch_list *list = walk->list;
    struct tc_listing listing;
    if (folder->depth > BATCH_MAX_DEPTH) {
        over_limit(error, "folders in each other", BATCH_MAX_DEPTH);
        return tc_error_in_file(error, folder->path);
    }
    bool destination;
    if (!find_destination(list, folder->path, &destination, error) || destination)
        return error->class == TC_OK;
    tc_listing_init(&listing);
    bool ok = tc_listing_read(&listing, folder->path, error);
    list->entries += listing.count;
    for (size_t i = 0; i < listing.count; i++)
        walk->links |= listing.entries[i].link;
    if (ok && list->entries > BATCH_MAX_ENTRIES)
        ok = over_limit(error, "files and folders in one batch", BATCH_MAX_ENTRIES);
    struct tc_text place =
        folder->relative[0] ? tc_text_of(folder->relative) : own_name(folder->path);
    walk->whole = false;
    if (ok && is_model_folder(&listing)) {
        ok = add_model(list, folder->path, place, weights_size(&listing), true, error);
    } else {
        ok = ok && add_whole(walk, folder->path, &listing, place, error);
        /* From the last to the first, since what is pushed last is walked first. */
        size_t before = walk->count;
        struct shard_sets sets = {0};
        ok = ok && find_sets(&sets, &listing, error);
        for (size_t i = 0; i < listing.count && ok; i++)
            ok = add_entry(walk, folder, &listing, &sets, &listing.entries[i], error);
        release_sets(&sets);
        for (size_t a = before, b = walk->count; a + 1 < b; a++, b--) {
            struct waiting swapped = walk->waiting[a];
            walk->waiting[a] = walk->waiting[b - 1];
            walk->waiting[b - 1] = swapped;
        }
    }
    tc_listing_release(&listing);
    return ok;
}

static bool add_tree(struct batch_list *list, const char *source, const char *relative,
                     struct tc_error *error) {
    struct walk walk = {.list = list};
    size_t before = list->count;
    char *real = realpath(source, NULL);
    if (!real) {
        tc_fail_errno(error, errno, "open", "cannot tell where it lies");
        return tc_error_in_file(error, source);
    }
    walk.root = tc_arena_copy(&list->arena, real, strlen(real), error);
    free(real);
    bool ok = walk.root && push(&walk, strdup(source), strdup(relative), 0, error);
    while (walk.count) {
        struct waiting folder = walk.waiting[--walk.count];
        ok = ok && walk_folder(&walk, &folder, error);
        free(folder.path);
        free(folder.relative);
    }
    free(walk.waiting);
    for (size_t i = before; i < list->count; i++) {
        list->models[i].root = walk.root;
        list->models[i].may_lead_out = walk.links;
    }
    return ok;
}

/* Whether the first is the second folder, or lies in it. Both exist. */
static bool lies_in(const char *inner, const char *outer, bool *inside, struct tc_error *error) {
    char *a = realpath(inner, NULL);
    char *b = a ? realpath(outer, NULL) : NULL;
    int failed = errno;
    size_t length = b ? strlen(b) : 0;
    *inside = b && strncmp(a, b, length) == 0 &&
              (a[length] == '\0' || a[length] == '/' || strcmp(b, "/") == 0);
    bool ok = b != NULL;
    free(a);
    free(b);
    if (ok)
        return true;
    tc_fail_errno(error, failed, "open", "cannot tell where it lies");
    return tc_error_in_file(error, inner);
}

/* Patterns */

bool batch_is_pattern(const char *name) {
    return strpbrk(name, "*?[") != NULL;
}

char *batch_pattern_folder(const char *pattern) {
    size_t fixed = strcspn(pattern, "*?[");
    while (fixed && pattern[fixed - 1] != '/')
        fixed--;
    return fixed == 0 ? strdup(".") : fixed == 1 ? strdup("/") : strndup(pattern, fixed - 1);
}

static bool add_found(struct batch_list *list, const char *path, struct tc_text relative,
                      struct tc_error *error) {
    struct stat status;
    if (stat(path, &status) != 0) {
        tc_fail_errno(error, errno, "open", "cannot open");
        return tc_error_in_file(error, path);
    }
    if (!S_ISDIR(status.st_mode))
        return add_model(list, path, relative, (uint64_t)status.st_size, false, error);
    char *below = strndup(relative.bytes, relative.length);
    bool ok = below ? add_tree(list, path, below, error) : tc_fail_memory(error);
    free(below);
    return ok;
}

static bool add_pattern(struct batch_list *list, const char *pattern, struct tc_error *error) {
    glob_t found = {0};
    size_t fixed = strcspn(pattern, "*?[");
    while (fixed && pattern[fixed - 1] != '/')
        fixed--;
    int failed = glob(pattern, GLOB_ERR, NULL, &found);
    bool ok = true;
    if (failed) {
        tc_fail(error, failed == GLOB_NOSPACE || failed == GLOB_ABORTED ? TC_IO : TC_USAGE,
                failed == GLOB_NOMATCH ? "no-match" : "open",
                failed == GLOB_NOMATCH ? "no file matches the pattern" : "cannot be searched");
        ok = tc_error_in_file(error, pattern);
    }
    list->entries += found.gl_pathc;
    for (size_t i = 0; i < found.gl_pathc && ok; i++)
        ok = add_found(list, found.gl_pathv[i], tc_text_of(found.gl_pathv[i] + fixed), error);
    globfree(&found);
    return ok;
}

/* Sources */

/* Whether a path leads nowhere but down: relative, and without "..". */
static bool goes_down(const char *path) {
    const char *at = path;
    if (path[0] == '/')
        return false;
    while (at) {
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
            return false;
        at = strchr(at, '/');
        at = at ? at + 1 : NULL;
    }
    return true;
}

/* Without "./" at its start and slashes at its end. */
static struct tc_text listed_place(const char *path) {
    while (path[0] == '.' && path[1] == '/') {
        path += 2;
        path += strspn(path, "/");
    }
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return (struct tc_text){path, length};
}

bool batch_list_add(struct batch_list *list, const char *source, bool listed,
                    struct tc_error *error) {
    struct stat status;
    if (stat(source, &status) != 0) {
        if (errno == ENOENT && !listed && batch_is_pattern(source))
            return add_pattern(list, source, error);
        tc_fail_errno(error, errno, "open", "cannot open");
        return tc_error_in_file(error, source);
    }
    struct tc_text place = listed && goes_down(source) ? listed_place(source) : own_name(source);
    if (!S_ISDIR(status.st_mode))
        return add_model(list, source, place, (uint64_t)status.st_size, false, error);
    bool nested = false;
    if (list->destination_exists && !lies_in(source, list->destination, &nested, error))
        return false;
    if (nested) {
        tc_fail(error, TC_USAGE, "nested", "a folder that lies in the destination, or is it");
        tc_error_hint(error, "its outputs would be taken for inputs: name another destination");
        return tc_error_in_file(error, source);
    }
    if (!listed)
        return add_tree(list, source, "", error);
    return add_found(list, source, place, error);
}

static bool fail_place(const struct batch_list *list, size_t a, size_t b, struct tc_error *error) {
    tc_fail(error, TC_USAGE, "same-place", "its output is also that of %s: %s",
            list->models[b].input, list->models[a].output);
    tc_error_hint(
        error,
        "paths below a folder are kept: name the folder in which both lie, or only one of them");
    return tc_error_in_file(error, list->models[a].input);
}

/* A file and a folder of one name can't both be made either. */
static struct tc_text trimmed(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return (struct tc_text){path, length};
}

bool batch_list_check(const struct batch_list *list, struct tc_error *error) {
    struct tc_name_map outputs;
    bool ok = true;
    tc_name_map_init(&outputs, NULL);
    for (size_t i = 0; i < list->count && ok; i++) {
        struct tc_text output = trimmed(list->models[i].output);
        const uint32_t *other = tc_name_map_find(&outputs, output);
        if (other)
            ok = fail_place(list, i, *other, error);
        ok = ok && tc_name_map_add(&outputs, output, (uint32_t)i, error);
    }
    for (size_t i = 0; i < list->count && ok; i++) {
        const struct batch_model *model = &list->models[i];
        struct stat in;
        struct stat out;
        const uint32_t *other = tc_name_map_find(&outputs, trimmed(model->input));
        bool same = stat(model->output, &out) == 0 && stat(model->input, &in) == 0 &&
                    in.st_dev == out.st_dev && in.st_ino == out.st_ino;
        if (!other && !same)
            continue;
        ok = tc_fail(error, TC_USAGE, "same-file", "it would be replaced by the output of %s",
                     other ? list->models[*other].input : model->input);
        tc_error_in_file(error, model->input);
    }
    tc_name_map_release(&outputs);
    return ok;
}
