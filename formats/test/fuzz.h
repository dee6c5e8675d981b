/* What the fuzz targets share: the bytes as a file. */
#ifndef TCONV_FORMATS_TEST_FUZZ_H
#define TCONV_FORMATS_TEST_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The limits are small, since large files cost time here; limits are tested elsewhere. */
#define FUZZ_LIMITS                                                                                \
    { .tensors = 10000, .memory = 64 << 20, .made = 16 << 20, .pickle = 1 << 20 }

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

/* The path of a file that holds these bytes; it is the same file in every run. */
static inline const char *fuzz_file(const unsigned char *bytes, size_t length) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes, length, 0) != (ssize_t)length)
        abort();
    return path;
}

#endif
