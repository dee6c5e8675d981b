/* The fuzz target of tconv scan: whatever the bytes, it comes to a verdict. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/scan.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length) {
    static int file = -1;
    static char path[64];
    struct tc_error error = {0};
    const struct tc_format_options options = {
        .limits = {.tensors = 10000, .memory = 64 << 20, .made = 16 << 20, .pickle = 1 << 20},
        .npy_void = TC_NONE};
    if (file < 0) {
        file = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes, length, 0) != (ssize_t)length)
        abort();
    struct scan scan;
    scan_init(&scan, &options);
    bool ok = scan_file(&scan, path, &error);
    if (ok != (error.class == TC_OK) || (!ok && (!error.code || !error.message[0])))
        abort();
    scan_release(&scan);
    return 0;
}
