#include "cmd/test/fuzz/samples.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"

/* A file in memory with these bytes, which stays open. */
static void keep(const struct tc_buffer *bytes, char path[64]) {
    int file = memfd_create("sample", MFD_CLOEXEC);
    FUZZ_CHECK(!bytes->failed && file >= 0 &&
                   write(file, bytes->bytes, bytes->length) == (ssize_t)bytes->length,
               "a sample can't be written");
    snprintf(path, 64, "/proc/self/fd/%d", file);
}

const char *sample_named(void) {
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"author\":\"nobody\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"layers.0.weight\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
        "\"layers.1.weight\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[32,40]},"
        "\"layers.1.bias\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[40,48]},"
        "\"empty\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[48,48]},"
        "\"nan\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[48,56]}}";
    static char path[64];
    if (!path[0]) {
        struct tc_buffer file = {0};
        unsigned char prefix[8];
        unsigned char data[56] = {0};
        memset(data + 48, 0xFF, 8);
        tc_store(prefix, sizeof header - 1, sizeof prefix);
        tc_buffer_add(&file, prefix, sizeof prefix);
        tc_buffer_add_string(&file, header);
        tc_buffer_add(&file, data, sizeof data);
        keep(&file, path);
        tc_buffer_release(&file);
    }
    return path;
}

const char *sample_numbered(void) {
    static const char header[] = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }";
    static char path[64];
    if (!path[0]) {
        struct tc_buffer file = {0};
        for (int i = 0; i < 3; i++) {
            tc_buffer_add(&file, "\x93NUMPY\1\0\x76\0", 10);
            tc_buffer_addf(&file, "%-117s\n", header);
            tc_buffer_add(&file, "\1\2\3\4", 4);
        }
        keep(&file, path);
        tc_buffer_release(&file);
    }
    return path;
}
