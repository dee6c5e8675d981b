/*
 * The directory of a zip archive, read strictly: accepted is only what every other
 * reader would read in the same way: one end record, a directory that ends where the end
 * record begins, local headers that agree with it, members that don't overlap, nothing
 * before the first.
 *
 * libzip is not used here: it does not say where a member's data lies, and accepts
 * flags, sizes and names that other programs read differently.
 */
#ifndef TCONV_FORMATS_ZIP_DIRECTORY_H
#define TCONV_FORMATS_ZIP_DIRECTORY_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"

/* The methods that can be read; a member of any other can only be listed. */
enum zip_method { ZIP_STORED = 0, ZIP_DEFLATED = 8, ZIP_BZIP2 = 12, ZIP_LZMA = 14 };

/* The flag of a member that nobody reads without a password. */
#define ZIP_ENCRYPTED 0x0001u

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

#endif
