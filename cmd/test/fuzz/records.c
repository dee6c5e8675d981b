/*
 * The fuzz target of what lies in TFRecord files, without their checksums in the way: the input's
 * parts (parts.h) become records with right ones.
 */

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/parts.h"
#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/base/text.h"
#include "core/io/deflate.h"
#include "formats/registry.h"

static void add_checksum(struct tc_buffer *file, const void *bytes, size_t length) {
    unsigned char little[4];
    uint32_t crc = tc_crc32c(0, bytes, length);
    tc_store(little, (crc >> 15 | crc << 17) + 0xA282EAD8u, sizeof little);
    tc_buffer_add(file, little, sizeof little);
}

void fuzz_records(const unsigned char *bytes, size_t length) {
    struct part parts[PARTS_MOST];
    struct tc_error error = {0};
    struct tc_buffer file = {0};
    size_t count = parts_split(bytes, length, parts);
    for (size_t i = 0; i < count; i++) {
        unsigned char size[8];
        tc_store(size, parts[i].length, sizeof size);
        tc_buffer_add(&file, size, sizeof size);
        add_checksum(&file, size, sizeof size);
        tc_buffer_add(&file, parts[i].bytes, parts[i].length);
        add_checksum(&file, parts[i].bytes, parts[i].length);
    }
    const char *path = fuzz_file((const unsigned char *)file.bytes, file.length);
    tc_buffer_release(&file);
    fuzz_digest_and_verify(path, tc_registry_named("tfrecord"), &fuzz_options, &error);
}
