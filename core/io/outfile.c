/* Writing one output file (core/io/publish.h). */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/io/input.h"
#include "core/io/publish.h"

#define BUFFER_BYTES ((size_t)1 << 20)
/* Shorter copies are not worth a system call of their own. */
#define LEAST_KERNEL_COPY ((size_t)1 << 18)
/* Writes of this size or more are not copied into the buffer. */
#define SMALL_WRITE ((size_t)1 << 16)
#define LARGEST_TRANSFER (UINT64_C(1) << 30)
/* From this length on a copy is not kept back for the next to continue it. */
#define LONG_COPY (UINT64_C(32) << 20)
/* After so many bytes the disk is told to write them. */
#define EARLY_WRITE (UINT64_C(16) << 20)

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

/* Has the disk begin with what is written up to `end`, where it will be waited for: otherwise all
 * of a large file is left to the end, or to when memory runs short. Where that does not work, so
 * it is. */
static void start_writing(struct tc_outfile *out, uint64_t end) {
    if (out->stream || end < out->unsent + EARLY_WRITE || out->publish->options.no_sync)
        return;
    sync_file_range(out->fd, (off_t)(out->base + out->unsent), (off_t)(end - out->unsent),
                    SYNC_FILE_RANGE_WRITE);
    out->unsent = end;
}

/* Tells who follows the file that this part of it is written. */
static void note_written(struct tc_outfile *out, uint64_t from, uint64_t to) {
    struct tc_outfile_progress *progress = out->progress;
    if (!progress)
        return;
    pthread_mutex_lock(progress->lock);
    progress->rewritten |= from < progress->taken;
    if (from <= progress->solid && to > progress->solid)
        progress->solid = to;
    pthread_cond_broadcast(progress->changed);
    pthread_mutex_unlock(progress->lock);
}

static void note_sealed(struct tc_outfile *out) {
    struct tc_outfile_progress *progress = out->progress;
    if (!progress)
        return;
    pthread_mutex_lock(progress->lock);
    progress->solid = out->end;
    progress->sealed = true;
    pthread_cond_broadcast(progress->changed);
    pthread_mutex_unlock(progress->lock);
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
        note_written(out, offset, offset + (uint64_t)done);
        offset += (uint64_t)done;
        length -= (size_t)done;
        out->end = offset > out->end ? offset : out->end;
    }
    start_writing(out, offset);
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

/* Whether the kernel cannot copy between these files, rather than failed to. */
static bool copy_unsupported(int errnum) {
    return errnum == EXDEV || errnum == EINVAL || errnum == ENOSYS || errnum == EOPNOTSUPP ||
           errnum == EBADF || errnum == EPERM || errnum == ETXTBSY ||
           errnum == EIO; /* reading and writing will show on which side */
}

static void pass(struct tc_copy_run *run, uint64_t bytes) {
    run->from += bytes;
    run->to += bytes;
    run->length -= bytes;
}

/* Lets the kernel copy as much of the first `length` bytes as it can; *length is then the rest. */
static bool kernel_copy(struct tc_outfile *out, struct tc_copy_run *run, uint64_t *length,
                        struct tc_error *error) {
    int fd = tc_input_acquire(run->input, error);
    bool ok = fd >= 0;
    while (ok && *length) {
        off_t from = (off_t)(run->input->base + run->from);
        off_t to = (off_t)(out->base + run->to);
        size_t step = *length < LARGEST_TRANSFER ? *length : LARGEST_TRANSFER;
        ssize_t done = copy_file_range(fd, &from, out->fd, &to, step, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && !copy_unsupported(errno))
            ok = write_failed(out, errno, error);
        if (done <= 0)
            break;
        note_written(out, run->to, run->to + (uint64_t)done);
        pass(run, (uint64_t)done);
        *length -= (uint64_t)done;
        start_writing(out, run->to);
    }
    if (fd >= 0)
        tc_input_release(run->input);
    return ok;
}

/* How many of `length` bytes that come to `to` go into the buffer: as many as have room, and
 * where that is not all, up to the end of a block, so that the next write begins with one. */
static size_t buffer_step(const struct tc_outfile *out, uint64_t to, uint64_t length) {
    bool follows = out->buffered < BUFFER_BYTES && to == out->buffer_at + out->buffered;
    size_t room = BUFFER_BYTES - (follows ? out->buffered : 0);
    size_t over = (out->base + to + room) % TC_BLOCK_BYTES;
    return length <= room ? length : room > over ? room - over : room;
}

/* Copies the first `length` bytes of a run through the buffer. */
static bool buffer_copy(struct tc_outfile *out, struct tc_copy_run *run, uint64_t length,
                        struct tc_error *error) {
    while (length) {
        size_t step = buffer_step(out, run->to, length);
        char *room = buffer_room(out, run->to, step, error);
        if (!room || !tc_input_read(run->input, run->from, room, step, error))
            return false;
        out->buffered += step;
        pass(run, step);
        length -= step;
    }
    return true;
}

/*
 * Whether the kernel copies faster than reads and writes of a mebibyte do. On file systems on
 * disks it copies in pieces of 64 KiB: measured on ext4 and XFS (Linux 6.18), reads and writes take
 * 0.65 of the time, and of the processor's 0.7. On XFS and btrfs it shares blocks where source and
 * target lie alike in theirs. On a RAM disk, and where a server copies by itself, it is faster.
 */
static bool kernel_is_faster(const struct tc_outfile *out, bool alike) {
    struct statfs system;
    if (fstatfs(out->fd, &system) != 0)
        return true;
    switch (system.f_type) {
    case EXT4_SUPER_MAGIC:
        return false;
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
        return alike;
    default:
        return true;
    }
}

/* Has the kernel read further ahead than it would, of a file that is read from end to end. */
static bool read_ahead(struct tc_input *input, struct tc_error *error) {
    int fd = tc_input_acquire(input, error);
    if (fd < 0)
        return false;
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    tc_input_release(input);
    return true;
}

/* Makes the copy of the first `length` bytes of a run. Where the two places lie alike in a block,
 * what is before the first whole block goes through the buffer, and the file system may share the
 * blocks that follow. */
static bool copy_now(struct tc_outfile *out, struct tc_copy_run *run, uint64_t length,
                     struct tc_error *error) {
    uint64_t to = out->base + run->to;
    bool alike = (run->input->base + run->from - to) % TC_BLOCK_BYTES == 0;
    if (!run->input->source && !out->stream && length >= LEAST_KERNEL_COPY) {
        if (!read_ahead(run->input, error))
            return false;
        if (kernel_is_faster(out, alike)) {
            uint64_t edge = alike ? -to % TC_BLOCK_BYTES : 0;
            length -= edge;
            if (!buffer_copy(out, run, edge, error) || !flush(out, error) ||
                !kernel_copy(out, run, &length, error))
                return false;
        }
    }
    return buffer_copy(out, run, length, error);
}

/* Makes the copy that was kept back, if there is one. */
static bool settle(struct tc_outfile *out, struct tc_error *error) {
    return out->copy.length == 0 || copy_now(out, &out->copy, out->copy.length, error);
}

bool tc_outfile_write_at(struct tc_outfile *out, uint64_t offset, const void *bytes, size_t length,
                         struct tc_error *error) {
    if (!settle(out, error))
        return false;
    if (length == 0) /* there may be no bytes to point to */
        return true;
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

bool tc_outfile_write_apart(struct tc_outfile *out, uint64_t offset, const void *bytes,
                            size_t length, struct tc_error *error) {
    return settle(out, error) && flush(out, error) &&
           write_through(out, offset, bytes, length, error);
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
    bool ok = settle(out, error) && flush(out, error);
    *bytes = out->end;
    return ok;
}

bool tc_outfile_copy(struct tc_outfile *out, struct tc_input *input, uint64_t offset,
                     uint64_t length, struct tc_error *error) {
    struct tc_copy_run *kept = &out->copy;
    const struct tc_copy_run run = {input, offset, out->position, length};
    tc_input_expect(input, offset, length);
    bool follows = kept->length && kept->input == input && kept->from + kept->length == offset &&
                   kept->to + kept->length == run.to;
    if (!follows && !settle(out, error))
        return false;
    if (follows)
        kept->length += length;
    else
        *kept = run;
    tc_outfile_skip(out, length);
    /* A long one is made at once but for its end, so that the next continues in the same block. */
    if (out->stream)
        return settle(out, error);
    uint64_t rest = (out->base + out->position) % TC_BLOCK_BYTES;
    return kept->length < LONG_COPY + rest || copy_now(out, kept, kept->length - rest, error);
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
    bool ok = settle(out, error) && flush(out, error);
    if (ok)
        note_sealed(out);
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
