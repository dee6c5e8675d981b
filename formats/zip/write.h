/*
 * A writer of zip archives, stored or deflated: sizes and CRC are patched
 * into the local header behind the data (no data descriptors, which some
 * readers take offsets wrong by), zip64 only where a size needs it, members'
 * data aligned. Times are 1980-01-01: the same input gives the same bytes.
 */
#ifndef TCONV_FORMATS_ZIP_WRITE_H
#define TCONV_FORMATS_ZIP_WRITE_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/deflate.h"
#include "core/io/publish.h"

struct zip_written {
    struct tc_text name; /* must outlive the writer */
    uint64_t local;
    uint64_t stored;
    uint64_t size;
    uint32_t crc;
};

struct zip_writer {
    struct tc_outfile *out;
    int level; /* 0: stored */
    struct zip_written *members;
    size_t count;
    size_t capacity;
    bool wide; /* the current member's local header has zip64 sizes */
    struct tc_deflater deflater;
};

void zip_writer_init(struct zip_writer *writer, struct tc_outfile *out, int level);
void zip_writer_release(struct zip_writer *writer);

/* `size` is what will be written, so that zip64 is there when it is needed. */
bool zip_member_begin(struct zip_writer *writer, struct tc_text name, uint64_t size,
                      struct tc_error *error);
bool zip_member_write(struct zip_writer *writer, const void *bytes, size_t length,
                      struct tc_error *error);
/* Room for stored data, where an archive is only measured. */
void zip_member_skip(struct zip_writer *writer, uint64_t length);
bool zip_member_end(struct zip_writer *writer, struct tc_error *error);
/* The directory and the end records. */
bool zip_writer_finish(struct zip_writer *writer, struct tc_error *error);

#endif
