#include "core/io/jobserver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The value of the last --jobserver-auth (or -fds, as it was called before make 4.2). */
static const char *find_value(const char *makeflags) {
    static const char *const names[] = {"--jobserver-auth=", "--jobserver-fds="};
    const char *value = NULL;
    for (const char *at = makeflags; at && *at; at++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strncmp(at, names[i], strlen(names[i])) == 0)
                value = at + strlen(names[i]);
    return value;
}

static bool is_pipe(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

/* An open file of our own: the one we inherited is shared with make, which waits on it. */
static int reopen(const char *path, int flags) {
    return open(path, flags | O_NONBLOCK | O_CLOEXEC);
}

static void open_descriptors(struct tc_jobserver *server, int from, int to) {
    char path[32];
    if (from < 0 || to < 0 || !is_pipe(from) || !is_pipe(to))
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", from);
    server->read_fd = reopen(path, O_RDONLY);
    snprintf(path, sizeof path, "/proc/self/fd/%d", to);
    server->write_fd = reopen(path, O_WRONLY);
}

static void open_named(struct tc_jobserver *server, const char *value) {
    char *path = strndup(value, strcspn(value, " "));
    server->read_fd = path ? reopen(path, O_RDONLY) : -1;
    server->write_fd = path ? reopen(path, O_WRONLY) : -1;
    free(path);
    if (server->read_fd >= 0 && !is_pipe(server->read_fd)) {
        close(server->read_fd);
        server->read_fd = -1;
    }
}

void tc_jobserver_open(struct tc_jobserver *server, const char *makeflags) {
    const char *value = find_value(makeflags);
    int from = -1;
    int to = -1;
    *server = (struct tc_jobserver){.read_fd = -1, .write_fd = -1, .named = value != NULL};
    if (value && strncmp(value, "fifo:", 5) == 0)
        open_named(server, value + 5);
    else if (value && sscanf(value, "%d,%d", &from, &to) == 2)
        open_descriptors(server, from, to);
    if (server->read_fd < 0 || server->write_fd < 0) {
        struct tc_jobserver none = {.read_fd = -1, .write_fd = -1, .named = server->named};
        if (server->read_fd >= 0)
            close(server->read_fd);
        if (server->write_fd >= 0)
            close(server->write_fd);
        *server = none;
    }
}

bool tc_jobserver_take(struct tc_jobserver *server) {
    if (server->read_fd < 0 || atomic_load(&server->count) == TC_JOBSERVER_TOKENS)
        return false;
    char token;
    ssize_t got;
    do
        got = read(server->read_fd, &token, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1)
        return false;
    size_t count = atomic_load(&server->count);
    do
        server->tokens[count] = token;
    while (!atomic_compare_exchange_weak(&server->count, &count, count + 1));
    return true;
}

void tc_jobserver_give(struct tc_jobserver *server) {
    size_t count = atomic_load(&server->count);
    do
        if (count == 0)
            return;
    while (!atomic_compare_exchange_weak(&server->count, &count, count - 1));
    ssize_t done;
    do
        done = write(server->write_fd, &server->tokens[count - 1], 1);
    while (done < 0 && errno == EINTR);
}

void tc_jobserver_close(struct tc_jobserver *server) {
    while (server->count)
        tc_jobserver_give(server);
    if (server->read_fd >= 0) {
        close(server->read_fd);
        close(server->write_fd);
    }
    *server = (struct tc_jobserver){.read_fd = -1, .write_fd = -1};
}
