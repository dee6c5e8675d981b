#include "cmd/test/fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/base/findings.h"
#include "core/base/limits.h"
#include "core/base/memory.h"
#include "core/format/reader.h"
#include "core/inspect/digest.h"
#include "core/inspect/verify_file.h"
#include "formats/registry.h"

#define MADE_LIMIT (UINT64_C(16) << 20)

const struct tc_format_options fuzz_options = {.limits = {.tensors = 4000000,
                                                          .memory = TC_LIMIT_BY_FILE,
                                                          .made = MADE_LIMIT,
                                                          .pickle = UINT64_C(256) << 20}};

void fuzz_fail(const char *file, int line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static void out_of_time(int number) {
    static const char message[] = "fuzz: this input took too much processor time\n";
    (void)number;
    if (write(STDERR_FILENO, message, sizeof message - 1) < 0)
        _exit(1);
    abort();
}

static void set_clock(time_t seconds) {
    /* Time of all threads, not time on the wall: another program that takes the processor is no
     * finding. */
    const struct itimerval timer = {.it_value.tv_sec = seconds};
    setitimer(ITIMER_PROF, &timer, NULL);
}

void fuzz_restart_clock(void) {
    set_clock(FUZZ_SECONDS);
}

void fuzz_run(fuzz_target *target, const unsigned char *bytes, size_t length) {
    static bool prepared;
    if (!prepared)
        signal(SIGPROF, out_of_time);
    prepared = true;
    tc_memory_follow();
    tc_memory_begin_file();
    fuzz_restart_clock();
    target(bytes, length);
    set_clock(0);
}

void fuzz_check_outcome(bool ok, const struct tc_error *error) {
    FUZZ_CHECK(ok == (error->class == TC_OK), "returned %d with an error of class %d: %s", ok,
               (int)error->class, error->message);
    FUZZ_CHECK(ok || (error->code && error->code[0] && error->message[0]),
               "a failure of class %d that does not say why", (int)error->class);
    FUZZ_CHECK(error->class != TC_INTERNAL, "an internal error: %s", error->message);
}

const char *fuzz_file(const unsigned char *bytes, size_t length) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    FUZZ_CHECK(ftruncate(file, 0) == 0 && pwrite(file, bytes, length, 0) == (ssize_t)length,
               "the file in memory can't be written");
    return path;
}

static char folder[PATH_MAX];

/* Removes all files of the folder, which has no folders inside. */
static void remove_files(void) {
    DIR *handle = opendir(folder);
    struct dirent *entry;
    while (handle && (entry = readdir(handle)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            FUZZ_CHECK(unlinkat(dirfd(handle), entry->d_name, 0) == 0, "%s/%s can't be removed",
                       folder, entry->d_name);
    if (handle)
        closedir(handle);
}

static void remove_folder(void) {
    remove_files();
    rmdir(folder);
}

void fuzz_empty_folder(void) {
    if (folder[0]) {
        remove_files();
        return;
    }
    const char *place = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tconv-fuzz-XXXXXX", place ? place : "/dev/shm");
    FUZZ_CHECK(mkdtemp(folder), "no folder can be made: %s", folder);
    atexit(remove_folder);
}

const char *fuzz_path(const char *name) {
    static char paths[4][sizeof folder + NAME_MAX + 2];
    static unsigned next;
    char *path = paths[next++ % 4];
    int length = snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    FUZZ_CHECK(length > 0 && (size_t)length < sizeof paths[0], "too long: %s", name);
    return path;
}

void fuzz_write(const char *name, const void *bytes, size_t length) {
    FILE *file = fopen(fuzz_path(name), "wb");
    FUZZ_CHECK(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0,
               "%s can't be written", name);
}

bool fuzz_digest(const char *path, const struct tc_backend *backend,
                 const struct tc_format_options *options, struct tc_buffer *text,
                 struct tc_error *error) {
    struct tc_reader *reader = tc_registry_open(path, backend, options, error);
    struct tc_digest digest = {0};
    struct tc_buffer own = {0};
    bool ok = reader && tc_digest_make(&digest, reader, error) &&
              tc_digest_print(&digest, reader, text ? text : &own, error);
    tc_buffer_release(&own);
    tc_digest_release(&digest);
    tc_reader_close(reader);
    fuzz_check_outcome(ok, error);
    return ok;
}

/* Whether there is any damage to a file, or it can't be opened at all. */
static bool is_damaged(const char *path, const struct tc_backend *backend,
                       const struct tc_format_options *options) {
    struct tc_error error = {0};
    struct tc_findings findings;
    struct tc_format_options forgiving = *options;
    const struct tc_verify_file_options all = {.verbose = true};
    tc_findings_init(&findings);
    forgiving.findings = &findings;
    struct tc_reader *reader = tc_registry_open(path, backend, &forgiving, &error);
    bool ok = reader && tc_verify_file(reader, &all, &error);
    bool damaged = !ok || findings.failures;
    tc_reader_close(reader);
    tc_findings_release(&findings);
    fuzz_check_outcome(ok, &error);
    return damaged;
}

bool fuzz_digest_and_verify(const char *path, const struct tc_backend *backend,
                            const struct tc_format_options *options, struct tc_error *error) {
    bool ok = fuzz_digest(path, backend, options, NULL, error);
    fuzz_restart_clock();
    bool damaged = is_damaged(path, backend, options);
    FUZZ_CHECK(ok || damaged, "verify does not find what is wrong: %s", error->message);
    return ok;
}
