/* Model folders whose parts jobs have written: FOLDER.parts becomes FOLDER. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/index/parts.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/file_sums.h"
#include "core/convert/shard_part.h"
#include "core/format/backend.h"
#include "core/io/input.h"
#include "core/io/listing.h"
#include "core/io/publish.h"
#include "core/io/remove_tree.h"
#include "core/io/sha256.h"
#include "formats/model_name.h"

#define SIDECAR_ENDING ".tconv.json"
/* What a folder of parts is called while it is removed: as temporary names are. */
#define JOINED_ENDING ".tconv-joined"

char *index_folder_target(const char *parts, struct tc_error *error) {
    char *path = tc_path_trim(parts);
    struct tc_text name = tc_text_of(path ? tc_path_name(path) : "");
    size_t ending = strlen(TC_PARTS_ENDING);
    if (!path) {
        tc_fail_memory(error);
        return NULL;
    }
    if (name.length <= ending || !tc_text_ends(name, TC_TEXT(TC_PARTS_ENDING))) {
        tc_fail(error, TC_INVALID, "part",
                "parts of a model folder lie in a folder whose name ends in " TC_PARTS_ENDING);
        tc_error_in_file(error, parts);
        free(path);
        return NULL;
    }
    path[strlen(path) - ending] = '\0';
    return path;
}

/* The path of a copied file, among the parts; from malloc. */
static char *copied_path(const struct joined *model, const struct tc_part_file *file) {
    char *path = NULL;
    size_t length = strlen(model->folder);
    bool slash = length && model->folder[length - 1] == '/';
    int made = asprintf(&path, "%s%s" TC_PARTS_FILES "/%.*s", model->folder, slash ? "" : "/",
                        (int)file->name.length, file->name.bytes);
    return made < 0 ? NULL : path;
}

static bool check_copied(const struct join *join, const struct joined *model,
                         const struct tc_part_file *file, struct tc_error *error) {
    char hex[2 * TC_SHA256_BYTES + 1];
    char *path = copied_path(model, file);
    struct tc_input *input = path ? tc_input_open(path, NULL, error) : NULL;
    bool ok = input != NULL;
    if (!path)
        tc_fail_memory(error);
    if (ok && input->size != file->size)
        ok = tc_fail(error, TC_INVALID, "copy-size",
                     "the copy is not what its job wrote (got %" PRIu64 " bytes, expected %" PRIu64
                     ")",
                     input->size, file->size);
    if (ok && join->verify && file->has_sum)
        ok = tc_input_sum(input, hex, error) &&
             (strcmp(hex, file->sum) == 0 ||
              tc_fail(error, TC_INVALID, "sha256", "the copy is not what its job wrote"));
    tc_input_close(input);
    if (!ok && path)
        tc_error_in_file(error, path);
    free(path);
    return ok;
}

static bool is_named(struct tc_text name, struct tc_text stem, const char *ending) {
    size_t length = strlen(ending);
    return name.length == stem.length + length && tc_text_starts(name, stem) &&
           memcmp(name.bytes + stem.length, ending, length) == 0;
}

/* Whether an entry of the folder of parts is one of the parts, or what a killed job left. */
static bool is_part(const struct joined *model, const struct tc_entry *entry) {
    struct tc_text name = entry->name;
    if (entry->kind == TC_ENTRY_FOLDER)
        return tc_text_equal(name, TC_TEXT(TC_PARTS_FILES)) ||
               (name.bytes[0] == '.' && strstr(name.bytes, ".tconv-"));
    if (is_named(name, model->index, TC_PART_INDEX_ENDING) ||
        is_named(name, model->files->name, TC_PART_ENDING) ||
        tc_text_ends(name, TC_TEXT(SIDECAR_ENDING)) ||
        (name.bytes[0] == '.' && strstr(name.bytes, ".tconv-")))
        return true;
    for (size_t i = 0; i < model->count; i++)
        if (tc_text_equal(name, model->records[i].name) ||
            is_named(name, model->records[i].name, TC_PART_ENDING))
            return true;
    return false;
}

bool index_folder_check(const struct join *join, const struct joined *model,
                        const struct tc_listing *listing, struct tc_error *error) {
    for (size_t i = 0; i < listing->count; i++)
        if (!is_part(model, &listing->entries[i])) {
            tc_fail(error, TC_INVALID, "part", "this belongs to no job of the model");
            tc_error_hint(error, "remove it, or put it elsewhere: the folder of parts will go");
            return index_fail_in(model, listing->entries[i].name, "", error);
        }
    for (size_t i = 0; i < model->files->file_count; i++)
        if (!model->files->files[i].is_folder &&
            !check_copied(join, model, &model->files->files[i], error))
            return false;
    return true;
}

bool index_folder_check_target(const struct join *join, const struct joined *model,
                               const char *target, struct tc_error *error) {
    struct tc_listing listing;
    struct stat status;
    if (join->replace || (lstat(target, &status) != 0 && tc_path_missing(errno)))
        return true;
    tc_listing_init(&listing);
    bool ok = tc_listing_read(&listing, target, error);
    bool same = listing.count == 0;
    for (size_t i = 0; i < listing.count && !same; i++) {
        const struct tc_backend *backend =
            model_name_parse(listing.entries[i].name, (struct tc_text){0}).backend;
        same = backend && tc_text_equal(tc_text_of(backend->name), model->records[0].format);
    }
    tc_listing_release(&listing);
    if (!ok || same)
        return ok;
    tc_fail(error, TC_USAGE, "exists",
            "the output's folder exists, and is no model of this format: --replace is needed");
    tc_error_hint(error, "--replace puts the new folder in the place of this one, which goes");
    return tc_error_in_file(error, target);
}

/* Gathering */

static bool link_part(struct tc_publish *publish, const char *path, struct tc_text name,
                      struct tc_error *error) {
    char *kept = strndup(name.bytes, name.length);
    struct tc_input *input = path && kept ? tc_input_open(path, NULL, error) : NULL;
    bool ok = path && kept ? input && tc_publish_link(publish, kept, input, error)
                           : tc_fail_memory(error);
    tc_input_close(input);
    free(kept);
    return ok;
}

static bool link_named(const struct joined *model, struct tc_publish *publish, struct tc_text from,
                       const char *ending, struct tc_error *error) {
    char *path = index_path_of(model, from, ending);
    bool ok = link_part(publish, path, from, error);
    free(path);
    return ok;
}

static bool gather_copied(const struct joined *model, struct tc_publish *publish,
                          struct tc_error *error) {
    for (size_t i = 0; i < model->files->file_count; i++) {
        const struct tc_part_file *file = &model->files->files[i];
        char *path = file->is_folder ? strndup(file->name.bytes, file->name.length)
                                     : copied_path(model, file);
        bool ok = !path ? tc_fail_memory(error)
                  : file->is_folder
                      ? tc_publish_add_folder(publish, path, (mode_t)file->mode, error)
                      : link_part(publish, path, file->name, error);
        free(path);
        if (!ok)
            return false;
    }
    return true;
}

bool index_folder_gather(const struct joined *model, const struct tc_listing *listing,
                         struct tc_publish *publish, struct tc_error *error) {
    bool ok = link_named(model, publish, model->index, TC_PART_INDEX_ENDING, error);
    for (size_t i = 0; i < model->count && ok; i++)
        ok = link_named(model, publish, model->records[i].name, "", error);
    for (size_t i = 0; i < listing->count && ok; i++)
        if (tc_text_ends(listing->entries[i].name, TC_TEXT(SIDECAR_ENDING)))
            ok = link_named(model, publish, listing->entries[i].name, "", error);
    return ok && gather_copied(model, publish, error);
}

/* Under another name first, in one step: half of the parts would be taken for a model that lacks
 * some. What a killed run left under that name goes as well. */
bool index_folder_remove(const char *parts) {
    char *path = tc_path_trim(parts);
    char *folder = path ? tc_path_folder(path) : NULL;
    char *away = NULL;
    bool ok = false;
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0 && asprintf(&away, ".%s" JOINED_ENDING, tc_path_name(path)) >= 0) {
        tc_remove_tree(fd, away);
        ok = renameat(fd, tc_path_name(path), fd, away) == 0 && tc_remove_tree(fd, away);
        free(away);
    }
    if (fd >= 0)
        close(fd);
    free(folder);
    free(path);
    return ok;
}

void index_folder_clean(const char *folder) {
    struct tc_listing listing;
    struct tc_error ignored = {0};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    tc_listing_init(&listing);
    bool ok = tc_listing_read(&listing, folder, &ignored);
    for (size_t i = 0; ok && i < listing.count; i++) {
        const struct tc_entry *entry = &listing.entries[i];
        if (entry->kind == TC_ENTRY_FOLDER && entry->name.bytes[0] == '.' &&
            tc_text_ends(entry->name, TC_TEXT(TC_PARTS_ENDING JOINED_ENDING)))
            tc_remove_tree(fd, entry->name.bytes);
    }
    tc_listing_release(&listing);
    close(fd);
}
