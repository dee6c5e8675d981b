/* A zip archive as libzip sees it. In a file of its own, since libzip's names are also those of
 * formats/zip/read.h. */
#ifndef TCONV_FORMATS_TEST_LIBZIP_H
#define TCONV_FORMATS_TEST_LIBZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct libzip_member {
    const char *name; /* libzip's, until the archive is closed */
    uint64_t size;
    uint64_t stored;
    uint32_t crc;
    uint16_t method;
};

/* The bytes must stay until libzip_close. NULL: libzip refuses them. */
struct libzip *libzip_open(const void *bytes, size_t length);
size_t libzip_count(const struct libzip *libzip);
/* False where libzip does not know each of the fields. */
bool libzip_member(struct libzip *libzip, size_t index, struct libzip_member *member);
/* Reads a member to its end, which checks its CRC; `length` bytes are expected, and `buffer` has
 * room for one more. False where libzip can't read it; *got is what there was, at most length + 1.
 */
bool libzip_read(struct libzip *libzip, size_t index, unsigned char *buffer, size_t length,
                 size_t *got);
/* Why the last of these functions failed. */
const char *libzip_error(const struct libzip *libzip);
void libzip_close(struct libzip *libzip);

#endif
