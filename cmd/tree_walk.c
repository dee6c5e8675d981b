#include "cmd/tree_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/limits.h"
#include "core/base/path.h"

/* Folders in folders, and files of one: far beyond any model's. */
#define MAX_DEPTH 64u
#define MAX_FILES 1000000u

struct waiting {
    char *path;
    unsigned depth; /* how many folders it lies in; 0: the one that the user named */
};

struct walk {
    const struct tree_visitor *visitor;
    struct waiting *waiting; /* what is still to be looked at, the next one last */
    size_t count;
    size_t capacity;
    size_t files;
    int opened[MAX_DEPTH + 1]; /* the folders that the entry at hand lies in, by depth */
    unsigned open;
};

/* Takes the path over, also on failure. */
static bool push(struct walk *walk, char *path, unsigned depth, struct tc_error *error) {
    if (walk->count == walk->capacity && path) {
        size_t capacity = walk->capacity ? walk->capacity * 2 : 64;
        struct waiting *waiting = reallocarray(walk->waiting, capacity, sizeof *waiting);
        if (waiting) {
            walk->waiting = waiting;
            walk->capacity = capacity;
        }
    }
    if (!path || walk->count == walk->capacity) {
        free(path);
        return tc_fail_memory(error);
    }
    walk->waiting[walk->count++] = (struct waiting){path, depth};
    return true;
}

static char *join(const char *folder, const char *name) {
    char *path = NULL;
    size_t length = strlen(folder);
    bool slash = length && folder[length - 1] == '/';
    return asprintf(&path, "%s%s%s", folder, slash ? "" : "/", name) < 0 ? NULL : path;
}

static bool over_limit(struct tc_error *error, const char *what) {
    tc_fail(error, TC_UNSAFE, "folder-limit", "%s", what);
    return tc_error_hint(error, TC_FIXED_LIMIT);
}

static void failed(struct walk *walk, const char *path, struct tc_error *error) {
    tc_error_in_file(error, path);
    walk->visitor->failed(walk->visitor->context, path, error);
}

/* It went away, or can't be looked at. */
static void cannot_open(struct walk *walk, const char *path) {
    struct tc_error error = {0};
    tc_fail_errno(&error, errno, "open", "cannot open");
    failed(walk, path, &error);
}

static int by_path_backwards(const void *a, const void *b) {
    return strcmp(((const struct waiting *)b)->path, ((const struct waiting *)a)->path);
}

static bool push_entries(struct walk *walk, DIR *stream, const char *path, unsigned depth,
                         struct tc_error *error) {
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(stream);
        /* A folder of which the end can't be read is not clean. */
        if (!entry)
            return !errno ||
                   tc_fail_errno(error, errno, "read", "cannot read the folder to its end");
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (walk->count >= MAX_FILES)
            return over_limit(error, "too many files");
        if (!push(walk, join(path, entry->d_name), depth, error))
            return false;
    }
}

/* Adds what an open folder holds, in reverse: the last path is the next. */
static void list_folder(struct walk *walk, int fd, const char *path, unsigned depth) {
    size_t first = walk->count;
    struct tc_error error = {0};
    bool ok = depth <= MAX_DEPTH || over_limit(&error, "folders lie too deep in each other");
    int copy = ok ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
    if (ok && !stream)
        ok = tc_fail_errno(&error, errno, "open", "cannot read the folder");
    if (copy >= 0 && !stream)
        close(copy);
    if (stream) {
        ok = push_entries(walk, stream, path, depth, &error);
        closedir(stream);
    }
    if (!ok)
        failed(walk, path, &error);
    if (walk->count > first)
        qsort(walk->waiting + first, walk->count - first, sizeof *walk->waiting, by_path_backwards);
}

/* Opens a folder by way of the one that it lies in, and holds it open. */
static void enter_folder(struct walk *walk, const struct waiting *entry) {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    int fd = entry->depth ? openat(walk->opened[entry->depth - 1], tc_path_name(entry->path),
                                   flags | O_NOFOLLOW)
                          : open(entry->path, flags);
    if (fd < 0) {
        cannot_open(walk, entry->path);
        return;
    }
    list_folder(walk, fd, entry->path, entry->depth + 1);
    walk->opened[walk->open++] = fd; /* which has the entry's depth as its place */
}

static void visit(struct walk *walk, const struct waiting *entry) {
    const struct tree_visitor *visitor = walk->visitor;
    struct stat status;
    while (walk->open > entry->depth)
        close(walk->opened[--walk->open]);
    if (!entry->depth)
        enter_folder(walk, entry);
    else if (fstatat(walk->opened[entry->depth - 1], tc_path_name(entry->path), &status,
                     AT_SYMLINK_NOFOLLOW) != 0)
        cannot_open(walk, entry->path);
    else if (S_ISDIR(status.st_mode))
        enter_folder(walk, entry);
    else if (S_ISLNK(status.st_mode))
        visitor->link(visitor->context, entry->path);
    else if (!S_ISREG(status.st_mode))
        visitor->special(visitor->context, entry->path);
    else if (walk->files++ < MAX_FILES)
        visitor->file(visitor->context, entry->path, &status);
}

void tree_walk(const char *top, const struct tree_visitor *visitor) {
    struct walk walk = {.visitor = visitor};
    struct tc_error error = {0};
    if (!push(&walk, strdup(top), 0, &error))
        failed(&walk, top, &error);
    while (walk.count) {
        struct waiting entry = walk.waiting[--walk.count];
        visit(&walk, &entry);
        free(entry.path);
    }
    while (walk.open)
        close(walk.opened[--walk.open]);
    if (walk.files > MAX_FILES) {
        over_limit(&error, "too many files");
        failed(&walk, top, &error);
    }
    free(walk.waiting);
}
