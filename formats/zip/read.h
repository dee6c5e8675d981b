/*
 * A strict reader of zip archives. It accepts only what every other reader would
 * read in the same way: one end record, a directory that ends where the end record
 * begins, local headers that agree with it, members that don't overlap, nothing
 * before the first.
 *
 * libzip is not used here: it does not say where a member's data lies, and accepts
 * flags, sizes and names that other programs read differently.
 *
 * An opened archive does not change, so that several threads may use it, each with
 * a zip_stream of its own.
 */
#ifndef TCONV_FORMATS_ZIP_READ_H
#define TCONV_FORMATS_ZIP_READ_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/decoder.h"
#include "core/io/deflate.h"
#include "core/io/input.h"

/* The methods that can be read; a member of any other can only be listed. */
enum zip_method { ZIP_STORED = 0, ZIP_DEFLATED = 8, ZIP_BZIP2 = 12, ZIP_LZMA = 14 };

struct zip_member {
    struct tc_text name;
    uint64_t data;   /* where its bytes lie in the file */
    uint64_t stored; /* how many bytes it has there */
    uint64_t size;   /* unpacked */
    uint64_t local;  /* where its local header is */
    uint32_t crc;
    uint16_t flags;
    uint16_t method;
};

struct zip {
    struct zip_member *members; /* in the directory's order */
    size_t count;
    char *directory; /* the members' names, from malloc */
};

/* Where the directory lies, as the records at the file's end say. */
bool zip_find_directory(struct tc_input *input, uint64_t *offset, uint64_t *size,
                        struct tc_error *error);
bool zip_open_archive(struct zip *zip, struct tc_reader *reader, struct tc_error *error);
void zip_release(struct zip *zip);
/* Fails with TC_UNSUPPORTED where a member is encrypted, or packed by a method that
 * tconv does not know, so that it can only be listed. */
bool zip_member_readable(const struct zip_member *member, struct tc_error *error);
/* The same for all members, for files that need each of them. */
bool zip_all_readable(const struct zip *zip, struct tc_error *error);

/* Reads bytes [offset, offset + length) of an unpacked member. A stored member is
 * read in place. A packed one is unpacked on from where the stream stands, or from
 * the start where that is too far; its size and CRC are checked when its end is
 * reached. All zero at first. */
struct zip_stream {
    const struct zip_member *member; /* NULL: none yet */
    union {
        struct tc_inflater inflater;
        struct tc_decoder decoder; /* of bzip2 and LZMA */
    } packed;                      /* by the member's method */
    uint64_t position;
    uint32_t crc;
};
bool zip_stream_read(struct zip_stream *stream, struct tc_input *input,
                     const struct zip_member *member, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error);
void zip_stream_release(struct zip_stream *stream);
/* The whole of a small member, checked, with a NUL behind it, in the reader's arena. */
char *zip_load(struct tc_reader *reader, const struct zip_member *member, struct tc_error *error);

/* Reads a member to its end, and checks its size and CRC. */
bool zip_member_check(struct tc_input *input, const struct zip_member *member,
                      struct tc_error *error);
/* Checks a stored member's CRC. */
bool zip_verify_stored(struct tc_input *input, const struct zip_member *member,
                       struct tc_error *error);

#endif
