/*
 * The fuzz target of a format: opens a file as that format and reads all of
 * it. FORMAT is the backend's variable, given by the build. Whatever the
 * bytes, the outcome is an error or values, within the limits.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/digest.h"
#include "formats/registry.h"

extern const struct tc_backend FORMAT;

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t length) {
    static int file = -1;
    static char path[64];
    struct tc_error error = {0};
    /* Small limits: what they bound is tested elsewhere, and costs time here. */
    const struct tc_format_options options = {
        .limits = {.tensors = 10000, .memory = 64 << 20, .made = 16 << 20, .pickle = 1 << 20},
        .npy_void = TC_BF16,
        .pickle_inert = length & 1};
    if (file < 0) {
        file = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, bytes, length, 0) != (ssize_t)length)
        abort();
    struct tc_reader *reader = tc_registry_open(path, &FORMAT, &options, &error);
    if (reader) {
        struct tc_digest digest = {0};
        struct tc_buffer text = {0};
        if (tc_digest_make(&digest, reader, &error))
            tc_digest_print(&digest, reader, &text, &error);
        tc_buffer_release(&text);
        tc_digest_release(&digest);
        tc_reader_close(reader);
    }
    /* A failure says why. */
    if (error.class != TC_OK && (!error.code || !error.message[0]))
        abort();
    return 0;
}
