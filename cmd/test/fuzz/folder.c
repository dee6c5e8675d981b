/*
 * The fuzz target of everything that lies in several files: an index and its shards, external data,
 * a sidecar. The input's parts (parts.h) are files; the first is the one that is opened.
 */
#include "cmd/test/fuzz/fuzz.h"
#include "cmd/test/fuzz/parts.h"
#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"

void fuzz_folder(const unsigned char *bytes, size_t length) {
    struct part parts[PARTS_MOST];
    struct tc_error error = {0};
    const char *first = NULL;
    size_t count = parts_split(bytes, length, parts);
    fuzz_empty_folder();
    for (size_t i = 0; i < count; i++)
        if (tc_path_is_plain(tc_text_of(parts[i].name))) {
            fuzz_write(parts[i].name, parts[i].bytes, parts[i].length);
            first = first ? first : parts[i].name;
        }
    if (first)
        fuzz_digest_and_verify(fuzz_path(first), NULL, &fuzz_options, &error);
}
