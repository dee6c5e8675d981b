/*
 * What a folder holds: names, sizes and kinds, sorted by name. The list may come
 * from the file system (tc_listing_read) or from anywhere else (tc_listing_add, as
 * for a repository on a server), so that who looks through it need not know.
 */
#ifndef TCONV_CORE_IO_LISTING_H
#define TCONV_CORE_IO_LISTING_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"

enum tc_entry_kind {
    TC_ENTRY_FILE,
    TC_ENTRY_FOLDER,
    TC_ENTRY_SPECIAL, /* a pipe, a device or a socket: never opened */
    TC_ENTRY_BROKEN,  /* a link that leads to nothing, or in a circle */
};

struct tc_entry {
    struct tc_text name;     /* in the folder; a NUL follows its bytes */
    uint64_t size;           /* of a file */
    enum tc_entry_kind kind; /* of what a link leads to */
    bool link;
};

struct tc_listing {
    struct tc_arena arena;
    struct tc_entry *entries;
    size_t count;
    size_t capacity;
};

void tc_listing_init(struct tc_listing *listing);
void tc_listing_release(struct tc_listing *listing);
/* Copies the entry. Refuses a name that is not plain (tc_path_is_plain), and one
 * entry more than TC_MAX_FOLDER_ENTRIES. */
bool tc_listing_add(struct tc_listing *listing, const struct tc_entry *entry,
                    struct tc_error *error);
/* Sorts by the names' bytes; to be called after the last entry was added. */
void tc_listing_sort(struct tc_listing *listing);
/* Adds all entries of a folder on the file system, and sorts them. Opens no file. */
bool tc_listing_read(struct tc_listing *listing, const char *path, struct tc_error *error);
/* The entry of this name, in a sorted list; NULL where there is none. */
const struct tc_entry *tc_listing_find(const struct tc_listing *listing, struct tc_text name);

/* Whether the path is a folder's. */
bool tc_is_folder(const char *path);

#endif
