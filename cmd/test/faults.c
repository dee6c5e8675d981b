#include "cmd/test/faults.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/test/fault_classes.h"

#define MOST_FAULTS 4   /* in one variable */
#define MOST_RECORDS 64 /* faults that were made, with the calls that led there */
#define MOST_FRAMES 24

static const struct {
    const char *name;
    int errnum; /* what fails in this class fails so, unless the variable says otherwise */
} classes[FAULT_CLASSES] = {
    [FAULT_MEMORY] = {"memory", ENOMEM}, [FAULT_OPEN] = {"open", EMFILE},
    [FAULT_READ] = {"read", EIO},        [FAULT_LIST] = {"list", EIO},
    [FAULT_WRITE] = {"write", ENOSPC},   [FAULT_COPY] = {"copy", EIO},
    [FAULT_SYNC] = {"sync", EIO},        [FAULT_CLOSE] = {"close", EIO},
    [FAULT_STATUS] = {"status", EIO},    [FAULT_RENAME] = {"rename", EIO},
    [FAULT_UNLINK] = {"unlink", EIO},    [FAULT_MKDIR] = {"mkdir", ENOSPC},
    [FAULT_LOCK] = {"lock", ENOLCK},     [FAULT_THREAD] = {"thread", EAGAIN},
    [FAULT_RANDOM] = {"random", EAGAIN}, [FAULT_SYSTEM] = {"system", EPERM},
};

static struct planned {
    enum fault_class class;
    long number;
    bool onward;
    bool shortens;
    int errnum;
} planned[MOST_FAULTS];
static size_t planned_count;

/* Shared with the processes that a command starts, such as those of a batch: the Nth call is the
 * Nth of them all, and the report has the faults of all. */
static struct shared {
    struct record {
        enum fault_class class;
        long number;
        void *frames[MOST_FRAMES];
        int depth;
    } records[MOST_RECORDS];
    atomic_size_t record_count;
    atomic_long calls[FAULT_CLASSES];
} * shared;
static atomic_bool counting;
static int report_fd = -1;

/* Where the program was loaded, so that addresses can be looked up in the file. */
#ifdef __PIE__
extern const char __executable_start;
#define LOADED_AT ((uintptr_t)&__executable_start)
#else
#define LOADED_AT ((uintptr_t)0) /* at the addresses that its symbols have */
#endif

static int errnum_of(const char *name) {
    for (int errnum = 1; errnum < 134; errnum++) {
        const char *known = strerrorname_np(errnum);
        if (known && strcmp(known, name) == 0)
            return errnum;
    }
    dprintf(STDERR_FILENO, "TCONV_TEST_FAULT: no such error: %s\n", name);
    _exit(99);
}

/* CLASS[/ERROR or /short]:NUMBER[+] */
static void plan_fault(char *text) {
    struct planned *fault = &planned[planned_count++];
    char *colon = strchr(text, ':');
    char *end = text;
    if (colon) {
        *colon = '\0';
        fault->number = strtol(colon + 1, &end, 10);
        fault->onward = *end == '+';
    }
    char *mode = strchr(text, '/');
    if (mode)
        *mode++ = '\0';
    for (fault->class = 0; fault->class < FAULT_CLASSES; fault->class ++)
        if (strcmp(classes[fault->class].name, text) == 0)
            break;
    if (fault->class == FAULT_CLASSES || fault->number < 1) {
        dprintf(STDERR_FILENO, "TCONV_TEST_FAULT: expected CLASS:NUMBER, got %s\n", text);
        _exit(99);
    }
    fault->shortens = mode && strcmp(mode, "short") == 0;
    fault->errnum = mode && !fault->shortens ? errnum_of(mode) : classes[fault->class].errnum;
}

static void report(void) {
    counting = false;
    for (size_t i = 0; i < FAULT_CLASSES; i++)
        dprintf(report_fd, "calls %s %ld\n", classes[i].name, (long)shared->calls[i]);
    size_t count = shared->record_count < MOST_RECORDS ? shared->record_count : MOST_RECORDS;
    for (size_t i = 0; i < count; i++) {
        const struct record *record = &shared->records[i];
        dprintf(report_fd, "fault %s %ld", classes[record->class].name, record->number);
        for (int frame = 0; frame < record->depth; frame++)
            dprintf(report_fd, " %" PRIxPTR, (uintptr_t)record->frames[frame] - LOADED_AT);
        dprintf(report_fd, "\n");
    }
}

void faults_begin(void) {
    const char *variable = getenv("TCONV_TEST_FAULT");
    const char *path = getenv("TCONV_TEST_FAULT_REPORT");
    if (!variable && !path)
        return;
    char text[256];
    char *rest = NULL;
    snprintf(text, sizeof text, "%s", variable ? variable : "");
    for (char *one = strtok_r(text, ",", &rest); one && planned_count < MOST_FAULTS;
         one = strtok_r(NULL, ",", &rest))
        plan_fault(one);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    /* The first call loads a library, which later needs memory or is forbidden. */
    void *frames[MOST_FRAMES];
    backtrace(frames, MOST_FRAMES);
    /* The sandbox would forbid to open it at the end. */
    report_fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (report_fd >= 0) {
        /* Numbers of descriptors stay what they are without tests. */
        int high = fcntl(report_fd, F_DUPFD_CLOEXEC, 200);
        if (high >= 0) {
            close(report_fd);
            report_fd = high;
        }
        atexit(report);
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        _exit(99);
    counting = true;
}

void faults_end(void) {
    counting = false;
}

static const struct planned *take(enum fault_class class) {
    if (!counting)
        return NULL;
    long number = atomic_fetch_add(&shared->calls[class], 1) + 1;
    for (size_t i = 0; i < planned_count; i++) {
        const struct planned *fault = &planned[i];
        if (fault->class != class || number < fault->number ||
            (number > fault->number && !fault->onward))
            continue;
        size_t at = atomic_fetch_add(&shared->record_count, 1);
        if (at < MOST_RECORDS) {
            struct record *record = &shared->records[at];
            record->class = class;
            record->number = number;
            record->depth = backtrace(record->frames, MOST_FRAMES);
        }
        return fault;
    }
    return NULL;
}

bool fault_fails(enum fault_class class) {
    const struct planned *fault = take(class);
    if (!fault || fault->shortens)
        return false;
    errno = fault->errnum;
    return true;
}

bool fault_transfer(enum fault_class class, size_t *length) {
    const struct planned *fault = take(class);
    if (fault && fault->shortens && *length > 1)
        *length /= 2;
    if (!fault || fault->shortens)
        return false;
    errno = fault->errnum;
    return true;
}
