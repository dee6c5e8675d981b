/*
 * The calls that can fail, by the names under which the linker knows them (cmd/test/faults.h):
 * __wrap_NAME is called in place of NAME, which is __real_NAME here. Pointers of libraries are
 * void pointers, since only their wrappers know their headers.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <time.h>

#include "cmd/fork_server.h"
#include "cmd/test/fault_classes.h"
#include "cmd/test/faults.h"

/* Here these are the system's own (core/base/banned.h). */
#undef malloc
#undef calloc
#undef realloc
#undef aligned_alloc
#undef realpath

/* What libraries return when they have no memory. */
#define PCRE2_NO_MEMORY (-48)
#define PCRE2_COMPILE_NO_MEMORY 121
#define ZSTD_NO_MEMORY ((size_t)-64)
#define LZMA_NO_MEMORY 5
#define BZIP2_NO_MEMORY (-3)

/* WRAP(type, name, arguments) declares both names of a function. */
#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* Where the program starts, or a command that is forked from one that has started. */
WRAP(void, fork_server, int *argc, char ***argv) {
    __real_fork_server(argc, argv);
    faults_begin();
}

/* Memory */

/* Of the program itself only core/base/memory.c calls these. */

WRAP(void *, malloc, size_t size) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_malloc(size);
}

WRAP(void *, calloc, size_t count, size_t size) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_calloc(count, size);
}

WRAP(void *, realloc, void *old, size_t size) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_realloc(old, size);
}

WRAP(void *, aligned_alloc, size_t alignment, size_t size) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_aligned_alloc(alignment, size);
}

WRAP(void *, mmap64, void *at, size_t length, int protection, int flags, int fd, off_t offset) {
    return fault_fails(FAULT_MEMORY) ? MAP_FAILED
                                     : __real_mmap64(at, length, protection, flags, fd, offset);
}

WRAP(void *, EVP_MD_CTX_new, void) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_EVP_MD_CTX_new();
}

WRAP(int, EVP_DigestInit_ex, void *context, const void *type, void *engine) {
    return fault_fails(FAULT_MEMORY) ? 0 : __real_EVP_DigestInit_ex(context, type, engine);
}

WRAP(void *, ZSTD_createCCtx, void) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_ZSTD_createCCtx();
}

WRAP(void *, ZSTD_createDCtx, void) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_ZSTD_createDCtx();
}

WRAP(size_t, ZSTD_CCtx_setParameter, void *context, int parameter, int value) {
    return fault_fails(FAULT_MEMORY) ? ZSTD_NO_MEMORY
                                     : __real_ZSTD_CCtx_setParameter(context, parameter, value);
}

WRAP(size_t, ZSTD_compressStream2, void *context, void *out, void *in, int end) {
    return fault_fails(FAULT_MEMORY) ? ZSTD_NO_MEMORY
                                     : __real_ZSTD_compressStream2(context, out, in, end);
}

WRAP(size_t, ZSTD_decompressStream, void *context, void *out, void *in) {
    return fault_fails(FAULT_MEMORY) ? ZSTD_NO_MEMORY
                                     : __real_ZSTD_decompressStream(context, out, in);
}

WRAP(void *, pcre2_compile_8, const void *pattern, size_t length, uint32_t options, int *error,
     size_t *offset, void *context) {
    if (!fault_fails(FAULT_MEMORY))
        return __real_pcre2_compile_8(pattern, length, options, error, offset, context);
    *error = PCRE2_COMPILE_NO_MEMORY;
    *offset = 0;
    return NULL;
}

WRAP(void *, pcre2_match_data_create_from_pattern_8, const void *code, void *context) {
    return fault_fails(FAULT_MEMORY) ? NULL
                                     : __real_pcre2_match_data_create_from_pattern_8(code, context);
}

WRAP(void *, pcre2_match_context_create_8, void *context) {
    return fault_fails(FAULT_MEMORY) ? NULL : __real_pcre2_match_context_create_8(context);
}

WRAP(int, pcre2_match_8, const void *code, const void *subject, size_t length, size_t start,
     uint32_t options, void *data, void *context) {
    return fault_fails(FAULT_MEMORY)
               ? PCRE2_NO_MEMORY
               : __real_pcre2_match_8(code, subject, length, start, options, data, context);
}

WRAP(int, pcre2_substitute_8, const void *code, const void *subject, size_t length, size_t start,
     uint32_t options, void *data, void *context, const void *replacement, size_t replaced,
     void *out, size_t *out_length) {
    return fault_fails(FAULT_MEMORY)
               ? PCRE2_NO_MEMORY
               : __real_pcre2_substitute_8(code, subject, length, start, options, data, context,
                                           replacement, replaced, out, out_length);
}

WRAP(int, lzma_raw_decoder, void *stream, const void *filters) {
    return fault_fails(FAULT_MEMORY) ? LZMA_NO_MEMORY : __real_lzma_raw_decoder(stream, filters);
}

WRAP(int, lzma_auto_decoder, void *stream, uint64_t limit, uint32_t flags) {
    return fault_fails(FAULT_MEMORY) ? LZMA_NO_MEMORY
                                     : __real_lzma_auto_decoder(stream, limit, flags);
}

WRAP(int, lzma_code, void *stream, int action) {
    return fault_fails(FAULT_MEMORY) ? LZMA_NO_MEMORY : __real_lzma_code(stream, action);
}

WRAP(int, BZ2_bzDecompressInit, void *stream, int verbosity, int small) {
    return fault_fails(FAULT_MEMORY) ? BZIP2_NO_MEMORY
                                     : __real_BZ2_bzDecompressInit(stream, verbosity, small);
}

WRAP(int, BZ2_bzDecompress, void *stream) {
    return fault_fails(FAULT_MEMORY) ? BZIP2_NO_MEMORY : __real_BZ2_bzDecompress(stream);
}

/* Files */

WRAP(char *, realpath, const char *path, char *into) {
    return fault_fails(FAULT_STATUS) ? NULL : __real_realpath(path, into);
}

WRAP(int, scandir64, const char *folder, struct dirent ***entries,
     int (*filter)(const struct dirent *),
     int (*compare)(const struct dirent **, const struct dirent **)) {
    return fault_fails(FAULT_LIST) ? -1 : __real_scandir64(folder, entries, filter, compare);
}

WRAP(int, open64, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fault_fails(FAULT_OPEN) ? -1 : __real_open64(path, flags, mode);
}

WRAP(int, openat64, int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fault_fails(FAULT_OPEN) ? -1 : __real_openat64(folder, path, flags, mode);
}

WRAP(int, mkostemp64, char *path, int flags) {
    return fault_fails(FAULT_OPEN) ? -1 : __real_mkostemp64(path, flags);
}

WRAP(int, memfd_create, const char *name, unsigned flags) {
    return fault_fails(FAULT_OPEN) ? -1 : __real_memfd_create(name, flags);
}

WRAP(int, fcntl64, int fd, int command, ...) {
    va_list args;
    va_start(args, command);
    long argument = va_arg(args, long);
    va_end(args);
    return fault_fails(command == F_DUPFD_CLOEXEC ? FAULT_OPEN : FAULT_STATUS)
               ? -1
               : __real_fcntl64(fd, command, argument);
}

WRAP(DIR *, opendir, const char *path) {
    return fault_fails(FAULT_OPEN) ? NULL : __real_opendir(path);
}

WRAP(DIR *, fdopendir, int fd) {
    return fault_fails(FAULT_OPEN) ? NULL : __real_fdopendir(fd);
}

WRAP(struct dirent *, readdir64, DIR *listing) {
    return fault_fails(FAULT_LIST) ? NULL : __real_readdir64(listing);
}

WRAP(ssize_t, read, int fd, void *buffer, size_t length) {
    return fault_transfer(FAULT_READ, &length) ? -1 : __real_read(fd, buffer, length);
}

WRAP(ssize_t, pread64, int fd, void *buffer, size_t length, off_t offset) {
    return fault_transfer(FAULT_READ, &length) ? -1 : __real_pread64(fd, buffer, length, offset);
}

WRAP(ssize_t, write, int fd, const void *bytes, size_t length) {
    return fault_transfer(FAULT_WRITE, &length) ? -1 : __real_write(fd, bytes, length);
}

WRAP(ssize_t, pwrite64, int fd, const void *bytes, size_t length, off_t offset) {
    return fault_transfer(FAULT_WRITE, &length) ? -1 : __real_pwrite64(fd, bytes, length, offset);
}

WRAP(int, ftruncate64, int fd, off_t length) {
    return fault_fails(FAULT_WRITE) ? -1 : __real_ftruncate64(fd, length);
}

WRAP(ssize_t, copy_file_range, int in, off_t *from, int out, off_t *to, size_t length,
     unsigned flags) {
    return fault_transfer(FAULT_COPY, &length)
               ? -1
               : __real_copy_file_range(in, from, out, to, length, flags);
}

WRAP(int, fsync, int fd) {
    return fault_fails(FAULT_SYNC) ? -1 : __real_fsync(fd);
}

WRAP(int, fdatasync, int fd) {
    return fault_fails(FAULT_SYNC) ? -1 : __real_fdatasync(fd);
}

/* The descriptor is closed all the same, as by the kernel. */
WRAP(int, close, int fd) {
    int failed = __real_close(fd);
    return fault_fails(FAULT_CLOSE) ? -1 : failed;
}

WRAP(int, stat64, const char *path, struct stat *status) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_stat64(path, status);
}

WRAP(int, lstat64, const char *path, struct stat *status) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_lstat64(path, status);
}

WRAP(int, fstat64, int fd, struct stat *status) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_fstat64(fd, status);
}

WRAP(int, fstatat64, int folder, const char *path, struct stat *status, int flags) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_fstatat64(folder, path, status, flags);
}

WRAP(int, fstatvfs64, int fd, struct statvfs *space) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_fstatvfs64(fd, space);
}

WRAP(int, fstatfs64, int fd, struct statfs *system) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_fstatfs64(fd, system);
}

WRAP(int, access, const char *path, int mode) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_access(path, mode);
}

WRAP(int, faccessat, int folder, const char *path, int mode, int flags) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_faccessat(folder, path, mode, flags);
}

WRAP(off_t, lseek64, int fd, off_t offset, int whence) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_lseek64(fd, offset, whence);
}

WRAP(int, fchmod, int fd, mode_t mode) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_fchmod(fd, mode);
}

WRAP(int, renameat, int from, const char *name, int to, const char *target) {
    return fault_fails(FAULT_RENAME) ? -1 : __real_renameat(from, name, to, target);
}

WRAP(int, renameat2, int from, const char *name, int to, const char *target, unsigned flags) {
    return fault_fails(FAULT_RENAME) ? -1 : __real_renameat2(from, name, to, target, flags);
}

WRAP(int, linkat, int from, const char *name, int to, const char *target, int flags) {
    return fault_fails(FAULT_RENAME) ? -1 : __real_linkat(from, name, to, target, flags);
}

WRAP(int, unlink, const char *path) {
    return fault_fails(FAULT_UNLINK) ? -1 : __real_unlink(path);
}

WRAP(int, unlinkat, int folder, const char *path, int flags) {
    return fault_fails(FAULT_UNLINK) ? -1 : __real_unlinkat(folder, path, flags);
}

WRAP(int, rmdir, const char *path) {
    return fault_fails(FAULT_UNLINK) ? -1 : __real_rmdir(path);
}

WRAP(int, mkdir, const char *path, mode_t mode) {
    return fault_fails(FAULT_MKDIR) ? -1 : __real_mkdir(path, mode);
}

WRAP(int, mkdirat, int folder, const char *path, mode_t mode) {
    return fault_fails(FAULT_MKDIR) ? -1 : __real_mkdirat(folder, path, mode);
}

WRAP(int, flock, int fd, int operation) {
    return fault_fails(FAULT_LOCK) ? -1 : __real_flock(fd, operation);
}

/* The rest of the system */

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
     void *context) {
    return fault_fails(FAULT_THREAD) ? errno
                                     : __real_pthread_create(thread, attributes, run, context);
}

WRAP(ssize_t, getrandom, void *buffer, size_t length, unsigned flags) {
    return fault_fails(FAULT_RANDOM) ? -1 : __real_getrandom(buffer, length, flags);
}

WRAP(int, getrlimit64, int what, struct rlimit *limit) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_getrlimit64(what, limit);
}

WRAP(int, setrlimit64, int what, const struct rlimit *limit) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_setrlimit64(what, limit);
}

WRAP(int, prctl, int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_prctl(option, a, b, c, d);
}

WRAP(long, syscall, long number, long a, long b, long c, long d, long e, long f) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_syscall(number, a, b, c, d, e, f);
}

WRAP(int, sched_getaffinity, pid_t process, size_t size, cpu_set_t *set) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_sched_getaffinity(process, size, set);
}

WRAP(int, sodium_init, void) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_sodium_init();
}

/* With TCONV_TEST_CLOCK=1 the time of day jumps 20 years forward and 20 years back, by turns. */
WRAP(int, clock_gettime, clockid_t clock, struct timespec *now) {
    static atomic_uint looks;
    int failed = __real_clock_gettime(clock, now);
    const time_t years = (time_t)20 * 365 * 86400;
    if (clock == CLOCK_REALTIME && getenv("TCONV_TEST_CLOCK"))
        now->tv_sec += looks++ % 2 ? years : -years;
    return failed;
}

WRAP(pid_t, fork, void) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_fork();
}

WRAP(int, pipe2, int pair[2], int flags) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_pipe2(pair, flags);
}

WRAP(int, glob64, const char *pattern, int flags, int (*failed)(const char *, int), void *found) {
    if (fault_fails(FAULT_LIST))
        return GLOB_ABORTED;
    return __real_glob64(pattern, flags, failed, found);
}

WRAP(int, socketpair, int domain, int type, int protocol, int pair[2]) {
    return fault_fails(FAULT_SYSTEM) ? -1 : __real_socketpair(domain, type, protocol, pair);
}

/* What remote files need besides */

WRAP(char *, mkdtemp, char *pattern) {
    return fault_fails(FAULT_MKDIR) ? NULL : __real_mkdtemp(pattern);
}

WRAP(int, symlinkat, const char *target, int folder, const char *path) {
    return fault_fails(FAULT_RENAME) ? -1 : __real_symlinkat(target, folder, path);
}

WRAP(ssize_t, readlinkat, int folder, const char *path, char *target, size_t size) {
    return fault_fails(FAULT_STATUS) ? -1 : __real_readlinkat(folder, path, target, size);
}

WRAP(ssize_t, recv, int fd, void *buffer, size_t length, int flags) {
    return fault_transfer(FAULT_READ, &length) ? -1 : __real_recv(fd, buffer, length, flags);
}

WRAP(ssize_t, send, int fd, const void *bytes, size_t length, int flags) {
    return fault_transfer(FAULT_WRITE, &length) ? -1 : __real_send(fd, bytes, length, flags);
}

WRAP(void *, dlopen, const char *name, int flags) {
    return fault_fails(FAULT_SYSTEM) ? NULL : __real_dlopen(name, flags);
}

WRAP(void *, dlsym, void *library, const char *name) {
    return fault_fails(FAULT_SYSTEM) ? NULL : __real_dlsym(library, name);
}
