#include "core/io/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/base/path.h"

/* What a folder's own file has for an entry, besides the name. */
#define ENTRY_BYTES 24u

void tc_listing_init(struct tc_listing *listing) {
    *listing = (struct tc_listing){0};
    tc_arena_init(&listing->arena, 0);
}

void tc_listing_release(struct tc_listing *listing) {
    free(listing->entries);
    tc_arena_release(&listing->arena);
    *listing = (struct tc_listing){0};
}

static bool grow(struct tc_listing *listing, struct tc_error *error) {
    size_t capacity = listing->capacity ? 2 * listing->capacity : 64;
    if (listing->count < listing->capacity)
        return true;
    if (listing->count >= TC_MAX_FOLDER_ENTRIES) {
        tc_fail(error, TC_UNSAFE, "folder-limit", "the folder has more than %u entries",
                TC_MAX_FOLDER_ENTRIES);
        return tc_error_hint(error, TC_FIXED_LIMIT);
    }
    if (capacity > TC_MAX_FOLDER_ENTRIES)
        capacity = TC_MAX_FOLDER_ENTRIES;
    struct tc_entry *entries = reallocarray(listing->entries, capacity, sizeof *entries);
    if (!entries)
        return tc_fail_memory(error);
    listing->entries = entries;
    listing->capacity = capacity;
    return true;
}

bool tc_listing_add(struct tc_listing *listing, const struct tc_entry *entry,
                    struct tc_error *error) {
    struct tc_text name = entry->name;
    if (!tc_path_is_plain(name))
        return tc_fail(error, TC_UNSAFE, "entry-name",
                       "an entry's name would lead out of its folder: \"%.*s\"",
                       tc_text_shown(name, 200), name.bytes);
    /* A list is a header of its own: tables of what it names may grow with it. */
    tc_memory_open(ENTRY_BYTES + name.length);
    tc_memory_earn(ENTRY_BYTES + name.length);
    if (!grow(listing, error))
        return false;
    const char *copy = tc_arena_copy(&listing->arena, name.bytes, name.length, error);
    if (!copy)
        return false;
    listing->entries[listing->count] = *entry;
    listing->entries[listing->count++].name.bytes = copy;
    return true;
}

static int by_name(const void *a, const void *b) {
    return tc_text_compare(((const struct tc_entry *)a)->name, ((const struct tc_entry *)b)->name);
}

void tc_listing_sort(struct tc_listing *listing) {
    if (listing->count)
        qsort(listing->entries, listing->count, sizeof *listing->entries, by_name);
}

const struct tc_entry *tc_listing_find(const struct tc_listing *listing, struct tc_text name) {
    struct tc_entry key = {.name = name};
    return listing->count
               ? bsearch(&key, listing->entries, listing->count, sizeof *listing->entries, by_name)
               : NULL;
}

/* Looks at an entry without opening it, which may have an effect on a pipe or a
 * device. One that has gone meanwhile is left out. */
static bool add_entry(struct tc_listing *listing, int folder, const char *name,
                      struct tc_error *error) {
    struct tc_entry entry = {.name = tc_text_of(name), .kind = TC_ENTRY_BROKEN};
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT || tc_fail_errno(error, errno, "open", "cannot read the folder");
    entry.link = S_ISLNK(status.st_mode);
    if (!entry.link || fstatat(folder, name, &status, 0) == 0)
        entry.kind = S_ISREG(status.st_mode)   ? TC_ENTRY_FILE
                     : S_ISDIR(status.st_mode) ? TC_ENTRY_FOLDER
                                               : TC_ENTRY_SPECIAL;
    if (entry.kind == TC_ENTRY_FILE)
        entry.size = (uint64_t)status.st_size;
    return tc_listing_add(listing, &entry, error);
}

bool tc_listing_read(struct tc_listing *listing, const char *path, struct tc_error *error) {
    DIR *stream = opendir(path);
    bool ok = true;
    if (!stream) {
        tc_fail_errno(error, errno, "open", "cannot read the folder");
        tc_error_because(error, TC_REASON_CANNOT_OPEN);
    }
    while (stream && ok) {
        errno = 0;
        struct dirent *entry = readdir(stream);
        if (!entry) {
            ok = !errno || tc_fail_errno(error, errno, "read", "cannot read the folder to its end");
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ok = add_entry(listing, dirfd(stream), entry->d_name, error);
    }
    if (stream)
        closedir(stream);
    tc_listing_sort(listing);
    return stream && ok ? true : tc_error_in_file(error, path);
}

bool tc_is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}
