#include "cmd/test/fuzz/parts.h"

#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/path.h"
#include "core/base/text.h"

#define MARK "@@@ "
#define MARK_BYTES (sizeof MARK - 1)

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

size_t parts_split(const unsigned char *bytes, size_t length, struct part parts[PARTS_MOST]) {
    size_t count = 0;
    size_t at = find_mark(bytes, length, 0);
    while (count < PARTS_MOST && at < length) {
        struct part *part = &parts[count];
        size_t start = at + MARK_BYTES;
        const unsigned char *end = memchr(bytes + start, '\n', length - start);
        size_t name = end ? (size_t)(end - bytes) - start : length - start;
        size_t content = end ? start + name + 1 : length;
        at = find_mark(bytes, length, content);
        bool more = at < length && at > content;
        if (name > PART_NAME || memchr(bytes + start, '\0', name))
            continue;
        memcpy(part->name, bytes + start, name);
        part->name[name] = '\0';
        part->bytes = bytes + content;
        part->length = at - content - more;
        count++;
    }
    return count;
}

const char *parts_write(const unsigned char *bytes, size_t length, struct part parts[PARTS_MOST]) {
    const char *first = NULL;
    size_t count = parts_split(bytes, length, parts);
    fuzz_empty_folder();
    for (size_t i = 0; i < count; i++)
        if (tc_path_is_plain(tc_text_of(parts[i].name))) {
            fuzz_write(parts[i].name, parts[i].bytes, parts[i].length);
            first = first ? first : parts[i].name;
        }
    return first;
}
