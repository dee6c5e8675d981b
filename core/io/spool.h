/*
 * Holds bytes that come in sequence but are read in another order: up to 8 MiB in
 * memory, more in an unlinked temporary file. Several threads may read once all
 * bytes were added.
 */
#ifndef TCONV_CORE_IO_SPOOL_H
#define TCONV_CORE_IO_SPOOL_H

#include "core/base/error.h"

struct tc_spool {
    unsigned char *memory;
    int fd; /* -1: in memory */
    uint64_t size;
    uint64_t filled;
    bool open;
};

/* For exactly `size` bytes. Call tc_spool_release where this succeeded. */
bool tc_spool_open(struct tc_spool *spool, uint64_t size, struct tc_error *error);
bool tc_spool_add(struct tc_spool *spool, const void *bytes, size_t length, struct tc_error *error);
bool tc_spool_read(const struct tc_spool *spool, uint64_t offset, void *buffer, size_t length,
                   struct tc_error *error);
void tc_spool_release(struct tc_spool *spool);

#endif
