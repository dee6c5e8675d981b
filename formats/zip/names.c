#include "formats/zip/names.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/io/input.h"
#include "formats/zip/directory.h"

#define ENTRY_BYTES 46u
#define LOCAL_BYTES 30u

/* The length of the directory's entry at `at`; 0 where there is none. */
static size_t entry_length(const unsigned char *bytes, size_t length, size_t at) {
    if (length - at < ENTRY_BYTES || memcmp(bytes + at, "PK\1\2", 4) != 0)
        return 0;
    size_t entry =
        ENTRY_BYTES + (size_t)(tc_load(bytes + at + 28, 2) + tc_load(bytes + at + 30, 2) +
                               tc_load(bytes + at + 32, 2));
    return entry <= length - at ? entry : 0;
}

/* Whether entries follow one another from `at` exactly to the end. */
static bool leads_to_end(const unsigned char *bytes, size_t length, size_t at) {
    size_t step = 1;
    while (at < length && (step = entry_length(bytes, length, at)) != 0)
        at += step;
    return at == length;
}

static void visit_directory(const unsigned char *bytes, size_t length, zip_name_visitor *visit,
                            void *context) {
    size_t at = 0;
    /* A long directory is entered somewhere in an entry, so that the next one is looked for. */
    while (at < length && !leads_to_end(bytes, length, at))
        at++;
    for (; at < length; at += entry_length(bytes, length, at))
        visit(context, (struct tc_text){(const char *)bytes + at + ENTRY_BYTES,
                                        (size_t)tc_load(bytes + at + 28, 2)});
}

void zip_visit_names(const struct tc_probe *probe, zip_name_visitor *visit, void *context) {
    struct tc_error ignored = {0};
    uint64_t offset;
    uint64_t size;
    if (probe->length < LOCAL_BYTES || memcmp(probe->head, "PK\3\4", 4) != 0)
        return;
    size_t first = (size_t)tc_load(probe->head + 26, 2);
    if (first <= probe->length - LOCAL_BYTES)
        visit(context, (struct tc_text){(const char *)probe->head + LOCAL_BYTES, first});
    if (!zip_find_directory(probe->input, &offset, &size, &ignored))
        return;
    size_t length = size < ZIP_NAMES_BYTES ? (size_t)size : ZIP_NAMES_BYTES;
    unsigned char *bytes = tc_input_load(probe->input, offset + size - length, length, &ignored);
    if (bytes)
        visit_directory(bytes, length, visit, context);
    free(bytes);
}
