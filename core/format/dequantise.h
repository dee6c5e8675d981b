/*
 * Reads a weight with scales of its own (core/format/block_scales.h) as the tensor that it stands
 * for. The values are those of the program that its layout comes from, to the bit: what is
 * rounded, when, and to which dtype differs between them.
 *
 * Each range that is read is computed from the rows of weight and scales that it needs, so that
 * memory is bounded, whatever the size of the tensor.
 */
#ifndef TCONV_CORE_FORMAT_DEQUANTISE_H
#define TCONV_CORE_FORMAT_DEQUANTISE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/format/block_scales.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

struct tc_dequantise_work;

struct tc_dequantise {
    struct tc_scaled scaled;
    struct tc_tensor tensor; /* the result */
    uint64_t rows;           /* of one matrix; leading dimensions are further matrices */
    uint64_t columns;
    uint64_t grid_rows; /* of the scales of one matrix */
    uint64_t grid_columns;
    float global;                    /* the scale of the whole tensor */
    uint64_t nbytes;                 /* of weight and scales */
    struct tc_dequantise_work *work; /* from the first read to tc_dequantise_unload */
};

/* `dtype` is that of the result: F32, which is the product before its last rounding, BF16 or F16.
 * The result is in the arena; NULL on failure. */
struct tc_dequantise *tc_dequantise_make(const struct tc_scaled *scaled, enum tc_dtype dtype,
                                         struct tc_arena *arena, struct tc_error *error);
/* Bytes of the result's stream, whole elements. One thread at a time may call it. */
bool tc_dequantise_read(struct tc_dequantise *dequantise, uint64_t offset, void *buffer,
                        size_t length, struct tc_error *error);
/* Frees what reading took. */
void tc_dequantise_unload(struct tc_dequantise *dequantise);

#endif
