#include "core/io/remove_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/io/publish_step.h"

#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static int remove_name(int folder, const char *name, int flags) {
    return tc_publish_step() ? -1 : unlinkat(folder, name, flags);
}

/* Instead of a descriptor: nothing is left to be removed. */
#define NOTHING_LEFT (-2)

/* Removes an entry. Returns the descriptor where it is a folder with something in it,
 * NOTHING_LEFT where it is gone, -1 on failure. */
static int remove_entry(int folder, const char *name) {
    if (remove_name(folder, name, 0) == 0)
        return NOTHING_LEFT;
    /* Some systems say EPERM of a folder. */
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (remove_name(folder, name, AT_REMOVEDIR) == 0)
        return NOTHING_LEFT;
    return errno == ENOTEMPTY || errno == EEXIST ? openat(folder, name, OPEN_FOLDER) : -1;
}

/* Removes entries up to the first folder with something in it; the same results. */
static int remove_entries(int folder) {
    int fd = openat(folder, ".", OPEN_FOLDER);
    DIR *listing = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    int result = listing ? NOTHING_LEFT : -1;
    if (!listing && fd >= 0)
        close(fd);
    while (listing && result == NOTHING_LEFT && (entry = readdir(listing)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = remove_entry(folder, entry->d_name);
    if (listing)
        closedir(listing);
    return result;
}

/* Goes down and up through the folders one at a time, so that neither descriptors nor
 * the stack set a bound to their depth. */
bool tc_remove_tree(int parent, const char *name) {
    int here = openat(parent, name, OPEN_FOLDER);
    if (here < 0)
        return errno == ENOENT;
    unsigned long long depth = 0;
    bool ok = true;
    while (ok) {
        int next = remove_entries(here);
        bool empty = next == NOTHING_LEFT;
        if (empty && depth == 0)
            break;
        if (empty)
            next = openat(here, "..", OPEN_FOLDER);
        depth = empty ? depth - 1 : depth + 1;
        ok = next >= 0;
        close(here);
        here = next;
    }
    if (here >= 0)
        close(here);
    return ok && remove_name(parent, name, AT_REMOVEDIR) == 0;
}
