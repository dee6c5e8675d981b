#include "core/format/densify.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/limits.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/shape.h"

/* Parts are loaded in steps of this size. */
#define READ_STEP ((uint64_t)1 << 20)

/* One unit of values: its place in the dense tensor and its place among the values,
 * both counted in units. */
struct tc_segment {
    uint64_t place;
    uint64_t number;
};

bool tc_sparse_fail(const struct tc_tensor *part, struct tc_error *error, const char *what) {
    tc_fail(error, TC_INVALID, "sparse", "%s", what);
    tc_error_because(error, TC_REASON_SPARSE);
    return tc_error_in_tensor(error, part->name.bytes, part->name.length);
}

static bool is_index(const struct tc_tensor *part, struct tc_error *error) {
    return part->dtype == TC_I64 || part->dtype == TC_I32 ||
           tc_sparse_fail(part, error, "indices of a sparse tensor must be I64 or I32");
}

static int64_t index_at(const struct tc_tensor *part, const unsigned char *bytes, uint64_t at) {
    if (part->dtype == TC_I32) {
        int32_t value;
        memcpy(&value, bytes + at * sizeof value, sizeof value);
        return value;
    }
    int64_t value;
    memcpy(&value, bytes + at * sizeof value, sizeof value);
    return value;
}

static bool same_dimensions(const uint64_t *a, const uint64_t *b, unsigned count) {
    return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

/* The dense tensor's shape is the data of one of the parts. */
static bool read_shape(struct tc_densify *densify, struct tc_arena *arena, struct tc_error *error) {
    const struct tc_tensor *part = densify->shape;
    struct tc_tensor *tensor = &densify->tensor;
    unsigned char bytes[TC_MAX_RANK * sizeof(int64_t)];
    uint64_t count;
    if (!is_index(part, error))
        return false;
    if (part->rank != 1 || part->shape[0] > TC_MAX_RANK)
        return tc_sparse_fail(part, error, "this is not the shape of a sparse tensor");
    tensor->rank = (uint8_t)part->shape[0];
    uint64_t *shape = tc_arena_array(arena, tensor->rank, sizeof *shape, error);
    if (!shape || !tc_reader_read(densify->reader, part, 0, bytes, part->nbytes, error))
        return false;
    for (unsigned i = 0; i < tensor->rank; i++) {
        int64_t dimension = index_at(part, bytes, i);
        if (dimension < 0)
            return tc_sparse_fail(part, error, "a dimension is negative");
        shape[i] = (uint64_t)dimension;
    }
    tensor->shape = shape;
    return tc_shape_measure(tensor->dtype, shape, tensor->rank, &count, &tensor->nbytes, error) ||
           tc_error_in_tensor(error, part->name.bytes, part->name.length);
}

/* indices [ndim, nnz], values [nnz, dense dimensions...] */
static bool measure_coo(struct tc_densify *densify, struct tc_error *error) {
    const struct tc_tensor *values = densify->values;
    const struct tc_tensor *tensor = &densify->tensor;
    if (densify->first->rank != 2 || densify->first->shape[0] > tensor->rank)
        return tc_sparse_fail(densify->first, error, "the shape of indices is not [ndim, nnz]");
    densify->sparse_rank = (unsigned)densify->first->shape[0];
    densify->stored = densify->first->shape[1];
    densify->batches = densify->block_rows = 1;
    unsigned dense = tensor->rank - densify->sparse_rank;
    if (values->rank != 1 + dense || values->shape[0] != densify->stored ||
        !same_dimensions(values->shape + 1, tensor->shape + densify->sparse_rank, dense))
        return tc_sparse_fail(values, error, "the shape of values does not fit indices and shape");
    densify->unit = tc_shape_count(values->shape + 1, dense);
    return true;
}

/* first [batch..., rows + 1], plain [batch..., nnz], values [batch..., nnz,
 * block..., dense dimensions...]; rows and columns count in blocks. */
static bool measure_compressed(struct tc_densify *densify, bool blocks, struct tc_error *error) {
    const struct tc_tensor *first = densify->first;
    const struct tc_tensor *plain = densify->plain;
    const struct tc_tensor *values = densify->values;
    const struct tc_tensor *tensor = &densify->tensor;
    unsigned batch = first->rank ? first->rank - 1u : 0;
    if (first->rank == 0 || tensor->rank < batch + 2 ||
        !same_dimensions(first->shape, tensor->shape, batch))
        return tc_sparse_fail(first, error, "its shape does not fit that of the sparse tensor");
    if (plain->rank != batch + 1 || !same_dimensions(plain->shape, tensor->shape, batch))
        return tc_sparse_fail(plain, error, "its shape does not fit that of the sparse tensor");
    unsigned dense = tensor->rank - batch - 2;
    unsigned head = batch + 1 + (blocks ? 2 : 0);
    if (values->rank != head + dense || !same_dimensions(values->shape, plain->shape, batch + 1) ||
        !same_dimensions(values->shape + head, tensor->shape + batch + 2, dense))
        return tc_sparse_fail(values, error,
                              "the shape of values does not fit the indices and shape");
    uint64_t block_columns = blocks ? values->shape[batch + 2] : 1;
    densify->block_rows = blocks ? values->shape[batch + 1] : 1;
    if (densify->block_rows == 0 || block_columns == 0 ||
        tensor->shape[batch] % densify->block_rows != 0 ||
        tensor->shape[batch + 1] % block_columns != 0)
        return tc_sparse_fail(values, error, "the blocks do not fill the sparse tensor's shape");
    densify->batches = tc_shape_count(tensor->shape, batch);
    densify->stored = plain->shape[batch];
    densify->rows = tensor->shape[batch] / densify->block_rows;
    densify->columns = tensor->shape[batch + 1] / block_columns;
    densify->unit = block_columns * tc_shape_count(values->shape + head, dense);
    uint64_t lines = densify->by_column ? densify->columns : densify->rows;
    return first->shape[batch] == lines + 1 ||
           tc_sparse_fail(first, error,
                          "it must have one entry more than there are rows or columns");
}

/* Computes the bytes and the memory of the group; refuses values that have no place
 * in the shape. */
static bool measure(struct tc_densify *densify, struct tc_error *error) {
    const struct tc_tensor *values = densify->values;
    struct tc_tensor *tensor = &densify->tensor;
    uint64_t segments = densify->batches * densify->stored * densify->block_rows;
    uint64_t extra;
    if (tensor->nbytes == 0 && segments && densify->unit)
        return tc_sparse_fail(values, error,
                              "there are values, but the shape has no place for any");
    densify->unit *= tc_dtype_bits(values->dtype) / 8;
    /* Sorting may take as much memory again. */
    bool ok =
        tc_mul(segments, 2 * sizeof(struct tc_segment), &extra) &&
        tc_add(densify->first->nbytes, values->nbytes, &densify->nbytes) &&
        tc_add(densify->nbytes, densify->shape->nbytes, &densify->nbytes) &&
        tc_add(densify->nbytes, densify->plain ? densify->plain->nbytes : 0, &densify->nbytes) &&
        tc_add(densify->nbytes, extra, &densify->memory);
    densify->count = segments;
    return ok || tc_fail(error, TC_INVALID, "size-overflow", "the sparse tensor's size overflows");
}

static bool check_dtype(const struct tc_tensor *values, struct tc_error *error) {
    /* E8M0 has no zero to fill the gaps with. */
    if (!tc_dtype_packed(values->dtype) && values->dtype != TC_F8_E8M0)
        return true;
    tc_fail(error, TC_UNSUPPORTED, "sparse", "values of %s cannot be made dense",
            tc_dtype_name(values->dtype));
    return tc_error_in_tensor(error, values->name.bytes, values->name.length);
}

/* The dense tensor gets the metadata of the values, without their role. */
static bool keep_metadata(struct tc_densify *densify, struct tc_arena *arena,
                          struct tc_error *error) {
    densify->tensor.metadata = tc_metadata_copy(densify->values->metadata, arena, error);
    if (densify->tensor.metadata)
        tc_metadata_remove_prefix(densify->tensor.metadata, TC_SPARSE_KEYS);
    return densify->tensor.metadata != NULL;
}

struct tc_densify *tc_densify_measure(struct tc_reader *reader,
                                      const struct tc_sparse_layout *layout,
                                      const struct tc_tensor *const *parts, struct tc_text name,
                                      struct tc_arena *arena, struct tc_error *error) {
    struct tc_densify *densify = tc_arena_alloc(arena, sizeof *densify, error);
    if (!densify)
        return NULL;
    unsigned part = 0;
    densify->reader = reader;
    densify->first = parts[part++];
    densify->plain = layout->compressed ? parts[part++] : NULL;
    densify->values = parts[part++];
    densify->shape = parts[part];
    densify->by_column = layout->by_column;
    densify->tensor.name = name;
    densify->tensor.dtype = densify->values->dtype;
    bool ok = is_index(densify->first, error) &&
              (!densify->plain || is_index(densify->plain, error)) &&
              read_shape(densify, arena, error) &&
              (layout->compressed ? measure_compressed(densify, layout->blocks, error)
                                  : measure_coo(densify, error)) &&
              measure(densify, error);
    return ok ? densify : NULL;
}

struct tc_densify *tc_densify_make(struct tc_reader *reader, const struct tc_sparse *sparse,
                                   struct tc_arena *arena, struct tc_error *error) {
    const struct tc_sparse_layout *layout = tc_sparse_layout(sparse->layout);
    const struct tc_tensor *parts[4] = {NULL};
    for (unsigned i = 0; i < layout->parts; i++)
        parts[i] = tc_sparse_part(&reader->table, sparse, i);
    /* All are there, as tc_sparse_of saw, but to find one takes memory. */
    if (!parts[0] || !parts[1] || !parts[2] || (layout->compressed && !parts[3])) {
        tc_fail_memory(error);
        return NULL;
    }
    if (!check_dtype(parts[layout->parts - 2], error))
        return NULL;
    struct tc_densify *densify =
        tc_densify_measure(reader, layout, parts, sparse->parent, arena, error);
    return densify && keep_metadata(densify, arena, error) ? densify : NULL;
}

static unsigned char *load_part(struct tc_reader *reader, const struct tc_tensor *part,
                                struct tc_error *error) {
    unsigned char *bytes = malloc(part->nbytes ? part->nbytes : 1);
    if (!bytes) {
        tc_fail_memory(error);
        return NULL;
    }
    for (uint64_t at = 0; at < part->nbytes; at += READ_STEP) {
        uint64_t left = part->nbytes - at;
        if (!tc_reader_read(reader, part, at, bytes + at, left < READ_STEP ? left : READ_STEP,
                            error)) {
            free(bytes);
            return NULL;
        }
    }
    return bytes;
}

static bool fail_index(const struct tc_tensor *part, int64_t index, uint64_t most,
                       struct tc_error *error) {
    tc_fail(error, TC_INVALID, "sparse", "index %lld is out of range (0 to %lld)", (long long)index,
            (long long)most - 1);
    return tc_error_in_tensor(error, part->name.bytes, part->name.length);
}

static bool place_coo(struct tc_densify *densify, const unsigned char *first,
                      struct tc_error *error) {
    const uint64_t *shape = densify->tensor.shape;
    for (uint64_t entry = 0; entry < densify->stored; entry++) {
        uint64_t place = 0;
        for (unsigned axis = 0; axis < densify->sparse_rank; axis++) {
            int64_t index = index_at(densify->first, first, axis * densify->stored + entry);
            if (index < 0 || (uint64_t)index >= shape[axis])
                return fail_index(densify->first, index, shape[axis], error);
            place = place * shape[axis] + (uint64_t)index;
        }
        densify->segments[entry] = (struct tc_segment){place, entry};
    }
    return true;
}

/* Places the entries [begin, end) of one row or column of a batch. */
static bool place_line(struct tc_densify *densify, const unsigned char *plain, uint64_t batch,
                       uint64_t line, uint64_t begin, uint64_t end, struct tc_error *error) {
    uint64_t most = densify->by_column ? densify->rows : densify->columns;
    uint64_t height = densify->block_rows;
    for (uint64_t entry = batch * densify->stored + begin; entry < batch * densify->stored + end;
         entry++) {
        int64_t index = index_at(densify->plain, plain, entry);
        if (index < 0 || (uint64_t)index >= most)
            return fail_index(densify->plain, index, most, error);
        uint64_t row = densify->by_column ? (uint64_t)index : line;
        uint64_t column = densify->by_column ? line : (uint64_t)index;
        uint64_t top = (batch * densify->rows + row) * height;
        for (uint64_t r = 0; r < height; r++)
            densify->segments[entry * height + r] =
                (struct tc_segment){(top + r) * densify->columns + column, entry * height + r};
    }
    return true;
}

static bool place_compressed(struct tc_densify *densify, const unsigned char *first,
                             const unsigned char *plain, struct tc_error *error) {
    uint64_t lines = densify->by_column ? densify->columns : densify->rows;
    for (uint64_t batch = 0; batch < densify->batches; batch++) {
        int64_t begin = index_at(densify->first, first, batch * (lines + 1));
        if (begin != 0)
            return tc_sparse_fail(densify->first, error, "it does not start with 0");
        for (uint64_t line = 0; line < lines; line++) {
            int64_t end = index_at(densify->first, first, batch * (lines + 1) + line + 1);
            if (end < begin || (uint64_t)end > densify->stored)
                return tc_sparse_fail(densify->first, error,
                                      end < begin ? "its entries do not ascend"
                                                  : "an entry points behind the last value");
            if (!place_line(densify, plain, batch, line, (uint64_t)begin, (uint64_t)end, error))
                return false;
            begin = end;
        }
        if ((uint64_t)begin != densify->stored)
            return tc_sparse_fail(densify->first, error,
                                  "it does not end with the number of values");
    }
    return true;
}

static int by_place(const void *a, const void *b) {
    const struct tc_segment *x = a;
    const struct tc_segment *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Sorts by place in the dense tensor; several of one place stay in their order.
 * Returns whether any place has several. */
static bool sort_segments(struct tc_densify *densify) {
    struct tc_segment *segments = densify->segments;
    bool twice = false;
    for (size_t i = 1; i < densify->count; i++)
        if (segments[i].place < segments[i - 1].place) {
            qsort(segments, densify->count, sizeof *segments, by_place);
            break;
        }
    for (size_t i = 1; i < densify->count && !twice; i++)
        twice = segments[i].place == segments[i - 1].place;
    return twice;
}

static bool load(struct tc_densify *densify, struct tc_error *error) {
    enum tc_dtype dtype = densify->tensor.dtype;
    unsigned char *first = load_part(densify->reader, densify->first, error);
    unsigned char *plain =
        first && densify->plain ? load_part(densify->reader, densify->plain, error) : NULL;
    bool ok = first && (plain || !densify->plain);
    if (ok) {
        densify->segments = calloc(densify->count ? densify->count : 1, sizeof(struct tc_segment));
        ok = densify->segments || tc_fail_memory(error);
    }
    ok = ok && (plain ? place_compressed(densify, first, plain, error)
                      : place_coo(densify, first, error));
    free(first);
    free(plain);
    if (ok && sort_segments(densify) && tc_dtype_bits(dtype) == 8 && tc_dtype_is_float(dtype)) {
        tc_fail(error, TC_UNSUPPORTED, "sparse",
                "several values have the same place, and %s values cannot be summed",
                tc_dtype_name(dtype));
        ok = tc_error_in_tensor(error, densify->values->name.bytes, densify->values->name.length);
    }
    densify->bytes = ok ? load_part(densify->reader, densify->values, error) : NULL;
    if (!densify->bytes)
        tc_densify_unload(densify);
    return densify->bytes != NULL;
}

void tc_densify_unload(struct tc_densify *densify) {
    free(densify->bytes);
    free(densify->segments);
    densify->bytes = NULL;
    densify->segments = NULL;
}

/* Rounding the sum in F32 and then to half precision gives the same as rounding
 * once, since F32 has at least 2 · 11 + 2 bits. */
static void add_halves(enum tc_dtype dtype, unsigned char *sum, const unsigned char *value) {
    float a;
    float b;
    tc_cast(dtype, TC_F32, sum, &a, 1, NULL);
    tc_cast(dtype, TC_F32, value, &b, 1, NULL);
    a += b;
    tc_cast(TC_F32, dtype, &a, sum, 1, NULL);
}

static void add_float(unsigned char *sum, const unsigned char *value) {
    float a;
    float b;
    memcpy(&a, sum, sizeof a);
    memcpy(&b, value, sizeof b);
    a += b;
    memcpy(sum, &a, sizeof a);
}

static void add_double(unsigned char *sum, const unsigned char *value) {
    double a;
    double b;
    memcpy(&a, sum, sizeof a);
    memcpy(&b, value, sizeof b);
    a += b;
    memcpy(sum, &a, sizeof a);
}

/* In two's complement signed and unsigned integers add alike. */
static void add_integer(unsigned char *sum, const unsigned char *value, size_t size) {
    uint64_t a = 0;
    uint64_t b = 0;
    memcpy(&a, sum, size);
    memcpy(&b, value, size);
    a += b;
    memcpy(sum, &a, size);
}

static void add_values(enum tc_dtype dtype, unsigned char *sum, const unsigned char *values,
                       size_t length) {
    size_t size = tc_dtype_component(dtype);
    for (size_t at = 0; at < length; at += size) {
        if (dtype == TC_BOOL)
            sum[at] = sum[at] || values[at];
        else if (dtype == TC_F16 || dtype == TC_C32)
            add_halves(TC_F16, sum + at, values + at);
        else if (dtype == TC_BF16)
            add_halves(TC_BF16, sum + at, values + at);
        else if (dtype == TC_F32 || dtype == TC_C64)
            add_float(sum + at, values + at);
        else if (dtype == TC_F64 || dtype == TC_C128)
            add_double(sum + at, values + at);
        else
            add_integer(sum + at, values + at, size);
    }
}

/* The first segment whose place is not before `place`. */
static size_t find_segment(const struct tc_densify *densify, uint64_t place) {
    size_t low = 0;
    size_t high = densify->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (densify->segments[middle].place < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool tc_densify_check(struct tc_densify *densify, struct tc_error *error) {
    bool ok = load(densify, error);
    tc_densify_unload(densify);
    return ok;
}

bool tc_densify_read(struct tc_densify *densify, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error) {
    unsigned char *window = buffer;
    uint64_t unit = densify->unit;
    uint64_t end = offset + length;
    memset(buffer, 0, length);
    if (length == 0)
        return true;
    if (!densify->bytes && !load(densify, error))
        return tc_error_in_file(error, densify->reader->input->path);
    const struct tc_segment *segments = densify->segments;
    for (size_t i = find_segment(densify, offset / unit);
         i < densify->count && segments[i].place * unit < end; i++) {
        uint64_t start = segments[i].place * unit;
        uint64_t low = start > offset ? start : offset;
        uint64_t high = start + unit < end ? start + unit : end;
        const unsigned char *values = densify->bytes + segments[i].number * unit + (low - start);
        bool alone = (i == 0 || segments[i - 1].place != segments[i].place) &&
                     (i + 1 == densify->count || segments[i + 1].place != segments[i].place);
        if (alone)
            memcpy(window + (low - offset), values, high - low);
        else
            add_values(densify->tensor.dtype, window + (low - offset), values, high - low);
    }
    return true;
}
