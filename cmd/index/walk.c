/* Which folders below one hold parts that jobs have written. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/index/parts.h"
#include "cmd/tree_walk.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "core/convert/shard_part.h"
#include "core/io/input.h"

struct found {
    size_t top; /* the length of the path at which the walk began */
    bool parts; /* that is a folder of parts itself */
    struct index_folders *folders;
    size_t capacity;
    bool failed; /* no memory */
    struct tc_error *error;
};

static void add_folder(struct found *found, const char *path, size_t length) {
    struct index_folders *folders = found->folders;
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (folders->count == found->capacity) {
        size_t capacity = found->capacity ? 2 * found->capacity : 16;
        char **grown = reallocarray(folders->paths, capacity, sizeof(char *));
        if (grown) {
            folders->paths = grown;
            found->capacity = capacity;
        }
    }
    char *copy = folders->count < found->capacity ? strndup(path, length) : NULL;
    found->failed |= !copy;
    if (copy)
        folders->paths[folders->count++] = copy;
}

static bool is_called_shard(const char *path) {
    const char *dash = strstr(tc_path_name(path), "-of-");
    return dash && dash[4] >= '0' && dash[4] <= '9';
}

/* Whether a file is a record by its first bytes: a model may hold files with names like those of
 * records. */
static bool begins_as_record(const char *path, struct tc_error *error) {
    static const char beginning[] = "{\"tconv_part\":";
    char bytes[sizeof beginning - 1];
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : tc_read_up_to(fd, bytes, sizeof bytes);
    if (length < 0 && error->class == TC_OK) {
        tc_fail_errno(error, errno, "open", "cannot read what may be a record");
        tc_error_in_file(error, path);
    }
    if (fd >= 0)
        close(fd);
    return length == sizeof bytes && memcmp(bytes, beginning, sizeof bytes) == 0;
}

/* Whether a path below the top is that of a file that was copied for a model folder. */
static bool is_copied(const struct found *found, const char *below) {
    return strstr(below, TC_PARTS_ENDING "/" TC_PARTS_FILES "/") ||
           (found->parts && strncmp(below, "/" TC_PARTS_FILES "/", sizeof TC_PARTS_FILES + 1) == 0);
}

/* A record; or a file of a publication that was killed, which may have taken the records away. What
 * was copied for a model folder is nobody's record, whatever its name. */
static void visit_file(void *context, const char *path, const struct stat *status) {
    struct found *found = context;
    const char *hidden = strstr(path + found->top, "/.");
    (void)status;
    if (is_copied(found, path + found->top))
        return;
    found->folders->shards |= is_called_shard(path);
    if (hidden) {
        const char *end = strchr(hidden + 1, '/');
        if (end && memmem(hidden, (size_t)(end - hidden), ".tconv-", 7))
            add_folder(found, path, (size_t)(hidden - path));
    } else if (tc_text_ends(tc_text_of(path), TC_TEXT(TC_PART_ENDING)) &&
               begins_as_record(path, found->error)) {
        add_folder(found, path, (size_t)(tc_path_name(path) - path));
    }
}

static void pass_over(void *context, const char *path) {
    (void)context;
    (void)path;
}

/* The first of them is told. */
static void visit_failed(void *context, const char *path, const struct tc_error *error) {
    struct found *found = context;
    (void)path;
    if (found->error->class == TC_OK)
        *found->error = *error;
}

static int by_path(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool index_find_folders(struct index_folders *folders, const char *top, struct tc_error *error) {
    struct found found = {.top = strlen(top), .folders = folders, .error = error};
    const struct tree_visitor visitor = {.context = &found,
                                         .file = visit_file,
                                         .link = pass_over,
                                         .special = pass_over,
                                         .failed = visit_failed};
    *folders = (struct index_folders){0};
    /* What separates the top from what is below it belongs to both. */
    while (found.top && top[found.top - 1] == '/')
        found.top--;
    found.parts = tc_text_ends((struct tc_text){top, found.top}, TC_TEXT(TC_PARTS_ENDING));
    tree_walk(top, &visitor);
    if (found.failed && error->class == TC_OK)
        tc_fail_memory(error);
    size_t all = folders->count;
    if (all)
        qsort(folders->paths, all, sizeof(char *), by_path);
    folders->count = 0;
    for (size_t i = 0; i < all; i++) {
        char *path = folders->paths[i];
        if (folders->count && strcmp(folders->paths[folders->count - 1], path) == 0)
            free(path);
        else
            folders->paths[folders->count++] = path;
    }
    return error->class == TC_OK;
}

void index_folders_release(struct index_folders *folders) {
    for (size_t i = 0; i < folders->count; i++)
        free(folders->paths[i]);
    free(folders->paths);
    *folders = (struct index_folders){0};
}
