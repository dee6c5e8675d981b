#include "core/io/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/io/input.h"

/* Where the hierarchy with the quota of processors is mounted: by itself in version 2, in a folder
 * named after the controllers in version 1. */
static const char *const mounts[] = {"", "/unified", "/cpu,cpuacct", "/cpu"};
enum { MOUNTS = sizeof mounts / sizeof *mounts, SECOND_VERSION = 2 };

/* Reads a small file of the kernel as text; false where it is not there. */
static bool load_figure(const char *path, char *text, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : tc_read_up_to(fd, text, room - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

static size_t round_up(long long quota, long long period) {
    return quota > 0 && period > 0 ? (size_t)((quota - 1) / period) + 1 : 0;
}

/* The quota that one group has itself; 0: none. */
static size_t quota_of(const char *folder) {
    char path[PATH_MAX];
    char text[64];
    char second[64];
    snprintf(path, sizeof path, "%.*s/cpu.max", PATH_MAX - 32, folder);
    if (load_figure(path, text, sizeof text)) {
        char *end;
        long long quota = strtoll(text, &end, 10); /* "max" is no number: none */
        return end == text ? 0 : round_up(quota, strtoll(end, NULL, 10));
    }
    snprintf(path, sizeof path, "%.*s/cpu.cfs_quota_us", PATH_MAX - 32, folder);
    if (!load_figure(path, text, sizeof text))
        return 0;
    snprintf(path, sizeof path, "%.*s/cpu.cfs_period_us", PATH_MAX - 32, folder);
    return load_figure(path, second, sizeof second)
               ? round_up(strtoll(text, NULL, 10), strtoll(second, NULL, 10))
               : 0;
}

/* The least quota of a group and of all that it is in. `group` is its path, which is cut. */
static size_t least_quota(const char *root, const char *mount, char *group) {
    size_t least = 0;
    for (;;) {
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s", root, mount, group);
        size_t own = quota_of(folder);
        least = own && (!least || own < least) ? own : least;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

/* Whether a line of /proc/self/cgroup, `NUMBER:CONTROLLERS:GROUP`, is of the hierarchy with the
 * quota: the only one of version 2, which names no controllers, or that of `cpu`. */
static bool has_quota(const char *controllers, size_t length, bool *second_version) {
    static const char cpu[] = "cpu";
    *second_version = length == 0;
    for (const char *at = controllers; at < controllers + length;) {
        size_t word = strcspn(at, ",:");
        if (word == sizeof cpu - 1 && memcmp(at, cpu, word) == 0)
            return true;
        at += word + 1;
    }
    return *second_version;
}

size_t tc_cgroup_cores(const char *root) {
    char path[PATH_MAX];
    char text[4096];
    size_t least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!load_figure(path, text, sizeof text))
        return 0;
    for (char *line = text; *line;) {
        char *next = line + strcspn(line, "\n");
        next += *next ? 1 : 0;
        if (next > line && next[-1] == '\n')
            next[-1] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        bool second_version;
        if (group && has_quota(controllers + 1, (size_t)(group - controllers - 1), &second_version))
            for (int i = second_version ? 0 : SECOND_VERSION;
                 i < (second_version ? SECOND_VERSION : MOUNTS); i++) {
                char *copy = strdup(group + 1);
                size_t quota = copy ? least_quota(root, mounts[i], copy) : 0;
                least = quota && (!least || quota < least) ? quota : least;
                free(copy);
            }
        line = next;
    }
    return least;
}
