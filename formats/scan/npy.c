/*
 * Scans .npy arrays. The data behind a header counts as numbers or text only where the
 * reader of .npy files knows its size. Anything else counts as Python objects, which
 * numpy loads by a pickle, since Python may read what that reader refuses.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/little_endian.h"
#include "core/io/input.h"
#include "formats/numpy/npy.h"
#include "formats/scan/walk.h"

/* An array that starts at `base` of the region. */
struct array {
    const struct scan_view *view;
    uint64_t base;
    uint64_t data; /* where its data starts, whether or not the header can be read */
    bool seen;
    bool plain; /* its data is not a pickle */
    uint64_t size;
};

static bool fetch(void *context, uint64_t offset, void *buffer, size_t length,
                  struct tc_error *error) {
    const struct array *array = context;
    return tc_input_read(array->view->input, array->base + offset, buffer, length, error);
}

/* Finds where the header ends by the length in its prefix. */
static bool find_data(struct array *array, struct tc_error *error) {
    unsigned char prefix[12] = {0};
    uint64_t left = array->view->input->size - array->base;
    size_t shown = left < sizeof prefix ? left : sizeof prefix;
    if (!fetch(array, 0, prefix, shown, error))
        return false;
    array->seen = shown >= 10 && memcmp(prefix, "\x93NUMPY", 6) == 0;
    unsigned start = prefix[6] == 1 ? 10 : 12;
    uint64_t length = start + tc_load(prefix + 8, start - 8);
    array->data = array->base + (length < left ? length : left);
    return true;
}

static bool read_header(struct array *array, struct tc_error *error) {
    const struct scan_view *view = array->view;
    struct npy_header header;
    struct tc_error *damage = calloc(1, sizeof *damage);
    if (!damage)
        return tc_fail_memory(error);
    bool read = npy_header_read(view->reader, fetch, array, view->input->size - array->base,
                                array->base, &header, damage);
    array->plain = read && !header.objects && !header.unmeasured;
    array->size = header.nbytes;
    bool ok = read || scan_note_broken(view->scan, damage, error);
    free(damage);
    return ok;
}

bool scan_npy(const struct scan_view *view, uint64_t *behind, struct tc_error *error) {
    uint64_t end = view->input->size;
    *behind = 0;
    while (*behind < end) {
        struct array array = {.view = view, .base = *behind};
        if (!find_data(&array, error))
            return false;
        if (!array.seen)
            break;
        if (!read_header(&array, error))
            return false;
        if (array.plain) {
            *behind = array.data + array.size;
            continue;
        }
        uint64_t pickled;
        if (!scan_pickles(view, array.data, &pickled, error))
            return false;
        /* Neither numbers nor a pickle: it is not known what it is. */
        if (pickled == array.data) {
            scan_note(view->scan, "npy", "an array of objects without a pickle, or cut short");
            *behind = 0;
            return true;
        }
        *behind = pickled;
    }
    return true;
}
