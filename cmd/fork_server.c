#include "cmd/fork_server.h"

#include "core/base/error.h"
#include "core/io/sha256.h"

#ifdef TCONV_TEST_HOOKS

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a process gets that could not become what was asked for. */
#define STATUS_BROKEN 98

enum { PLACE_FOLDER, PLACE_INPUT, PLACE_OUTPUT, PLACE_ERRORS, PLACES };

struct request {
    uint32_t arguments;
    uint32_t variables;
    uint32_t bytes;
};

/* The strings in the order of the request; NULL behind the arguments and behind the variables. All
 * in one mapping, which is no memory of the command's: neither its budget nor a search for leaks
 * sees it. */
struct strings {
    char *places[PLACES];
    char **arguments;
    char **variables;
    void *mapping;
    size_t size;
};

static bool receive(int fd, void *bytes, size_t length) {
    char *at = bytes;
    while (length) {
        ssize_t done = read(fd, at, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        length -= (size_t)done;
    }
    return true;
}

static void answer(int fd, const void *bytes, size_t length) {
    if (write(fd, bytes, length) != (ssize_t)length)
        _exit(STATUS_BROKEN);
}

static bool receive_strings(int fd, const struct request *request, struct strings *strings) {
    size_t pointers = (size_t)request->arguments + request->variables + 2;
    strings->size = pointers * sizeof(char *) + request->bytes + 1;
    strings->mapping =
        mmap(NULL, strings->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (strings->mapping == MAP_FAILED)
        return false;
    strings->arguments = strings->mapping;
    strings->variables = strings->arguments + request->arguments + 1;
    char *text = (char *)(strings->arguments + pointers);
    if (!receive(fd, text, request->bytes))
        return false;
    const char *end = text + request->bytes;
    size_t count = PLACES + (size_t)request->arguments + request->variables;
    size_t i = 0;
    for (; i < count && text < end; i++, text += strlen(text) + 1) {
        size_t argument = i - PLACES;
        if (i < PLACES)
            strings->places[i] = text;
        else if (argument < request->arguments)
            strings->arguments[argument] = text;
        else
            strings->variables[argument - request->arguments] = text;
    }
    return i == count && text == end && strings->places[PLACE_ERRORS];
}

static bool put_file(int fd, const char *path, int flags) {
    int opened = open(path, flags, 0600);
    if (opened < 0 || (opened != fd && (dup2(opened, fd) < 0 || close(opened) < 0)))
        return false;
    return true;
}

/* In the forked process: everything that exec would have brought about. */
static void become(const struct strings *strings) {
    const int written = O_WRONLY | O_CREAT | O_TRUNC;
    environ = strings->variables;
    bool ok = setpgid(0, 0) == 0 && chdir(strings->places[PLACE_FOLDER]) == 0 &&
              put_file(STDIN_FILENO, strings->places[PLACE_INPUT], O_RDONLY) &&
              put_file(STDOUT_FILENO, strings->places[PLACE_OUTPUT], written) &&
              put_file(STDERR_FILENO, strings->places[PLACE_ERRORS], written) &&
              close_range(STDERR_FILENO + 1, ~0U, 0) == 0;
    if (!ok)
        _exit(STATUS_BROKEN);
}

static int64_t microseconds(struct timeval time) {
    return (int64_t)time.tv_sec * 1000000 + time.tv_usec;
}

/* In the server: tells when the process has ended, and how. */
static void attend(int fd, pid_t child) {
    int32_t id = child;
    answer(fd, &id, sizeof id);
    int status;
    struct rusage usage;
    while (wait4(child, &status, 0, &usage) < 0)
        if (errno != EINTR)
            _exit(STATUS_BROKEN);
    struct fork_server_end end = {
        .status = status,
        .microseconds = microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        .resident = usage.ru_maxrss,
    };
    answer(fd, &end, sizeof end);
}

/* libcrypto sets itself up at its first use, which takes longer than a small command. */
static void set_up_libraries(void) {
    unsigned char digest[TC_SHA256_BYTES];
    struct tc_error error = {0};
    if (!tc_sha256_of("", 0, digest, &error))
        _exit(STATUS_BROKEN);
}

void fork_server(int *argc, char ***argv) {
    const char *wanted = getenv("TCONV_TEST_SERVER");
    if (!wanted)
        return;
    int fd = atoi(wanted);
    set_up_libraries();
    struct request request;
    while (receive(fd, &request, sizeof request)) {
        struct strings strings = {0};
        if (!receive_strings(fd, &request, &strings))
            _exit(STATUS_BROKEN);
        pid_t child = fork();
        if (child == 0) {
            become(&strings);
            *argc = (int)request.arguments;
            *argv = strings.arguments;
            return;
        }
        if (child < 0 || munmap(strings.mapping, strings.size) != 0)
            _exit(STATUS_BROKEN);
        setpgid(child, child); /* whoever of the two comes first */
        attend(fd, child);
    }
    _exit(0);
}

#endif
