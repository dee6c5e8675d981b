/*
 * Small floating-point codes times a scale, in F32: F8_E4M3, E2M1 (two a byte) and E2M3 (four in
 * three bytes), for weights whose scales are kept apart.
 */
#ifndef TCONV_CORE_TENSOR_CODES_H
#define TCONV_CORE_TENSOR_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/tensor/dtype.h"

struct tc_codes {
    enum tc_dtype dtype;
    float values[256];   /* by code */
    float pairs[256][2]; /* E2M1: by byte, its two values */
};

/* `dtype` is F8_E4M3, F4 or F6_E2M3. `no_minus` has the code of -0 stand for +0. */
void tc_codes_init(struct tc_codes *codes, enum tc_dtype dtype, bool no_minus);
/* `count` values times the scale. The first code starts with the first byte; what follows the last
 * is returned, where codes fill whole bytes. */
const unsigned char *tc_codes_scale(const struct tc_codes *codes, const unsigned char *in,
                                    float *out, size_t count, float scale);
/* The same for whole blocks of `width` values, in which codes fill whole bytes, and a scale each.
 */
const unsigned char *tc_codes_scale_blocks(const struct tc_codes *codes, const unsigned char *in,
                                           float *out, size_t blocks, size_t width,
                                           const float *scales);
/* E2M1 codes that lie in one half of each byte, the low or the high one, times a scale each. */
void tc_codes_scale_halves(const struct tc_codes *codes, const unsigned char *in, bool high,
                           const float *scales, float *out, size_t count);

/*
 * The same for scales that are powers of two and BF16 as the result: exponents are added, which is
 * several times as fast. Only for powers that tc_codes_exponent knows: with others the result could
 * be subnormal or infinite.
 */
/* False where the scale is none of these; else *exponent is what the functions below take. */
static inline bool tc_codes_exponent(float scale, uint16_t *exponent) {
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    *exponent = (uint16_t)(((bits >> 23) - 127u) << 7);
    return !(bits & 0x7FFFFF) && bits >> 23 >= 2 && bits >> 23 <= 252;
}
const unsigned char *tc_codes_shift(const unsigned char *in, void *out, size_t count,
                                    uint16_t exponent);
void tc_codes_shift_halves(const unsigned char *in, bool high, const uint16_t *exponents, void *out,
                           size_t count);

#endif
