#include "cmd/test/fault_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_BYTES 65536
#define MOST_ARGUMENTS 64
#define SECONDS 60

/* A child keeps its request here, where no leak is seen in it. */
static char request[MOST_BYTES];
static char *arguments[MOST_ARGUMENTS + 1];

static bool read_all(void *buffer, size_t length) {
    char *at = buffer;
    while (length) {
        ssize_t got = read(STDIN_FILENO, at, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        length -= (size_t)got;
    }
    return true;
}

static char *next(char **at) {
    char *text = *at;
    *at += strlen(text) + 1;
    return text;
}

static void redirect(const char *path, int flags, int fd) {
    int opened = open(path, flags, 0600);
    if (opened < 0 || dup2(opened, fd) < 0)
        _exit(99);
    close(opened);
}

static void become(size_t length, int *argc, char ***argv) {
    char *at = request;
    if (chdir(next(&at)) != 0)
        _exit(99);
    redirect(next(&at), O_RDONLY, STDIN_FILENO);
    redirect(next(&at), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(next(&at), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    for (char *variable = next(&at); variable[0]; variable = next(&at))
        putenv(variable);
    *argc = 0;
    while (at < request + length && *argc < MOST_ARGUMENTS)
        arguments[(*argc)++] = next(&at);
    *argv = arguments;
    unsetenv("TCONV_TEST_SERVER");
    alarm(SECONDS);
}

void fault_server_run(int *argc, char ***argv) {
    uint32_t length;
    if (!getenv("TCONV_TEST_SERVER"))
        return;
    while (read_all(&length, sizeof length)) {
        if (length >= sizeof request || !read_all(request, length))
            _exit(99);
        request[length] = '\0';
        pid_t child = fork();
        if (child == 0) {
            become(length, argc, argv);
            return;
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child ||
            write(STDOUT_FILENO, &status, sizeof status) != (ssize_t)sizeof status)
            _exit(99);
    }
    _exit(0);
}
