#include "core/base/path.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

bool tc_path_is_plain(struct tc_text name) {
    return name.length && name.length <= NAME_MAX && !memchr(name.bytes, '/', name.length) &&
           !memchr(name.bytes, '\0', name.length) && !tc_text_equal(name, TC_TEXT(".")) &&
           !tc_text_equal(name, TC_TEXT(".."));
}

bool tc_path_is_inside(struct tc_text path) {
    for (size_t from = 0; from <= path.length;) {
        const char *slash = memchr(path.bytes + from, '/', path.length - from);
        size_t to = slash ? (size_t)(slash - path.bytes) : path.length;
        if (!tc_path_is_plain((struct tc_text){path.bytes + from, to - from}))
            return false;
        from = to + 1;
    }
    return true;
}

const char *tc_path_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

struct tc_text tc_path_stem(const char *path) {
    if (strcmp(path, "-") == 0)
        return TC_TEXT("stdin");
    const char *name = tc_path_name(path);
    const char *dot = strrchr(name, '.');
    return (struct tc_text){name, dot && dot != name ? (size_t)(dot - name) : strlen(name)};
}

char *tc_path_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

char *tc_path_trim(const char *path) {
    char *trimmed = strdup(path);
    size_t length = trimmed ? strlen(trimmed) : 0;
    while (length > 1 && trimmed[length - 1] == '/')
        trimmed[--length] = '\0';
    return trimmed;
}

bool tc_path_missing(int errnum) {
    return errnum == ENOENT || errnum == ENOTDIR || errnum == EACCES || errnum == ELOOP ||
           errnum == ENAMETOOLONG;
}
