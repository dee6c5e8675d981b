/*
 * The fuzz target of everything that lies in several files: an index and its shards, external data,
 * a sidecar. The input's parts (parts.h) are files; the first is the one that is opened.
 */

#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/parts.h"
#include "core/base/error.h"

void fuzz_folder(const unsigned char *bytes, size_t length) {
    struct part parts[PARTS_MOST];
    struct tc_error error = {0};
    const char *first = parts_write(bytes, length, parts);
    if (first)
        fuzz_digest_and_verify(fuzz_path(first), NULL, &fuzz_options, &error);
}
