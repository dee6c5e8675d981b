#include "formats/tensor_entry.h"

#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/tensor/metadata.h"
#include "core/tensor/metadata_json.h"
#include "core/tensor/shape.h"
#include "core/tensor/table.h"

enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, METADATA = 8, REQUIRED = 7 };

static bool read_dtype(struct tc_json *json, tc_dtype_set dtypes, struct tc_tensor *tensor) {
    struct tc_text text;
    if (!tc_json_string(json, &text))
        return false;
    enum tc_dtype dtype = tc_dtype_find(text);
    if (dtype == TC_NONE || !(dtypes & TC_SET(dtype))) {
        tc_fail(json->error, TC_UNSUPPORTED, "dtype", "dtype \"%.*s\" is not known here",
                tc_text_shown(text, 40), text.bytes);
        return tc_error_at(json->error, json->base + json->at);
    }
    tensor->dtype = (uint8_t)dtype;
    return true;
}

static bool read_shape(struct tc_json *json, struct tc_tensor *tensor) {
    uint64_t shape[TC_MAX_RANK];
    unsigned rank = 0;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (tc_json_element(json)) {
        if (rank == TC_MAX_RANK) {
            tc_fail(json->error, TC_UNSUPPORTED, "rank", "more than %u dimensions", TC_MAX_RANK);
            return tc_error_at(json->error, json->base + json->at);
        }
        if (!tc_json_unsigned(json, &shape[rank++]))
            return false;
    }
    if (json->failed)
        return false;
    uint64_t *copy = tc_arena_array(json->arena, rank, sizeof *copy, json->error);
    if (!copy)
        return false;
    memcpy(copy, shape, rank * sizeof *copy);
    tensor->shape = copy;
    tensor->rank = (uint8_t)rank;
    return true;
}

static bool read_offsets(struct tc_json *json, uint64_t offsets[2]) {
    size_t count = 0;
    tc_json_begin(json, TC_JSON_ARRAY);
    while (tc_json_element(json)) {
        if (count == 2)
            return tc_json_fail(json, "data_offsets has more than two numbers");
        if (!tc_json_unsigned(json, &offsets[count++]))
            return false;
    }
    if (!json->failed && count < 2)
        return tc_json_fail(json, "data_offsets has fewer than two numbers");
    return !json->failed;
}

static bool read_metadata(struct tc_json *json, struct tc_tensor *tensor) {
    struct tc_metadata metadata = {0};
    if (!tc_metadata_read(json, &metadata))
        return false;
    if (metadata.count == 0)
        return true;
    tensor->metadata = tc_arena_alloc(json->arena, sizeof metadata, json->error);
    if (!tensor->metadata)
        return false;
    *tensor->metadata = metadata;
    return true;
}

static unsigned field_of(struct tc_text key, bool with_metadata) {
    if (tc_text_equal(key, TC_TEXT("dtype")))
        return DTYPE;
    if (tc_text_equal(key, TC_TEXT("shape")))
        return SHAPE;
    if (tc_text_equal(key, TC_TEXT("data_offsets")))
        return OFFSETS;
    return with_metadata && tc_text_equal(key, TC_TEXT("metadata")) ? METADATA : 0;
}

static bool read_fields(struct tc_json *json, struct tc_tensor *tensor, uint64_t offsets[2],
                        tc_dtype_set dtypes, bool with_metadata) {
    unsigned seen = 0;
    struct tc_text key;
    struct tc_text ignored;
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        unsigned field = field_of(key, with_metadata);
        if (seen & field)
            return tc_json_fail(json, "a field occurs twice");
        seen |= field;
        bool ok = field == DTYPE      ? read_dtype(json, dtypes, tensor)
                  : field == SHAPE    ? read_shape(json, tensor)
                  : field == OFFSETS  ? read_offsets(json, offsets)
                  : field == METADATA ? read_metadata(json, tensor)
                                      : tc_json_skip(json, &ignored);
        if (!ok)
            return false;
    }
    if (!json->failed && (seen & REQUIRED) != REQUIRED)
        return tc_json_fail(json, "dtype, shape or data_offsets is missing");
    return !json->failed;
}

bool tensor_entry_read(struct tc_json *json, struct tc_reader *reader, struct tc_text name,
                       tc_dtype_set dtypes, bool with_metadata) {
    struct tc_tensor tensor = {.name = name};
    struct tc_error *error = json->error;
    uint64_t offsets[2] = {0, 0};
    uint64_t count;
    tc_table_expect(&reader->table, name);
    if (!read_fields(json, &tensor, offsets, dtypes, with_metadata) ||
        !tc_shape_measure(tensor.dtype, tensor.shape, tensor.rank, &count, &tensor.nbytes, error))
        return tc_error_in_tensor(error, name.bytes, name.length);
    tensor.offset = offsets[0];
    if (offsets[1] < offsets[0] || offsets[1] - offsets[0] != tensor.nbytes) {
        tc_fail(error, TC_INVALID, "size-mismatch",
                "data_offsets [%llu,%llu] disagree with its shape (expected %llu bytes)",
                (unsigned long long)offsets[0], (unsigned long long)offsets[1],
                (unsigned long long)tensor.nbytes);
        tc_error_at(error, json->base + json->at);
        return tc_error_in_tensor(error, name.bytes, name.length);
    }
    return tc_table_add(&reader->table, &tensor, error);
}
