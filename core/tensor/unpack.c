#include "core/tensor/unpack.h"

#include <math.h>
#include <string.h>

#include "core/tensor/block.h"

enum tc_dtype tc_unpacked(enum tc_dtype dtype) {
    if (!tc_dtype_packed(dtype))
        return dtype;
    return dtype == TC_U4 ? TC_U8 : dtype == TC_I4 ? TC_I8 : TC_F32;
}

/* A float of a few bits that has neither Inf nor NaN. */
static float small_float(unsigned code, unsigned exponent_bits, unsigned mantissa_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    unsigned exponent = code >> mantissa_bits & ((1u << exponent_bits) - 1);
    unsigned mantissa = code & ((1u << mantissa_bits) - 1);
    if (exponent)
        mantissa |= 1u << mantissa_bits;
    float value =
        ldexpf((float)mantissa, (int)(exponent ? exponent : 1) - bias - (int)mantissa_bits);
    return code >> (exponent_bits + mantissa_bits) ? -value : value;
}

static void fill_floats(float *table, enum tc_dtype dtype) {
    unsigned bits = tc_dtype_bits(dtype);
    unsigned mantissa = dtype == TC_F4 ? 1 : dtype == TC_F6_E2M3 ? 3 : 2;
    for (unsigned code = 0; code < 1u << bits; code++)
        table[code] = small_float(code, bits - 1 - mantissa, mantissa);
}

static unsigned code_at(const unsigned char *bytes, size_t i, unsigned bits) {
    size_t at = i * bits;
    unsigned byte = bytes[at / 8];
    if (at % 8 + bits > 8)
        byte |= (unsigned)bytes[at / 8 + 1] << 8;
    return byte >> at % 8 & ((1u << bits) - 1);
}

void tc_unpack(enum tc_dtype dtype, const void *source, void *target, size_t count) {
    if (tc_dtype_is_block(dtype)) {
        tc_block_dequantise(dtype, source, target, count);
        return;
    }
    unsigned bits = tc_dtype_bits(dtype);
    unsigned char *small = target;
    float *floats = target;
    float table[64];
    if (tc_unpacked(dtype) == TC_F32)
        fill_floats(table, dtype);
    for (size_t i = 0; i < count; i++) {
        unsigned code = code_at(source, i, bits);
        if (dtype == TC_U4)
            small[i] = (unsigned char)code;
        else if (dtype == TC_I4)
            small[i] = (unsigned char)(code & 8 ? code | 0xF0 : code);
        else
            memcpy(&floats[i], &table[code], sizeof *table);
    }
}
