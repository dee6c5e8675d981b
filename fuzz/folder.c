/*
 * The fuzz target of everything that lies in several files: an index and its shards, external data,
 * a sidecar. The input has them one after the other, each behind a line "@@@ NAME"; the first is
 * the one that is opened. A line end before such a line is not part of the file.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/path.h"
#include "core/base/text.h"
#include "fuzz/fuzz.h"

#define MARK "@@@ "
#define MARK_BYTES (sizeof MARK - 1)
#define MOST_FILES 16
#define LONGEST_NAME 100

/* Where the next mark at the start of a line is, from `at` on; the end where there is none. */
static size_t find_mark(const unsigned char *bytes, size_t length, size_t at) {
    for (; at < length; at++) {
        const unsigned char *found = memmem(bytes + at, length - at, MARK, MARK_BYTES);
        if (!found)
            return length;
        at = (size_t)(found - bytes);
        if (at == 0 || bytes[at - 1] == '\n')
            return at;
    }
    return length;
}

/* Writes the files, and copies the first one's name; false where there are none. */
static bool unpack(const unsigned char *bytes, size_t length, char first[LONGEST_NAME + 1]) {
    size_t at = find_mark(bytes, length, 0);
    first[0] = '\0';
    for (unsigned files = 0; files < MOST_FILES && at < length; files++) {
        char name[LONGEST_NAME + 1];
        size_t start = at + MARK_BYTES;
        const unsigned char *end = memchr(bytes + start, '\n', length - start);
        size_t name_length = end ? (size_t)(end - bytes) - start : length - start;
        size_t content = end ? start + name_length + 1 : length;
        at = find_mark(bytes, length, content);
        if (name_length > LONGEST_NAME)
            continue;
        memcpy(name, bytes + start, name_length);
        name[name_length] = '\0';
        if (strlen(name) != name_length || !tc_path_is_plain(tc_text_of(name)))
            continue;
        bool more = at < length && at > content;
        fuzz_write(name, bytes + content, at - content - more);
        if (!first[0])
            snprintf(first, LONGEST_NAME + 1, "%s", name);
    }
    return first[0];
}

void fuzz_folder(const unsigned char *bytes, size_t length) {
    char first[LONGEST_NAME + 1];
    struct tc_error error = {0};
    fuzz_empty_folder();
    if (!unpack(bytes, length, first))
        return;
    bool ok = fuzz_digest(fuzz_path(first), NULL, &fuzz_options, NULL, &error);
    fuzz_restart_clock();
    bool damaged = fuzz_is_damaged(fuzz_path(first), NULL, &fuzz_options);
    FUZZ_CHECK(ok || damaged, "verify does not find what is wrong with the files: %s",
               error.message);
}
