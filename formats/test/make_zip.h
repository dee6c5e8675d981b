/* Zip archives for tests, made without formats/zip/write.h. */
#ifndef TCONV_FORMATS_TEST_MAKE_ZIP_H
#define TCONV_FORMATS_TEST_MAKE_ZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/text.h"

struct test_member {
    const char *name;
    const void *bytes;
    size_t length;
    bool deflate; /* else it is stored */
};

/* Adds an archive to the buffer; false where that fails. */
bool test_make_zip(struct tc_buffer *zip, const struct test_member *members, size_t count);

#endif
