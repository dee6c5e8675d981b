/* tconv hub push: a file or a folder of this machine, converted first where its format is another.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common.h"
#include "cmd/hub/hub.h"
#include "cmd/hub/send.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/cache_blobs.h"
#include "formats/model_copy.h"
#include "formats/registry.h"

#define MOST_DEPTH 32u

/* The folder that is sent; what its links lead to is sent too, where it lies in the folder, or
 * in the cache of the Hub of which the folder is a snapshot. A link to any other place may be
 * the work of whoever made the folder: what is private there would be made public. */
struct sent_folder {
    char *root; /* without links */
    struct cache_blobs blobs;
};

static bool check_link(const struct sent_folder *folder, const char *place,
                       struct tc_error *error) {
    struct stat status;
    if (lstat(place, &status) != 0 || !S_ISLNK(status.st_mode))
        return true; /* who opens what is missing says so */
    char *real = realpath(place, NULL);
    bool ok = real ? model_copy_may_take(real, folder->root, &folder->blobs, error)
                   : tc_fail_errno(error, errno, "open", "cannot tell where this link leads");
    free(real);
    return ok || tc_error_in_file(error, place);
}

/* Adds a file, or what a folder holds. `depth` bounds it: links may lead in a circle. */
static bool add_tree(struct sending *sending, const struct sent_folder *folder, const char *place,
                     const char *path, unsigned depth, struct tc_error *error) {
    struct stat status;
    struct dirent **entries = NULL;
    if (depth && !check_link(folder, place, error))
        return false;
    if (stat(place, &status) == 0 && !S_ISDIR(status.st_mode))
        return sending_add(sending, tc_input_open(place, NULL, error), strdup(path), error);
    int count =
        depth < MOST_DEPTH ? scandir(place, &entries, sending_is_wanted, sending_by_name) : -1;
    if (count < 0) {
        tc_fail_errno(error, depth < MOST_DEPTH ? errno : ELOOP, "open", "cannot read the folder");
        return tc_error_in_file(error, place);
    }
    bool ok = true;
    for (int i = 0; i < count; i++) {
        char *inner = ok ? sending_join(place, entries[i]->d_name) : NULL;
        char *name = ok ? sending_join(path, entries[i]->d_name) : NULL;
        if (ok)
            ok = inner && name ? add_tree(sending, folder, inner, name, depth + 1, error)
                               : tc_fail_memory(error);
        free(inner);
        free(name);
        free(entries[i]);
    }
    free(entries);
    return ok;
}

static bool add_folder(struct sending *sending, struct tc_error *error) {
    const struct hub *hub = sending->hub;
    struct sent_folder folder = {.root = realpath(hub->file, NULL)};
    int failed = folder.root ? cache_blobs_find(&folder.blobs, hub->file) : errno;
    bool ok = failed ? tc_fail_errno(error, failed, "open", "cannot open the folder")
                     : add_tree(sending, &folder, hub->file, hub->path, 0, error);
    if (ok && sending->count == 0)
        ok = tc_fail(error, TC_USAGE, "usage", "the folder has no files");
    free(folder.root);
    cache_blobs_release(&folder.blobs);
    return ok;
}

/* What a file of the Hub is called once it is converted: the same with the extension of the format
 * that it is converted to. From malloc. */
static char *converted_path(const char *original) {
    char indexed[4096];
    bool index = tc_registry_indexed_path(original, indexed, sizeof indexed);
    const char *start = index ? indexed : original;
    const char *dot = strrchr(tc_path_name(start), '.');
    const struct tc_backend *kind = index ? NULL : tc_registry_for_path(original);
    char *path = NULL;
    if (asprintf(&path, "%.*s%s", (int)(dot ? dot - start : (ptrdiff_t)strlen(start)), start,
                 tc_registry_for_hub(kind)->extensions[0]) < 0)
        return NULL;
    return path;
}

char *hub_target_path(const struct hub *hub, struct tc_error *error) {
    const char *name = hub->file ? tc_path_name(hub->file) : "";
    size_t length = strlen(hub->path);
    char *path = NULL;
    if (!hub->file && hub->output) {
        path = strdup(hub->output);
    } else if (!hub->file) {
        path = converted_path(hub->path);
    } else {
        path = length && hub->path[length - 1] != '/' ? strdup(hub->path)
                                                      : sending_join(hub->path, name);
    }
    if (!path)
        tc_fail_memory(error);
    return path;
}

bool hub_converts(const struct hub *hub) {
    struct stat status;
    size_t length = strlen(hub->path);
    if (!hub->file || (stat(hub->file, &status) == 0 && S_ISDIR(status.st_mode)) || length == 0 ||
        hub->path[length - 1] == '/')
        return false;
    const struct tc_backend *from = tc_registry_for_path(hub->file);
    const struct tc_backend *to = tc_registry_for_path(hub->path);
    return from && to && from != to;
}

/* An index goes with its shards. */
static bool add_index(struct sending *sending, const char *path, struct tc_error *error) {
    struct tc_reader *reader = common_open(&sending->hub->common, sending->hub->file, error);
    const char *last = tc_path_name(path);
    bool ok = reader != NULL;
    for (size_t i = 0; ok && i < reader->shard_count; i++) {
        char *name = NULL;
        if (asprintf(&name, "%.*s%s", (int)(last - path), path, reader->shards[i]) < 0)
            name = NULL;
        struct tc_input *shard = reader->shard_inputs[i];
        ok = sending_add(sending, tc_input_open(shard->path, NULL, error), name, error);
    }
    tc_reader_close(reader);
    return ok && sending_add(sending, tc_input_open(sending->hub->file, NULL, error), strdup(path),
                             error);
}

bool hub_push(struct hub *hub, const char *folder, struct tc_error *error) {
    struct sending sending = {.hub = hub};
    struct stat status;
    char *path = hub_target_path(hub, error);
    bool is_folder = stat(hub->file, &status) == 0 && S_ISDIR(status.st_mode);
    const struct tc_backend *kind = tc_registry_for_path(hub->file);
    bool ok = path != NULL;
    if (ok && is_folder) {
        ok = add_folder(&sending, error);
    } else if (ok && folder) {
        struct tc_reader *reader = common_open(&hub->common, hub->file, error);
        ok = reader && sending_add_converted(&sending, reader, folder, path, error);
        tc_reader_close(reader);
    } else if (ok && kind && tc_registry_is_index(kind)) {
        ok = add_index(&sending, path, error);
    } else if (ok) {
        ok = sending_add(&sending, tc_input_open(hub->file, NULL, error), strdup(path), error);
    }
    struct tc_buffer message = {0};
    tc_buffer_addf(&message, "Upload %s with tconv", path ? path : "");
    tc_buffer_add(&message, "", 1);
    ok = ok && tc_buffer_ok(&message, error) && sending_send(&sending, message.bytes, error);
    tc_buffer_release(&message);
    sending_release(&sending);
    free(path);
    return ok;
}
