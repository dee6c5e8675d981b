/* Writing one output file (core/io/publish.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/io/publish.h"

#define BUFFER_BYTES ((size_t)1 << 18)
/* Writes of this size or more are not copied into the buffer. */
#define SMALL_WRITE ((size_t)1 << 16)
#define LARGEST_TRANSFER (UINT64_C(1) << 30)

bool tc_outfile_seekable(const struct tc_outfile *out) {
    return !out->stream;
}

bool tc_outfile_reserve(struct tc_outfile *out, uint64_t bytes, struct tc_error *error) {
    struct statvfs space;
    if (out->stream || fstatvfs(out->fd, &space) != 0 || space.f_blocks == 0)
        return true;
    uint64_t blocks = geteuid() == 0 ? space.f_bfree : space.f_bavail;
    uint64_t available = blocks * space.f_frsize;
    if (bytes <= available)
        return true;
    tc_fail(error, TC_IO, "no-space", "not enough space for the output (%llu bytes, %llu free)",
            (unsigned long long)bytes, (unsigned long long)available);
    error->errnum = ENOSPC;
    return tc_error_in_file(error, out->publish->path);
}

static bool write_failed(struct tc_outfile *out, int errnum, struct tc_error *error) {
    tc_fail_errno(error, errnum, errnum == ENOSPC ? "no-space" : "write", "cannot write");
    return tc_error_in_file(error, out->publish->path);
}

static bool write_through(struct tc_outfile *out, uint64_t offset, const void *bytes, size_t length,
                          struct tc_error *error) {
    const char *at = bytes;
    if (out->counting) {
        out->end = offset + length > out->end ? offset + length : out->end;
        return true;
    }
    while (length) {
        size_t step = length < LARGEST_TRANSFER ? length : LARGEST_TRANSFER;
        ssize_t done = out->stream ? write(out->fd, at, step)
                                   : pwrite(out->fd, at, step, (off_t)(out->base + offset));
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return write_failed(out, errno, error);
        at += done;
        offset += (uint64_t)done;
        length -= (size_t)done;
        out->end = offset > out->end ? offset : out->end;
    }
    return true;
}

static bool flush(struct tc_outfile *out, struct tc_error *error) {
    size_t length = out->buffered;
    out->buffered = 0;
    return length == 0 || write_through(out, out->buffer_at, out->buffer, length, error);
}

/* Room in the buffer for `length` bytes at `offset`; flushes first where they do
 * not follow what is buffered, or do not fit. */
static char *buffer_room(struct tc_outfile *out, uint64_t offset, size_t length,
                         struct tc_error *error) {
    if (!out->buffer && !(out->buffer = malloc(BUFFER_BYTES))) {
        tc_fail_memory(error);
        return NULL;
    }
    bool follows = out->buffered && offset == out->buffer_at + out->buffered;
    if (!follows || length > BUFFER_BYTES - out->buffered) {
        if (!flush(out, error))
            return NULL;
        out->buffer_at = offset;
    }
    return out->buffer + out->buffered;
}

bool tc_outfile_write_at(struct tc_outfile *out, uint64_t offset, const void *bytes, size_t length,
                         struct tc_error *error) {
    if (length >= SMALL_WRITE)
        return flush(out, error) && write_through(out, offset, bytes, length, error);
    /* The bytes replace some that are still in the buffer. */
    if (offset >= out->buffer_at && offset - out->buffer_at + length <= out->buffered) {
        memcpy(out->buffer + (offset - out->buffer_at), bytes, length);
        return true;
    }
    char *room = buffer_room(out, offset, length, error);
    if (!room)
        return false;
    memcpy(room, bytes, length);
    out->buffered += length;
    return true;
}

bool tc_outfile_write(struct tc_outfile *out, const void *bytes, size_t length,
                      struct tc_error *error) {
    if (!tc_outfile_write_at(out, out->position, bytes, length, error))
        return false;
    out->position += length;
    return true;
}

void tc_outfile_skip(struct tc_outfile *out, uint64_t bytes) {
    out->position += bytes;
    out->end = out->position > out->end ? out->position : out->end;
}

bool tc_outfile_count(struct tc_outfile *out, uint64_t *bytes, struct tc_error *error) {
    bool ok = flush(out, error);
    *bytes = out->end;
    return ok;
}

/* Whether the kernel cannot copy between these files, rather than failed to. */
static bool copy_unsupported(int errnum) {
    return errnum == EXDEV || errnum == EINVAL || errnum == ENOSYS || errnum == EOPNOTSUPP ||
           errnum == EBADF || errnum == EPERM || errnum == ETXTBSY ||
           errnum == EIO; /* reading and writing will show on which side */
}

/* Lets the kernel copy as much as it can; the rest is left in *length. */
static bool kernel_copy(struct tc_outfile *out, int fd, uint64_t *offset, uint64_t *length,
                        struct tc_error *error) {
    while (*length) {
        off_t from = (off_t)*offset;
        off_t to = (off_t)(out->base + out->position);
        size_t step = *length < LARGEST_TRANSFER ? *length : LARGEST_TRANSFER;
        ssize_t done = copy_file_range(fd, &from, out->fd, &to, step, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && !copy_unsupported(errno))
            return write_failed(out, errno, error);
        if (done <= 0)
            return true;
        *offset += (uint64_t)done;
        *length -= (uint64_t)done;
        out->position += (uint64_t)done;
        out->end = out->position > out->end ? out->position : out->end;
    }
    return true;
}

bool tc_outfile_copy(struct tc_outfile *out, struct tc_input *input, uint64_t offset,
                     uint64_t length, struct tc_error *error) {
    tc_input_expect(input, offset, length);
    if (!input->source && !out->stream && length >= BUFFER_BYTES) {
        if (!flush(out, error))
            return false;
        int fd = tc_input_acquire(input, error);
        if (fd < 0)
            return false;
        bool ok = kernel_copy(out, fd, &offset, &length, error);
        tc_input_release(input);
        if (!ok)
            return false;
    }
    while (length) {
        size_t step = length < BUFFER_BYTES ? length : BUFFER_BYTES;
        char *room = buffer_room(out, out->position, step, error);
        if (!room || !tc_input_read(input, offset, room, step, error))
            return false;
        out->buffered += step;
        out->position += step;
        offset += step;
        length -= step;
    }
    return true;
}

/* Some file systems report only on close that what was written could not be kept. */
static bool close_written(struct tc_outfile *out) {
    int fd = out->place == TC_OUTFILE_UNNAMED ? fcntl(out->fd, F_DUPFD_CLOEXEC, 3) : out->fd;
    if (out->place != TC_OUTFILE_UNNAMED)
        out->fd = -1;
    /* Without a second descriptor this shows when the file is synced, as on other file systems. */
    return fd < 0 || close(fd) == 0;
}

bool tc_outfile_seal(struct tc_outfile *out, struct tc_error *error) {
    bool ok = flush(out, error);
    if (ok && !out->stream) {
        bool standard = out->publish->standard_output;
        if (standard ? lseek(out->fd, (off_t)(out->base + out->end), SEEK_SET) < 0
                     : fchmod(out->fd, out->mode) != 0)
            ok = write_failed(out, errno, error);
        if (ok && !out->publish->options.no_sync && fsync(out->fd) != 0)
            ok = write_failed(out, errno, error);
    }
    if (!close_written(out) && ok)
        ok = write_failed(out, errno, error);
    free(out->buffer);
    out->buffer = NULL;
    return ok;
}
