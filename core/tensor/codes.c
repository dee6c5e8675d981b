#include "core/tensor/codes.h"

#include <stdint.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/tensor/cast.h"
#include "core/tensor/unpack.h"
#include "core/tensor/vector.h"

#define NAME(x) x##_plain
#include "core/tensor/codes.inc"
#undef NAME

#if defined(__x86_64__)
TC_AVX2_BEGIN
#define NAME(x) x##_avx2
#include "core/tensor/codes.inc"
#undef NAME
TC_AVX2_END
#define CALL(loop, ...) (tc_cpu_avx2() ? loop##_avx2(__VA_ARGS__) : loop##_plain(__VA_ARGS__))
#else
#define CALL(loop, ...) loop##_plain(__VA_ARGS__)
#endif

void tc_codes_init(struct tc_codes *codes, enum tc_dtype dtype, bool no_minus) {
    unsigned char bytes[256];
    codes->dtype = dtype;
    for (unsigned i = 0; i < 256; i++)
        bytes[i] = (unsigned char)i;
    if (dtype == TC_F8_E4M3)
        tc_cast(dtype, TC_F32, bytes, codes->values, 256, NULL);
    for (unsigned code = 0; dtype != TC_F8_E4M3 && code < 64; code++)
        tc_unpack(dtype, (const unsigned char[]){(unsigned char)code, 0}, &codes->values[code], 1);
    if (no_minus)
        codes->values[dtype == TC_F4 ? 8 : dtype == TC_F6_E2M3 ? 32 : 128] = 0;
    for (unsigned i = 0; i < 256; i++) {
        codes->pairs[i][0] = codes->values[i & 15];
        codes->pairs[i][1] = codes->values[i >> 4];
    }
}

const unsigned char *tc_codes_scale(const struct tc_codes *codes, const unsigned char *in,
                                    float *out, size_t count, float scale) {
    switch (codes->dtype) {
    case TC_F4:
        CALL(pairs, codes->pairs, in, out, count, scale);
        return in + count / 2;
    case TC_F6_E2M3:
        CALL(fours, codes->values, in, out, count, scale);
        return in + count / 4 * 3;
    default:
        CALL(bytes, codes->values, in, out, count, scale);
        return in + count;
    }
}

const unsigned char *tc_codes_scale_blocks(const struct tc_codes *codes, const unsigned char *in,
                                           float *out, size_t blocks, size_t width,
                                           const float *scales) {
    if (codes->dtype == TC_F4 && width % 2 == 0) {
        CALL(pair_blocks, codes->pairs, in, out, blocks, width, scales);
        return in + blocks * width / 2;
    }
    for (size_t i = 0; i < blocks; i++)
        in = tc_codes_scale(codes, in, out + i * width, width, scales[i]);
    return in;
}

void tc_codes_scale_halves(const struct tc_codes *codes, const unsigned char *in, bool high,
                           const float *scales, float *out, size_t count) {
    CALL(halves, codes->values, in, high ? 4 : 0, scales, out, count);
}

const unsigned char *tc_codes_shift(const unsigned char *in, void *out, size_t count,
                                    uint16_t exponent) {
    CALL(shift_pairs, in, out, count, exponent);
    return in + count / 2;
}

void tc_codes_shift_halves(const unsigned char *in, bool high, const uint16_t *exponents, void *out,
                           size_t count) {
    CALL(shift_halves, in, high ? 4 : 0, exponents, out, count);
}
