/*
 * Quantised tensors in the items of a file: integers whose metadata says how their values are
 * computed (formats/torch/tensor.c reads them so). They are written as quantised tensors of torch.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "formats/torch/pickler.h"

/* The schemes that torch's own function for them takes. */
static const struct scheme {
    const char *name;
    const char *global;
    bool channels;
} schemes[] = {
    {"per_tensor_affine", "torch\nper_tensor_affine", false},
    {"per_channel_affine", "torch\nper_channel_affine", true},
    {"per_channel_affine_float_qparams", "torch\nper_channel_affine_float_qparams", true},
};

static const struct scheme *find_scheme(const struct tc_item *item) {
    const struct tc_text *name = tc_metadata_find(item->metadata, TC_TEXT("quant.scheme"));
    bool fits = item->dtype == TC_I8 || item->dtype == TC_U8 || item->dtype == TC_I32;
    for (size_t i = 0; name && fits && i < sizeof schemes / sizeof *schemes; i++)
        if (tc_text_equal(*name, tc_text_of(schemes[i].name)))
            return &schemes[i];
    return NULL;
}

/* A number in an item's metadata; false where there is none. */
static bool read_number(const struct tc_item *item, const char *key, bool integer, double *real,
                        int64_t *whole) {
    const struct tc_text *text = tc_metadata_find(item->metadata, tc_text_of(key));
    char copy[64];
    char *end = copy;
    if (!text || text->length == 0 || text->length >= sizeof copy)
        return false;
    memcpy(copy, text->bytes, text->length);
    copy[text->length] = 0;
    errno = 0;
    if (integer)
        *whole = strtoll(copy, &end, 10);
    else
        *real = strtod(copy, &end);
    return errno == 0 && end == copy + text->length && (integer || isfinite(*real));
}

/* The item NAME.ENDING, where it has a number for each channel; NULL: there is none. */
static const uint32_t *find_part(const struct tc_item *items, const struct tc_name_map *names,
                                 const struct tc_item *item, int64_t axis, const char *ending) {
    struct tc_buffer name = {0};
    tc_buffer_add_text(&name, item->name);
    tc_buffer_add_string(&name, ending);
    const uint32_t *found =
        name.failed ? NULL : tc_name_map_find(names, (struct tc_text){name.bytes, name.length});
    tc_buffer_release(&name);
    return found && items[*found].rank == 1 && !items[*found].metadata &&
                   items[*found].shape[0] == item->shape[axis]
               ? found
               : NULL;
}

static bool read_how(const struct tc_item *items, const struct tc_name_map *names,
                     const struct tc_item *item, const struct scheme *scheme,
                     struct torch_quantised *how) {
    *how = (struct torch_quantised){.scheme = scheme->global, .channels = scheme->channels};
    if (!scheme->channels)
        return read_number(item, "quant.scale", false, &how->scale, NULL) &&
               read_number(item, "quant.zero_point", true, NULL, &how->zero_point);
    if (!read_number(item, "quant.axis", true, NULL, &how->zero_point) || how->zero_point < 0 ||
        how->zero_point >= item->rank)
        return false;
    const uint32_t *scales = find_part(items, names, item, how->zero_point, ".scales");
    const uint32_t *zeros = find_part(items, names, item, how->zero_point, ".zero_points");
    if (!scales || !zeros || !tc_dtype_is_float(items[*scales].dtype))
        return false;
    how->scales = *scales;
    how->zero_points = *zeros;
    return true;
}

bool torch_find_quantised(const struct tc_item *items, size_t count,
                          const struct tc_name_map *names, struct tc_arena *arena,
                          struct torch_slot *slots, struct tc_error *error) {
    for (size_t i = 0; i < count; i++) {
        const struct scheme *scheme = find_scheme(&items[i]);
        struct torch_quantised found;
        if (!scheme || !read_how(items, names, &items[i], scheme, &found))
            continue;
        struct torch_quantised *how = tc_arena_alloc(arena, sizeof *how, error);
        if (!how)
            return false;
        *how = found;
        slots[i].quantised = how;
        if (how->channels)
            slots[how->scales].part = slots[how->zero_points].part = true;
    }
    return true;
}

bool torch_has_quantised(const struct tc_item *items, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (find_scheme(&items[i]))
            return true;
    return false;
}
