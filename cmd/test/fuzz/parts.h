/*
 * Several files or members in one input, one after the other, each behind a line "@@@ NAME". A line
 * end before such a line is not part of what comes before it. So a change of length in one of them
 * leaves the others as they are, which no header with lengths would do.
 */
#ifndef TCONV_CMD_TEST_FUZZ_PARTS_H
#define TCONV_CMD_TEST_FUZZ_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#define PARTS_MOST 16
#define PART_NAME 100

struct part {
    char name[PART_NAME + 1];
    const unsigned char *bytes;
    size_t length;
};

/* Takes an input apart, and returns how many parts it has; those beyond PARTS_MOST and those whose
 * name is longer than PART_NAME are left out. */
size_t parts_split(const unsigned char *bytes, size_t length, struct part parts[PARTS_MOST]);
/* The same, and writes each part as a file of an emptied folder (fuzz.h), if its name is that of
 * one. Returns the name of the first file, which is in `parts`; NULL: there is none. */
const char *parts_write(const unsigned char *bytes, size_t length, struct part parts[PARTS_MOST]);

#endif
