/*
 * A writer of zip archives, stored or deflated. Sizes and CRC are written into the
 * local header once the data is there, so that there are no data descriptors, from
 * which some readers compute wrong offsets. zip64 is used only where a size needs
 * it, and members' data is aligned. All times are 1980-01-01, so that the same
 * input gives the same bytes.
 *
 *     zip_writer_init → (zip_member_begin → zip_member_write … → zip_member_end) … →
 *     zip_writer_finish → zip_writer_release, also after a failure
 */
#ifndef TCONV_FORMATS_ZIP_WRITE_H
#define TCONV_FORMATS_ZIP_WRITE_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/chunk_pipe.h"
#include "core/io/deflate.h"
#include "core/io/publish.h"

struct zip_written {
    struct tc_text name; /* must outlive the writer */
    uint64_t local;      /* where its local header is */
    uint64_t stored;     /* bytes in the file */
    uint64_t size;       /* unpacked */
    uint32_t crc;
};

struct zip_writer {
    struct tc_outfile *out;
    int level; /* 0: stored */
    uint64_t alignment;
    struct zip_written *members;
    size_t count;
    size_t capacity;
    bool wide; /* the current member's local header has zip64 sizes */
    struct tc_deflater deflater;
    unsigned char *packed; /* TC_DEFLATE_ROOM bytes, where members are deflated */
};

/* An extra field holds the padding, and has less than 64 KiB. */
#define ZIP_MOST_ALIGNMENT UINT64_C(32768)

/* Data is aligned to `alignment`, and to 64 at least. */
void zip_writer_init(struct zip_writer *writer, struct tc_outfile *out, int level,
                     uint64_t alignment);
void zip_writer_release(struct zip_writer *writer);

/* `size` is how many bytes will be written, which decides whether the local header
 * needs zip64 fields. What is aligned comes behind the first `lead` bytes. */
bool zip_member_begin(struct zip_writer *writer, struct tc_text name, uint64_t size, size_t lead,
                      struct tc_error *error);
bool zip_member_write(struct zip_writer *writer, const void *bytes, size_t length,
                      struct tc_error *error);
/* The same of a chunk that has its CRC, and is packed where members are deflated. */
bool zip_member_write_chunk(struct zip_writer *writer, const struct tc_chunk *chunk,
                            struct tc_error *error);
/* Leaves room for stored data, where an archive is only measured (core/plan/measure.h). */
void zip_member_skip(struct zip_writer *writer, uint64_t length);
bool zip_member_end(struct zip_writer *writer, struct tc_error *error);
/* Writes the directory and the end records. */
bool zip_writer_finish(struct zip_writer *writer, struct tc_error *error);

#endif
