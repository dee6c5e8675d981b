/*
 * The members of a zip archive: reading them, unpacked, and checking their CRCs.
 *
 * An opened archive does not change, so that several threads may use it, each with
 * a zip_stream of its own.
 */
#ifndef TCONV_FORMATS_ZIP_READ_H
#define TCONV_FORMATS_ZIP_READ_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/io/decoder.h"
#include "core/io/deflate.h"
#include "core/io/input.h"
#include "formats/zip/directory.h"

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
