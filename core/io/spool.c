#include "core/io/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/io/input.h"

#define MEMORY_LIMIT ((uint64_t)8 << 20)
/* The disk's free space is checked again after this many bytes, since other
 * programs write to it too. */
#define CHECK_EVERY ((uint64_t)64 << 20)

bool tc_spool_open(struct tc_spool *spool, uint64_t size, struct tc_error *error) {
    *spool = (struct tc_spool){.fd = -1, .size = size};
    if (size > MEMORY_LIMIT) {
        spool->fd = tc_tempfile(error);
        spool->open = spool->fd >= 0;
        if (spool->open && !tc_tempfile_check(spool->fd, 0, size, error))
            tc_spool_release(spool);
        return spool->open;
    }
    spool->memory = malloc(size ? size : 1);
    spool->open = spool->memory != NULL;
    return spool->open || tc_fail_memory(error);
}

bool tc_spool_add(struct tc_spool *spool, const void *bytes, size_t length,
                  struct tc_error *error) {
    if (length > spool->size - spool->filled)
        return tc_fail(error, TC_INTERNAL, "spool", "more bytes than were announced");
    if (spool->memory)
        memcpy(spool->memory + spool->filled, bytes, length);
    else if (spool->filled / CHECK_EVERY != (spool->filled + length) / CHECK_EVERY &&
             !tc_tempfile_check(spool->fd, spool->filled, spool->size - spool->filled, error))
        return false;
    else if (!tc_write_all(spool->fd, bytes, length, error))
        return false;
    spool->filled += length;
    return true;
}

bool tc_spool_read(const struct tc_spool *spool, uint64_t offset, void *buffer, size_t length,
                   struct tc_error *error) {
    if (spool->memory) {
        memcpy(buffer, spool->memory + offset, length);
        return true;
    }
    char *to = buffer;
    while (length) {
        ssize_t got = pread(spool->fd, to, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return tc_fail_errno(error, got ? errno : EIO, "read",
                                 "cannot read the temporary file");
        to += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return true;
}

void tc_spool_release(struct tc_spool *spool) {
    if (!spool->open)
        return;
    if (spool->fd >= 0)
        close(spool->fd);
    free(spool->memory);
    *spool = (struct tc_spool){.fd = -1};
}
