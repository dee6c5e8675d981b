#include "core/format/dequantise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/format/reader.h"
#include "core/tensor/cast.h"
#include "core/tensor/codes.h"
#include "core/tensor/permute.h"
#include "core/tensor/shape.h"

/* Elements that are computed from one read of the weight, and those whose F32 values are in memory
 * at once; both are whole blocks of 32. */
#define SPAN ((size_t)512 << 10)
#define WINDOW ((size_t)8 << 10)
/* Bytes of blocks that are held to be transposed. */
#define TILE ((size_t)16 << 20)
#define MX_BLOCK 32u
#define MX_BYTES 16u
/* Rows that are transposed at once: their blocks fit the CPU's first cache. */
#define STRIP 256u

/* A part of a tensor whose result is transposed: blocks [group, group + groups) of rows
 * [first, first + count) of one matrix. */
struct tile {
    bool loaded;
    uint64_t matrix, first, count, group, groups;
    unsigned char *bytes;
    float *scales;
};

struct tc_dequantise_work {
    struct tc_codes codes;
    unsigned char *bytes; /* of the weight */
    unsigned char *raw;   /* of the scales */
    float *scales;
    uint16_t *exponents; /* of the scales, where all of them are powers that can be added */
    bool shifts;         /* `exponents` are to be used */
    size_t scale_room;   /* how many there is room for */
    struct tile tile;
    float values[WINDOW];
};

static unsigned codes_per_unit(const struct tc_dequantise *dequantise) {
    return dequantise->scaled.codes == TC_CODES_SIX  ? 4
           : dequantise->scaled.codes == TC_CODES_F8 ? 1
                                                     : 2;
}

static unsigned bytes_per_unit(const struct tc_dequantise *dequantise) {
    return dequantise->scaled.codes == TC_CODES_SIX ? 3 : 1;
}

/* The shape of the result, and the matrices that it consists of. */
static bool set_shape(struct tc_dequantise *dequantise, struct tc_arena *arena,
                      struct tc_error *error) {
    const struct tc_scaled *scaled = &dequantise->scaled;
    const struct tc_tensor *weight = scaled->weight.tensor;
    struct tc_tensor *tensor = &dequantise->tensor;
    unsigned rank = weight->rank;
    uint64_t *shape = tc_arena_array(arena, rank, sizeof *shape, error);
    uint64_t count;
    if (!shape)
        return false;
    if (rank)
        memcpy(shape, weight->shape, rank * sizeof *shape);
    if (scaled->grouped && !tc_mul(shape[rank - 2u], MX_BLOCK, &shape[rank - 2u]))
        return tc_fail(error, TC_INVALID, "shape-overflow", "the size of its shape overflows");
    if (scaled->grouped)
        rank--;
    else if (rank)
        shape[rank - 1u] =
            shape[rank - 1u] / bytes_per_unit(dequantise) * codes_per_unit(dequantise);
    dequantise->columns = rank ? shape[rank - 1u] : 1;
    dequantise->rows = rank >= 2 ? shape[rank - 2u] : 1;
    const uint64_t *block = scaled->block;
    uint64_t down = block[0] ? block[0] : dequantise->rows;
    uint64_t across = block[1] ? block[1] : dequantise->columns;
    dequantise->grid_rows = down ? (dequantise->rows - 1) / down + 1 : 0;
    dequantise->grid_columns = across ? (dequantise->columns - 1) / across + 1 : 0;
    if (scaled->codes == TC_CODES_SWAPS) {
        shape[rank - 1u] = dequantise->rows;
        shape[rank - 2u] = dequantise->columns;
    }
    tensor->shape = shape;
    tensor->rank = (uint8_t)rank;
    return tc_shape_measure(tensor->dtype, shape, rank, &count, &tensor->nbytes, error) ||
           tc_error_in_tensor(error, weight->name.bytes, weight->name.length);
}

static bool read_part(const struct tc_scaled_part *part, uint64_t offset, void *buffer,
                      size_t length, struct tc_error *error) {
    return tc_reader_read(part->reader, part->tensor, offset, buffer, length, error);
}

struct tc_dequantise *tc_dequantise_make(const struct tc_scaled *scaled, enum tc_dtype dtype,
                                         struct tc_arena *arena, struct tc_error *error) {
    struct tc_dequantise *dequantise = tc_arena_alloc(arena, sizeof *dequantise, error);
    if (!dequantise)
        return NULL;
    dequantise->scaled = *scaled;
    dequantise->tensor.name = scaled->name;
    dequantise->tensor.dtype = (uint8_t)dtype;
    dequantise->tensor.metadata = scaled->weight.tensor->metadata;
    dequantise->nbytes = scaled->weight.tensor->nbytes + scaled->scale.tensor->nbytes;
    if (scaled->global.tensor)
        dequantise->nbytes += scaled->global.tensor->nbytes;
    bool ok = set_shape(dequantise, arena, error) &&
              (!scaled->global.tensor ||
               read_part(&scaled->global, 0, &dequantise->global, sizeof(float), error));
    return ok ? dequantise : NULL;
}

void tc_dequantise_unload(struct tc_dequantise *dequantise) {
    struct tc_dequantise_work *work = dequantise->work;
    if (!work)
        return;
    free(work->bytes);
    free(work->raw);
    free(work->scales);
    free(work->exponents);
    free(work->tile.bytes);
    free(work->tile.scales);
    free(work);
    dequantise->work = NULL;
}

static bool load(struct tc_dequantise *dequantise, struct tc_error *error) {
    const struct tc_scaled *scaled = &dequantise->scaled;
    struct tc_dequantise_work *work = calloc(1, sizeof *work);
    if (!work)
        return tc_fail_memory(error);
    dequantise->work = work;
    enum tc_dtype codes = scaled->codes == TC_CODES_F8    ? TC_F8_E4M3
                          : scaled->codes == TC_CODES_SIX ? TC_F6_E2M3
                                                          : TC_F4;
    tc_codes_init(&work->codes, codes, scaled->arithmetic == TC_SCALE_TIMES_SECOND);
    work->bytes = malloc(SPAN + MX_BLOCK);
    if (work->bytes)
        return true;
    tc_dequantise_unload(dequantise);
    return tc_fail_memory(error);
}

static bool refuse_exponent(const struct tc_scaled *scaled, uint64_t place,
                            struct tc_error *error) {
    const struct tc_tensor *scale = scaled->scale.tensor;
    tc_fail(error, TC_INVALID, "scale-value",
            "the exponent of element %llu is 255, which programs take differently: NaN, infinity "
            "or 2^128",
            (unsigned long long)place);
    tc_error_in_tensor(error, scale->name.bytes, scale->name.length);
    return tc_error_in_file(error, scaled->scale.reader->input->path);
}

/* Rounds values to a dtype and back, as where a program computes in it. */
static void round_to(enum tc_dtype dtype, float *values, size_t count) {
    uint16_t narrow[256];
    for (size_t at = 0; dtype != TC_F32 && at < count; at += 256) {
        size_t step = count - at < 256 ? count - at : 256;
        tc_cast(TC_F32, dtype, values + at, narrow, step, NULL);
        tc_cast(dtype, TC_F32, narrow, values + at, step, NULL);
    }
}

/* Turns stored scales into those that the codes are multiplied with. */
static bool prepare(const struct tc_dequantise *dequantise, const unsigned char *raw, float *scales,
                    size_t count, uint64_t place, struct tc_error *error) {
    const struct tc_scaled *scaled = &dequantise->scaled;
    enum tc_scaled_arithmetic arithmetic = scaled->arithmetic;
    if (arithmetic == TC_SCALE_EXPONENT) {
        const unsigned char *bad = memchr(raw, 255, count);
        if (bad)
            return refuse_exponent(scaled, place + (uint64_t)(bad - raw), error);
        for (size_t i = 0; i < count; i++) {
            /* 2^(byte - 127); for byte 0 that is a subnormal number. */
            uint32_t bits = raw[i] ? (uint32_t)raw[i] << 23 : UINT32_C(1) << 22;
            memcpy(&scales[i], &bits, sizeof bits);
        }
        return true;
    }
    enum tc_dtype dtype = scaled->scale.tensor->dtype;
    if (dtype == TC_F32)
        memcpy(scales, raw, count * sizeof *scales);
    else
        tc_cast(dtype, TC_F32, raw, scales, count, NULL);
    if (arithmetic == TC_SCALE_ROUNDS_FIRST)
        round_to(dequantise->tensor.dtype, scales, count);
    for (size_t i = 0; arithmetic == TC_SCALE_TIMES_SECOND && i < count; i++)
        scales[i] *= dequantise->global;
    bool divided = arithmetic == TC_SCALE_DIVIDED || arithmetic == TC_SCALE_DIVIDED_BF16;
    for (size_t i = 0; divided && i < count; i++)
        scales[i] /= dequantise->global;
    if (arithmetic == TC_SCALE_DIVIDED_BF16)
        round_to(TC_BF16, scales, count);
    return true;
}

/* Whether values are made by adding to exponents, and by how much. */
static bool find_exponents(const struct tc_dequantise *dequantise, const float *scales,
                           uint16_t *exponents, size_t count) {
    const struct tc_scaled *scaled = &dequantise->scaled;
    bool all = scaled->arithmetic == TC_SCALE_EXPONENT && dequantise->tensor.dtype == TC_BF16 &&
               (scaled->codes == TC_CODES_FOUR || scaled->codes == TC_CODES_SWAPS);
    for (size_t i = 0; all && i < count; i++)
        all = tc_codes_exponent(scales[i], &exponents[i]);
    return all;
}

/* Loads scales [first, first + count) into the work's list. */
static bool load_scales(struct tc_dequantise *dequantise, uint64_t first, size_t count,
                        struct tc_error *error) {
    struct tc_dequantise_work *work = dequantise->work;
    const struct tc_scaled_part *part = &dequantise->scaled.scale;
    size_t each = tc_dtype_bits(part->tensor->dtype) / 8;
    if (count > work->scale_room) {
        free(work->raw);
        free(work->scales);
        free(work->exponents);
        work->scale_room = 0;
        work->raw = malloc(count * each);
        work->scales = malloc(count * sizeof *work->scales);
        work->exponents = malloc(count * sizeof *work->exponents);
        if (!work->raw || !work->scales || !work->exponents)
            return tc_fail_memory(error);
        work->scale_room = count;
    }
    if (!read_part(part, first * each, work->raw, count * each, error) ||
        !prepare(dequantise, work->raw, work->scales, count, first, error))
        return false;
    work->shifts = find_exponents(dequantise, work->scales, work->exponents, count);
    return true;
}

/* The number of the scale of an element, by its row, counted over all matrices, and column. */
static uint64_t scale_number(const struct tc_dequantise *dequantise, uint64_t row,
                             uint64_t column) {
    const uint64_t *block = dequantise->scaled.block;
    uint64_t down = block[0] ? row % dequantise->rows / block[0] : 0;
    uint64_t across = block[1] ? column / block[1] : 0;
    /* One scale for all matrices, where there is only one. */
    uint64_t matrix = block[0] || block[1] ? row / dequantise->rows : 0;
    return (matrix * dequantise->grid_rows + down) * dequantise->grid_columns + across;
}

/* The values of elements [first, first + count), whose codes start at `codes`: in F32, or in the
 * result's dtype where exponents are added. */
static void compute(const struct tc_dequantise *dequantise, uint64_t first, size_t count,
                    const unsigned char *codes, uint64_t first_scale, void *to) {
    const struct tc_dequantise_work *work = dequantise->work;
    uint64_t across = dequantise->scaled.block[1];
    uint64_t row = first / dequantise->columns;
    uint64_t column = first % dequantise->columns;
    unsigned char *values = to;
    size_t each = work->shifts ? sizeof(uint16_t) : sizeof(float);
    uint64_t scale = scale_number(dequantise, row, column) - first_scale;
    uint64_t in_block = across ? across - column % across : dequantise->columns;
    while (count) {
        uint64_t in_row = dequantise->columns - column;
        size_t step = in_block < in_row ? in_block : in_row;
        step = step < count ? step : count;
        /* Blocks that are whole are made together: a small one takes no longer than a call. */
        uint64_t whole = across ? (in_row < count ? in_row : count) / across : 0;
        uint64_t blocks = 1;
        if (work->shifts) {
            codes = tc_codes_shift(codes, values, step, work->exponents[scale]);
        } else if (whole > 1 && in_block == across && across % codes_per_unit(dequantise) == 0) {
            blocks = whole;
            step = whole * across;
            codes = tc_codes_scale_blocks(&work->codes, codes, (float *)(void *)values, blocks,
                                          across, &work->scales[scale]);
        } else {
            codes = tc_codes_scale(&work->codes, codes, (float *)(void *)values, step,
                                   work->scales[scale]);
        }
        values += step * each;
        count -= step;
        column += step;
        /* The next block lies beside this one, unless the row ends: dividing takes as long as a
         * small block. */
        in_block = across ? across : dequantise->columns;
        scale += blocks;
        if (column == dequantise->columns && count) {
            column = 0;
            row++;
            scale = scale_number(dequantise, row, 0) - first_scale;
        }
    }
}

/* The last steps: F32 products to the result's dtype. */
static void finish(const struct tc_dequantise *dequantise, float *values, size_t count, void *out) {
    enum tc_dtype dtype = dequantise->tensor.dtype;
    if (dequantise->scaled.arithmetic == TC_SCALE_OWN_PRODUCT)
        round_to(dequantise->scaled.scale.tensor->dtype, values, count);
    if (dtype == TC_F32)
        memcpy(out, values, count * sizeof *values);
    else
        tc_cast(TC_F32, dtype, values, out, count, NULL);
}

/* Elements [first, first + count) of the result, at most SPAN; `first` is the start of a unit of
 * codes. */
static bool read_span(struct tc_dequantise *dequantise, uint64_t first, size_t count,
                      unsigned char *out, struct tc_error *error) {
    struct tc_dequantise_work *work = dequantise->work;
    unsigned codes = codes_per_unit(dequantise);
    unsigned bytes = bytes_per_unit(dequantise);
    size_t each = tc_dtype_bits(dequantise->tensor.dtype) / 8;
    uint64_t last = first + count - 1;
    uint64_t columns = dequantise->columns;
    /* Where the span is part of one row only the scales of its columns are loaded, which bounds
     * their number. */
    bool one_row = first / columns == last / columns;
    uint64_t from = scale_number(dequantise, first / columns, one_row ? first % columns : 0);
    uint64_t to = scale_number(dequantise, last / columns, one_row ? last % columns : columns - 1);
    if (!read_part(&dequantise->scaled.weight, first / codes * bytes, work->bytes,
                   (count + codes - 1) / codes * bytes, error) ||
        !load_scales(dequantise, from, to - from + 1, error))
        return false;
    if (work->shifts) {
        compute(dequantise, first, count, work->bytes, from, out);
        return true;
    }
    for (size_t at = 0; at < count; at += WINDOW) {
        size_t step = count - at < WINDOW ? count - at : WINDOW;
        compute(dequantise, first + at, step, work->bytes + at / codes * bytes, from, work->values);
        finish(dequantise, work->values, step, out + at * each);
    }
    return true;
}

/* Loads the blocks and scales of the tile that has row `row` and block `group` of a matrix. */
static bool load_tile(struct tc_dequantise *dequantise, uint64_t matrix, uint64_t row,
                      uint64_t group, struct tc_error *error) {
    const struct tc_scaled *scaled = &dequantise->scaled;
    struct tile *tile = &dequantise->work->tile;
    uint64_t rows = dequantise->rows;
    uint64_t all = dequantise->grid_columns;
    uint64_t most_rows = TILE / MX_BYTES;
    *tile = (struct tile){.matrix = matrix, .bytes = tile->bytes, .scales = tile->scales};
    tile->first = row / most_rows * most_rows;
    tile->count = rows - tile->first < most_rows ? rows - tile->first : most_rows;
    uint64_t most_groups = most_rows / tile->count;
    tile->group = group / most_groups * most_groups;
    tile->groups = all - tile->group < most_groups ? all - tile->group : most_groups;
    unsigned char *raw = malloc(TILE / MX_BYTES);
    if (!tile->bytes)
        tile->bytes = malloc(TILE + TC_PERMUTE_SLACK);
    if (!tile->scales)
        tile->scales = malloc(TILE / MX_BYTES * sizeof *tile->scales);
    bool ok = (raw && tile->bytes && tile->scales) || tc_fail_memory(error);
    /* Rows that lie together are read at once. */
    uint64_t together = tile->groups == all ? tile->count : 1;
    size_t run = together * tile->groups;
    for (uint64_t r = 0; ok && r < tile->count; r += together) {
        uint64_t block = (matrix * rows + tile->first + r) * all + tile->group;
        size_t to = r * tile->groups;
        ok = read_part(&scaled->weight, block * MX_BYTES, tile->bytes + to * MX_BYTES,
                       run * MX_BYTES, error) &&
             read_part(&scaled->scale, block, raw, run, error) &&
             prepare(dequantise, raw, tile->scales + to, run, block, error);
    }
    tile->loaded = ok;
    free(raw);
    return ok;
}

static bool tile_has(const struct tile *tile, uint64_t matrix, uint64_t row, uint64_t group) {
    return tile->loaded && tile->matrix == matrix && row >= tile->first &&
           row - tile->first < tile->count && group >= tile->group &&
           group - tile->group < tile->groups;
}

/* Blocks `group` of `count` rows of the tile, from `row` on, byte by byte: the bytes of one place
 * in their blocks lie together. */
struct strip {
    unsigned char bytes[MX_BYTES][STRIP];
    float scales[STRIP];
    uint16_t exponents[STRIP];
    bool shifts; /* `exponents` are to be used */
};

static void take_strip(const struct tc_dequantise *dequantise, uint64_t row, uint64_t group,
                       size_t count, struct strip *strip) {
    const struct tile *tile = &dequantise->work->tile;
    uint64_t at = (row - tile->first) * tile->groups + (group - tile->group);
    struct tc_axis axes[] = {{count, tile->groups * MX_BYTES, 1}, {MX_BYTES, 1, STRIP}};
    tc_permute(axes, 2, 1, tile->bytes + at * MX_BYTES, &strip->bytes[0][0]);
    for (size_t i = 0; i < count; i++)
        strip->scales[i] = tile->scales[at + i * tile->groups];
    strip->shifts = find_exponents(dequantise, strip->scales, strip->exponents, count);
}

/* One line of a strip. */
static void make_line(const struct tc_dequantise *dequantise, const struct strip *strip,
                      unsigned code, size_t count, unsigned char *out) {
    struct tc_dequantise_work *work = dequantise->work;
    const unsigned char *bytes = strip->bytes[code / 2];
    if (strip->shifts) {
        tc_codes_shift_halves(bytes, code % 2, strip->exponents, out, count);
        return;
    }
    tc_codes_scale_halves(&work->codes, bytes, code % 2, strip->scales, work->values, count);
    finish(dequantise, work->values, count, out);
}

/* Elements [first, first + count) of a result [.., 32 G, N] from blocks [.., N, G, 16]: lines of N
 * elements, of which 32 come from the same blocks and are made together, strip by strip. */
static bool read_swapped(struct tc_dequantise *dequantise, uint64_t first, size_t count,
                         unsigned char *out, struct tc_error *error) {
    uint64_t width = dequantise->rows;
    size_t each = tc_dtype_bits(dequantise->tensor.dtype) / 8;
    uint64_t end = first + count;
    for (uint64_t at = first; at < end;) {
        uint64_t line = at / width;
        uint64_t matrix = line / dequantise->columns;
        uint64_t group = line % dequantise->columns / MX_BLOCK;
        /* The lines of this group that are wanted; the first may start in its middle, and then
         * stands alone. */
        uint64_t left = MX_BLOCK - line % MX_BLOCK;
        uint64_t lines = at % width || end - at < width ? 1
                         : (end - at) / width < left    ? (end - at) / width
                                                        : left;
        uint64_t from = at % width;
        uint64_t until = lines == 1 && end - at < width - from ? from + (end - at) : width;
        for (uint64_t row = from; row < until;) {
            struct strip strip;
            struct tile *tile = &dequantise->work->tile;
            if (!tile_has(tile, matrix, row, group) &&
                !load_tile(dequantise, matrix, row, group, error))
                return false;
            uint64_t in_tile = tile->first + tile->count - row;
            size_t count_here = until - row < STRIP ? until - row : STRIP;
            count_here = in_tile < count_here ? in_tile : count_here;
            take_strip(dequantise, row, group, count_here, &strip);
            for (uint64_t l = 0; l < lines; l++)
                make_line(dequantise, &strip, (unsigned)((line + l) % MX_BLOCK), count_here,
                          out + (at + l * width + (row - from) - first) * each);
            row += count_here;
        }
        at += lines == 1 ? until - from : lines * width;
    }
    return true;
}

bool tc_dequantise_read(struct tc_dequantise *dequantise, uint64_t offset, void *buffer,
                        size_t length, struct tc_error *error) {
    size_t each = tc_dtype_bits(dequantise->tensor.dtype) / 8;
    unsigned unit = codes_per_unit(dequantise);
    uint64_t at = offset / each;
    uint64_t end = at + length / each;
    unsigned char *out = buffer;
    if (length && !dequantise->work && !load(dequantise, error))
        return false;
    while (at < end) {
        size_t count = end - at < SPAN ? end - at : SPAN;
        if (dequantise->scaled.codes == TC_CODES_SWAPS) {
            if (!read_swapped(dequantise, at, count, out, error))
                return false;
        } else if (at % unit) {
            /* Up to the next whole unit of codes, by way of a copy. */
            unsigned char whole[4 * sizeof(float)];
            size_t before = at % unit;
            count = unit - before < count ? unit - before : count;
            if (!read_span(dequantise, at - before, unit, whole, error))
                return false;
            memcpy(out, whole + before * each, count * each);
        } else if (!read_span(dequantise, at, count, out, error)) {
            return false;
        }
        at += count;
        out += count * each;
    }
    return true;
}
