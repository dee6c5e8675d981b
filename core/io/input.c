#include "core/io/input.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/base/limits.h"
#include "core/base/memory.h"

/* Few, so that a run under `ulimit -n 32` still has room for its outputs. */
#define POOL_OPEN_FILES 8u
/* Linux transfers at most 0x7ffff000 bytes per call. */
#define LARGEST_TRANSFER (UINT64_C(1) << 30)
#define SPOOL_STEP ((size_t)1 << 18)
/* A pipe's length is not known, so the free space of the disk is checked again
 * after this many bytes. */
#define SPOOL_CHECK (UINT64_C(16) << 20)
#define LARGEST_RESERVE (UINT64_C(1) << 30)

void tc_input_pool_init(struct tc_input_pool *pool) {
    *pool = (struct tc_input_pool){0};
    pthread_mutex_init(&pool->lock, NULL);
}

void tc_input_pool_release(struct tc_input_pool *pool) {
    pthread_mutex_destroy(&pool->lock);
}

const char *tc_tempfile_folder(size_t i) {
    const char *folders[TC_TEMPFILE_FOLDERS] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
    return folders[i] && folders[i][0] ? folders[i] : NULL;
}

int tc_tempfile(struct tc_error *error) {
    int fd = -1;
    for (size_t i = 0; i < TC_TEMPFILE_FOLDERS && fd < 0; i++) {
        const char *folder = tc_tempfile_folder(i);
        if (!folder)
            continue;
        fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0) {
            char name[PATH_MAX];
            int length = snprintf(name, sizeof name, "%s/tconv-XXXXXX", folder);
            if (length > 0 && (size_t)length < sizeof name) {
                fd = mkostemp(name, O_CLOEXEC);
                if (fd >= 0)
                    unlink(name);
            }
        }
    }
    if (fd < 0) {
        tc_fail_errno(error, errno, "tempfile", "cannot make a temporary file");
        tc_error_hint(error, "set TMPDIR to a folder with enough space");
    }
    return fd;
}

/* What stays free: a disk that is full to the last block would stop other
 * programs too. */
static uint64_t disk_reserve(const struct statvfs *disk) {
    uint64_t part = (uint64_t)disk->f_blocks * disk->f_frsize / 64;
    return part < LARGEST_RESERVE ? part : LARGEST_RESERVE;
}

bool tc_tempfile_check(int fd, uint64_t length, uint64_t more, struct tc_error *error) {
    struct statvfs disk;
    uint64_t sum;
    if (!tc_add(length, more, &sum) || sum > TC_MAX_SPOOL) {
        tc_fail(error, TC_UNSAFE, "spool-limit",
                "a temporary file would have over %llu bytes (this limit is fixed)",
                (unsigned long long)TC_MAX_SPOOL);
        return tc_error_hint(error, "write the data to a file first, and name that");
    }
    /* Where the disk's size is not known, writing will fail when it is full. */
    if (fstatvfs(fd, &disk) != 0 || disk.f_blocks == 0)
        return true;
    uint64_t available = (uint64_t)disk.f_bavail * disk.f_frsize;
    uint64_t reserve = disk_reserve(&disk);
    if (available >= reserve && more <= available - reserve)
        return true;
    tc_fail(error, TC_IO, "no-space",
            "a temporary file of %llu bytes does not fit its disk (%llu bytes are free)",
            (unsigned long long)sum, (unsigned long long)available);
    return tc_error_hint(error, "set TMPDIR to a folder with enough space");
}

bool tc_write_all(int fd, const void *bytes, size_t length, struct tc_error *error) {
    const char *at = bytes;
    while (length) {
        ssize_t done = write(fd, at, length < LARGEST_TRANSFER ? length : LARGEST_TRANSFER);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return tc_fail_errno(error, errno, "write", "cannot write");
        at += done;
        length -= (size_t)done;
    }
    return true;
}

ssize_t tc_read_up_to(int fd, void *bytes, size_t room) {
    size_t length = 0;
    while (length < room) {
        ssize_t got = read(fd, (char *)bytes + length, room - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        length += (size_t)got;
    }
    return (ssize_t)length;
}

/* Copies a pipe to a temporary file; returns that file's descriptor. */
static int spool(int from, struct tc_error *error) {
    int to = tc_tempfile(error);
    char *buffer = to < 0 ? NULL : malloc(SPOOL_STEP);
    if (to >= 0 && !buffer)
        tc_fail_memory(error);
    bool ok = buffer != NULL;
    uint64_t length = 0;
    uint64_t checked = 0;
    while (ok) {
        if (length + SPOOL_STEP > checked) {
            ok = tc_tempfile_check(to, length, SPOOL_CHECK, error);
            checked = length + SPOOL_CHECK;
            continue;
        }
        ssize_t got = read(from, buffer, SPOOL_STEP);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            ok = tc_fail_errno(error, errno, "read", "cannot read standard input");
        if (got <= 0)
            break;
        ok = tc_write_all(to, buffer, (size_t)got, error);
        length += (uint64_t)got;
    }
    free(buffer);
    if (!ok && to >= 0) {
        close(to);
        to = -1;
    }
    return to;
}

static bool is_regular(mode_t mode, struct tc_error *error) {
    if (S_ISREG(mode))
        return true;
    const char *kind = S_ISDIR(mode)    ? "a folder"
                       : S_ISFIFO(mode) ? "a pipe"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a device";
    tc_fail(error, TC_IO, "not-a-file", "this is %s, not a file", kind);
    tc_error_because(error, TC_REASON_NOT_A_FILE);
    if (S_ISFIFO(mode))
        tc_error_hint(error, "to read from a pipe, give - and redirect standard input");
    return false;
}

/* A file of the kernel's, such as those in /proc, says that it is empty and is not. */
static bool has_its_size(int fd, uint64_t size, struct tc_error *error) {
    char byte;
    ssize_t got = size ? 0 : pread(fd, &byte, 1, 0);
    if (got == 0)
        return true;
    if (got < 0)
        return tc_fail_errno(error, errno, "read", "cannot read");
    tc_fail(error, TC_IO, "not-a-file", "this file does not tell its size");
    tc_error_because(error, TC_REASON_NOT_A_FILE);
    return tc_error_hint(error, "to read it as a pipe, give - and redirect standard input");
}

static int open_stdin(struct tc_error *error) {
    struct stat status;
    if (fstat(STDIN_FILENO, &status) != 0) {
        tc_fail_errno(error, errno, "open", "cannot read standard input");
        return -1;
    }
    if (S_ISCHR(status.st_mode) || S_ISDIR(status.st_mode)) {
        tc_fail(error, TC_USAGE, "not-a-file", "standard input is neither a file nor a pipe");
        return -1;
    }
    if (!S_ISREG(status.st_mode))
        return spool(STDIN_FILENO, error);
    int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        tc_fail_errno(error, errno, "open", "cannot read standard input");
    return fd;
}

/* O_NONBLOCK: opening a FIFO without a writer must not wait. */
static int open_path(const char *path, struct tc_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        tc_fail_errno(error, errno, "open", "cannot open");
        tc_error_because(error, TC_REASON_CANNOT_OPEN);
    }
    return fd;
}

/* Opening a pipe or a device may have an effect. What can't be looked at now is looked at again
 * once it is open. */
static bool may_be_opened(const char *path, struct tc_error *error) {
    struct stat status;
    return stat(path, &status) != 0 || is_regular(status.st_mode, error);
}

static bool same_file(const struct tc_input *input, const struct stat *status) {
    return status->st_dev == input->device && status->st_ino == input->inode &&
           (uint64_t)status->st_size == input->size &&
           status->st_mtim.tv_sec == input->modified.tv_sec &&
           status->st_mtim.tv_nsec == input->modified.tv_nsec;
}

static bool changed(struct tc_error *error) {
    return tc_fail(error, TC_IO, "changed", "the file changed while it was read");
}

/* The pool's list of open inputs. The lock is held. */
static void pool_unlink(struct tc_input *input) {
    struct tc_input_pool *pool = input->pool;
    *(input->newer ? &input->newer->older : &pool->newest) = input->older;
    *(input->older ? &input->older->newer : &pool->oldest) = input->newer;
    input->newer = input->older = NULL;
    pool->open--;
}

static void pool_link(struct tc_input *input) {
    struct tc_input_pool *pool = input->pool;
    input->older = pool->newest;
    *(pool->newest ? &pool->newest->newer : &pool->oldest) = input;
    pool->newest = input;
    pool->open++;
}

static void pool_make_room(struct tc_input_pool *pool) {
    struct tc_input *input = pool->oldest;
    while (input && pool->open >= POOL_OPEN_FILES) {
        struct tc_input *next = input->newer;
        if (input->users == 0) {
            pool_unlink(input);
            close(input->fd);
            input->fd = -1;
        }
        input = next;
    }
}

static bool reopen(struct tc_input *input, struct tc_error *error) {
    pool_make_room(input->pool);
    int fd = open_path(input->place, error);
    if (fd < 0)
        return false;
    struct stat status;
    bool ok = fstat(fd, &status) == 0 || tc_fail_errno(error, errno, "open", "cannot open again");
    if (!ok || !same_file(input, &status)) {
        close(fd);
        return changed(error);
    }
    input->fd = fd;
    pool_link(input);
    return true;
}

/* NULL where there is no memory for one. */
static struct tc_input_failure *share_failure(const struct tc_input *source) {
    struct tc_input_failure *failure = source ? source->failure : calloc(1, sizeof *failure);
    if (failure)
        failure->users++;
    return failure;
}

static void free_input(struct tc_input *input) {
    if (input->source)
        input->source->drop(input->context);
    if (input->fd >= 0)
        close(input->fd);
    if (input->failure && --input->failure->users == 0)
        free(input->failure);
    free(input->path);
    free(input->place);
    free(input);
}

struct tc_input *tc_input_open(const char *path, struct tc_input_pool *pool,
                               struct tc_error *error) {
    return tc_input_open_at(path, path, pool, error);
}

struct tc_input *tc_input_open_at(const char *path, const char *place, struct tc_input_pool *pool,
                                  struct tc_error *error) {
    struct tc_input *input = calloc(1, sizeof *input);
    if (!input) {
        tc_fail_memory(error);
        return NULL;
    }
    *input = (struct tc_input){
        .path = strdup(path), .place = strdup(place), .failure = share_failure(NULL), .fd = -1};
    if (!input->path || !input->place || !input->failure) {
        tc_fail_memory(error);
        free_input(input);
        return NULL;
    }
    input->pool = pool;
    if (pool) {
        pthread_mutex_lock(&pool->lock);
        pool_make_room(pool);
        pthread_mutex_unlock(&pool->lock);
    }
    bool standard = strcmp(place, "-") == 0;
    struct stat status;
    if (!standard && !may_be_opened(place, error))
        goto fail;
    input->fd = standard ? open_stdin(error) : open_path(place, error);
    if (input->fd < 0)
        goto fail;
    if (fstat(input->fd, &status) != 0) {
        tc_fail_errno(error, errno, "open", "cannot open");
        goto fail;
    }
    if (!is_regular(status.st_mode, error) ||
        !has_its_size(input->fd, (uint64_t)status.st_size, error))
        goto fail;
    input->size = (uint64_t)status.st_size;
    input->device = status.st_dev;
    input->inode = status.st_ino;
    /* A copy of a pipe has no name, and its permissions say nothing of the data. */
    input->mode = status.st_nlink ? status.st_mode & 0777 : 0777;
    input->modified = status.st_mtim;
    tc_memory_open(input->size);
    if (pool) {
        pthread_mutex_lock(&pool->lock);
        pool_link(input);
        pthread_mutex_unlock(&pool->lock);
    }
    return input;
fail:
    tc_error_in_file(error, path);
    free_input(input);
    return NULL;
}

struct tc_input *tc_input_adopt(int fd, const char *path, uint64_t size, struct tc_input *source,
                                struct tc_error *error) {
    struct tc_input *input = fd < 0 ? NULL : calloc(1, sizeof *input);
    struct stat status;
    if (!input) {
        if (fd >= 0) {
            tc_fail_memory(error);
            close(fd);
        }
        return NULL;
    }
    *input = (struct tc_input){.path = strdup(path),
                               .place = strdup(path),
                               .failure = share_failure(source),
                               .size = size,
                               .fd = fd};
    if (!input->path || !input->place || !input->failure)
        tc_fail_memory(error);
    else if (fstat(fd, &status) != 0)
        tc_fail_errno(error, errno, "open", "cannot open");
    else {
        input->device = status.st_dev;
        input->inode = status.st_ino;
        input->modified = status.st_mtim;
        return input;
    }
    free_input(input);
    return NULL;
}

/* `whole` is the input that it is a part of, or NULL. */
static struct tc_input *from_source(const char *path, uint64_t size,
                                    const struct tc_input_source *source, void *context,
                                    uint64_t number, const struct tc_input *whole,
                                    struct tc_error *error) {
    struct tc_input *input = calloc(1, sizeof *input);
    if (!input) {
        tc_fail_memory(error);
        return NULL;
    }
    source->hold(context);
    /* No file is on this device, and each source's number is that of one file. */
    *input = (struct tc_input){.path = strdup(path),
                               .place = strdup(path),
                               .failure = share_failure(whole),
                               .size = size,
                               .fd = -1,
                               .device = (dev_t)-1,
                               .inode = (ino_t)number,
                               .mode = 0777,
                               .source = source,
                               .context = context};
    if (!input->path || !input->place || !input->failure) {
        tc_fail_memory(error);
        free_input(input);
        return NULL;
    }
    tc_memory_open(size);
    return input;
}

struct tc_input *tc_input_from(const char *path, uint64_t size,
                               const struct tc_input_source *source, void *context, uint64_t number,
                               struct tc_error *error) {
    return from_source(path, size, source, context, number, NULL, error);
}

struct tc_input *tc_input_part(struct tc_input *whole, const char *path, uint64_t offset,
                               uint64_t size, struct tc_error *error) {
    if (!tc_range_within(offset, size, whole->size)) {
        tc_fail(error, TC_INTERNAL, "range", "a part of a file reaches past the file's end");
        return NULL;
    }
    if (whole->source) {
        struct tc_input *part =
            from_source(path, size, whole->source, whole->context, whole->inode, whole, error);
        if (part)
            part->base = whole->base + offset;
        return part;
    }
    int from = tc_input_acquire(whole, error);
    int fd = from < 0 ? -1 : fcntl(from, F_DUPFD_CLOEXEC, 3);
    if (from >= 0) {
        if (fd < 0)
            tc_fail_errno(error, errno, "open", "cannot open");
        tc_input_release(whole);
    }
    struct tc_input *part = tc_input_adopt(fd, path, size, whole, error);
    if (part)
        part->base = whole->base + offset;
    return part;
}

void tc_input_close(struct tc_input *input) {
    if (!input)
        return;
    if (input->pool) {
        pthread_mutex_lock(&input->pool->lock);
        if (input->fd >= 0)
            pool_unlink(input);
        pthread_mutex_unlock(&input->pool->lock);
    }
    free_input(input);
}

void tc_input_expect(struct tc_input *input, uint64_t offset, uint64_t length) {
    if (input->source && tc_range_within(offset, length, input->size))
        input->source->expect(input->context, input->base + offset, length);
}

void tc_input_check(struct tc_input *input, enum tc_input_checking what) {
    if (input->source)
        input->source->check(input->context, what);
}

int tc_input_acquire(struct tc_input *input, struct tc_error *error) {
    if (input->source) {
        tc_fail(error, TC_INTERNAL, "descriptor", "this input has no descriptor");
        return -1;
    }
    if (!input->pool)
        return input->fd;
    pthread_mutex_lock(&input->pool->lock);
    int fd = -1;
    if (input->fd >= 0 || reopen(input, error)) {
        pool_unlink(input);
        pool_link(input);
        input->users++;
        fd = input->fd;
    }
    pthread_mutex_unlock(&input->pool->lock);
    if (fd < 0)
        tc_error_in_file(error, input->path);
    return fd;
}

void tc_input_release(struct tc_input *input) {
    if (!input->pool)
        return;
    pthread_mutex_lock(&input->pool->lock);
    input->users--;
    pthread_mutex_unlock(&input->pool->lock);
}

bool tc_input_read(struct tc_input *input, uint64_t offset, void *buffer, size_t length,
                   struct tc_error *error) {
    if (!tc_range_within(offset, length, input->size)) {
        tc_fail(error, TC_INVALID, "truncated",
                "the file is cut short (got %llu bytes, expected %zu more at %llu)",
                (unsigned long long)input->size, length, (unsigned long long)offset);
        return tc_error_in_file(error, input->path);
    }
    if (input->source) {
        if (input->source->read(input->context, input->base + offset, buffer, length, error))
            return true;
        input->failure->errnum = EIO;
        return tc_error_in_file(error, input->path);
    }
    int fd = tc_input_acquire(input, error);
    if (fd < 0)
        return false;
    char *at = buffer;
    bool ok = true;
    while (ok && length) {
        ssize_t got = pread(fd, at, length < LARGEST_TRANSFER ? length : LARGEST_TRANSFER,
                            (off_t)(input->base + offset));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            input->failure->errnum = got < 0 ? errno : EIO;
        if (got < 0)
            ok = tc_fail_errno(error, errno, "read", "cannot read");
        else if (got == 0)
            ok = changed(error);
        if (ok) {
            at += got;
            offset += (uint64_t)got;
            length -= (size_t)got;
        }
    }
    tc_input_release(input);
    return ok ? true : tc_error_in_file(error, input->path);
}

void *tc_input_load(struct tc_input *input, uint64_t offset, uint64_t length,
                    struct tc_error *error) {
    tc_memory_earn(length);
    void *bytes = malloc(length ? length : 1);
    if (!bytes) {
        tc_fail_memory(error);
        return NULL;
    }
    tc_input_expect(input, offset, length);
    if (!tc_input_read(input, offset, bytes, length, error)) {
        free(bytes);
        return NULL;
    }
    return bytes;
}

bool tc_input_sound(struct tc_input *input, struct tc_error *error) {
    if (!input->failure->errnum)
        return true;
    if (!input->source || input->source->sound(input->context, error))
        tc_fail_errno(error, input->failure->errnum, "read", "cannot read");
    return tc_error_in_file(error, input->path);
}

/* By its descriptor where it is open; another thread may close that for want of descriptors, so not
 * meanwhile. Returns 0 or an errno. */
static int look_again(struct tc_input *input, struct stat *status) {
    if (input->pool)
        pthread_mutex_lock(&input->pool->lock);
    int failed = input->fd >= 0 ? fstat(input->fd, status) : stat(input->place, status);
    failed = failed ? errno : 0;
    if (input->pool)
        pthread_mutex_unlock(&input->pool->lock);
    return failed;
}

bool tc_input_unchanged(struct tc_input *input, struct tc_error *error) {
    struct stat status;
    if (!tc_input_sound(input, error))
        return false;
    /* A source tells with each read whether it changed. */
    if (input->source)
        return true;
    int failed = look_again(input, &status);
    if (failed || !same_file(input, &status)) {
        if (failed && failed != ENOENT)
            tc_fail_errno(error, failed, "open", "cannot look at it again");
        changed(error);
        return tc_error_in_file(error, input->path);
    }
    return true;
}
