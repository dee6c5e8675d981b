/* Values of block dtypes, against formulas that give one element at a time, in double precision,
 * which is exact for all of them until the last rounding. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/block.h"
#include "core/tensor/block_codebooks.h"
#include "core/tensor/cast.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/test/sanitized.h"

static double half(unsigned bits) {
    int exponent = bits >> 10 & 31;
    double mantissa = bits & 1023;
    double size = exponent == 31  ? (mantissa > 0 ? (double)NAN : (double)INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return bits >> 15 ? -size : size;
}

static unsigned pair(const unsigned char *at) {
    return at[0] | (unsigned)at[1] << 8;
}

static unsigned nibble(const unsigned char *qs, unsigned i) {
    return i < 16 ? qs[i] & 15u : qs[i - 16] >> 4;
}

/* Scale and minimum of group g, as one little-endian number of 96 bits would hold them. */
static unsigned six(const unsigned char *sc, unsigned g, bool minimum) {
    if (g < 4)
        return sc[g + (minimum ? 4 : 0)] & 63;
    unsigned low = minimum ? sc[g + 4] >> 4 : sc[g + 4] & 15;
    return low + 16 * (sc[g - (minimum ? 0 : 4)] >> 6);
}

static double signed_by(double value, unsigned signs, unsigned bit) {
    return signs >> bit & 1 ? -value : value;
}

static unsigned even(unsigned signs) {
    return signs + (__builtin_popcount(signs) % 2 ? 128 : 0);
}

static const double sizes2[] = {8, 25, 43};
static const double sizes3[] = {4, 12, 20, 28, 36, 44, 52, 62};
static const double nl[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                            1,    13,   25,  38,  53,  69,  89,  113};
static const double e2[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static double of_k(enum tc_dtype dtype, const unsigned char *b, unsigned e) {
    unsigned g = e / 16, i = e % 16, c = g % 8 / 2, G = e / 32, j = e % 32;
    unsigned two = 2 * c;
    switch (dtype) {
    case TC_Q2_K: {
        unsigned q = b[16 + 32 * (g / 8) + 16 * (g % 2) + i] >> two & 3;
        return half(pair(b + 80)) * (b[g] & 15) * q - half(pair(b + 82)) * (b[g] >> 4);
    }
    case TC_Q3_K: {
        unsigned q = b[32 + 32 * (g / 8) + 16 * (g % 2) + i] >> two & 3;
        int s = (b[96 + g % 8] >> 4 * (g / 8) & 15) + 16 * (b[104 + g % 4] >> 2 * (g / 4) & 3);
        int minus = b[16 * (g % 2) + i] >> g / 2 & 1 ? 0 : 4;
        return half(pair(b + 108)) * (s - 32) * ((int)q - minus);
    }
    case TC_Q4_K:
    case TC_Q5_K: {
        const unsigned char *qs = b + (dtype == TC_Q5_K ? 48 : 16);
        unsigned q = qs[32 * (G / 2) + j] >> 4 * (G % 2) & 15;
        if (dtype == TC_Q5_K)
            q += 16u * (b[16 + j] >> G & 1);
        return half(pair(b)) * six(b + 4, G, false) * q - half(pair(b + 2)) * six(b + 4, G, true);
    }
    default: {
        unsigned k = 16 * (g % 2) + i;
        int q = (b[64 * (g / 8) + 32 * (c % 2) + k] >> 4 * (c / 2) & 15) +
                16 * (b[128 + 32 * (g / 8) + k] >> two & 3);
        return half(pair(b + 208)) * (int8_t)b[192 + g] * (q - 32);
    }
    }
}

static double of_iq(enum tc_dtype dtype, const unsigned char *b, unsigned e) {
    unsigned g = e / 32, l = e % 32 / 8, j = e % 8, run = e / 8;
    double d = half(pair(b));
    switch (dtype) {
    case TC_IQ2_XXS: {
        uint32_t s = pair(b + 6 + 8 * g) | (uint32_t)pair(b + 8 + 8 * g) << 16;
        double size = sizes2[tc_book_iq2_xxs[b[2 + 8 * g + l]] >> 2 * j & 3];
        return signed_by(d * (.5 + (s >> 28)) * .25 * size, even(s >> 7 * l & 127), j);
    }
    case TC_IQ2_XS: {
        unsigned q = pair(b + 2 + 2 * run);
        double scale = d * (.5 + (b[66 + g] >> (l < 2 ? 0 : 4) & 15)) * .25;
        return signed_by(scale * sizes2[tc_book_iq2_xs[q & 511] >> 2 * j & 3], even(q >> 9), j);
    }
    case TC_IQ2_S: {
        unsigned index = b[2 + run] + 256u * (b[66 + g] >> 2 * l & 3);
        double scale = d * (.5 + (b[74 + g] >> (l < 2 ? 0 : 4) & 15)) * .25;
        return signed_by(scale * sizes2[tc_book_iq2_s[index] >> 2 * j & 3], b[34 + run], j);
    }
    case TC_IQ3_XXS: {
        uint32_t s = pair(b + 66 + 4 * g) | (uint32_t)pair(b + 68 + 4 * g) << 16;
        double size = sizes3[tc_book_iq3_xxs[b[2 + e / 4]] >> 4 * (e % 4) & 15];
        return signed_by(d * (.5 + (s >> 28)) * .5 * size, even(s >> 7 * l & 127), j);
    }
    case TC_IQ3_S: {
        unsigned index = b[2 + e / 4] + 256u * (b[66 + g] >> e / 4 % 8 & 1);
        double scale = d * (1 + 2 * (b[106 + g / 2] >> 4 * (g % 2) & 15));
        double size = 2 * (tc_book_iq3_s[index] >> 4 * (e % 4) & 15) + 1;
        return signed_by(scale * size, b[74 + run], j);
    }
    case TC_IQ1_S: {
        unsigned high = pair(b + 34 + 2 * g);
        int point = (tc_book_iq1_s[b[2 + run] + 256 * (high >> 3 * l & 7)] >> 2 * j & 3) - 1;
        return d * (2 * (high >> 12 & 7) + 1) * (point + (high >> 15 ? -.125 : .125));
    }
    default: {
        unsigned bits = 0;
        for (unsigned k = 0; k < 4; k++)
            bits += (pair(b + 48 + 2 * k) >> 12) << 4 * k;
        unsigned n = b[32 + run / 2] >> 4 * (run % 2) & 15;
        unsigned s = pair(b + 48 + 2 * (run / 8)) >> (6 * (run / 4 % 2) + 3 * (run % 4 / 2)) & 7;
        int point = (tc_book_iq1_s[b[run] + 256 * (n & 7)] >> 2 * j & 3) - 1;
        return half(bits) * (2 * s + 1) * (point + (n & 8 ? -.125 : .125));
    }
    }
}

/* A digit to the base 3: the byte is a fraction of 256, of which n digits come before. */
static int digit(unsigned byte, unsigned n) {
    while (n--)
        byte = byte * 3 % 256;
    return (int)(byte * 3 / 256);
}

static double of_ternary(const unsigned char *b, unsigned e) {
    double d = half(pair(b + 52));
    if (e < 160)
        return d * (digit(b[e % 32], e / 32) - 1);
    if (e < 240)
        return d * (digit(b[32 + e % 16], (e - 160) / 16) - 1);
    return d * (digit(b[48 + e % 4], (e - 240) / 4) - 1);
}

static double of_nvfp4(const unsigned char *b, unsigned e) {
    unsigned code = b[e / 16] & 127, i = e % 16;
    double scale = b[e / 16] == 127 ? 0
                   : code < 8       ? ldexp(code, -9)
                                    : ldexp(8 + code % 8, (int)code / 8 - 10);
    unsigned byte = b[4 + 8 * (e / 16) + i % 8];
    return .5 * scale * e2[i < 8 ? byte & 15 : byte >> 4];
}

static double of_simple(enum tc_dtype dtype, const unsigned char *b, unsigned e) {
    double d = half(pair(b));
    switch (dtype) {
    case TC_Q4_0:
        return d * ((int)nibble(b + 2, e) - 8);
    case TC_Q4_1:
        return d * nibble(b + 4, e) + half(pair(b + 2));
    case TC_Q5_0:
        return d * ((int)(nibble(b + 6, e) + 16u * (b[2 + e / 8] >> e % 8 & 1)) - 16);
    case TC_Q5_1:
        return d * (nibble(b + 8, e) + 16u * (b[4 + e / 8] >> e % 8 & 1)) + half(pair(b + 2));
    case TC_Q8_0:
        return d * (int8_t)b[2 + e];
    case TC_IQ4_NL:
        return d * nl[nibble(b + 2, e)];
    case TC_IQ4_XS: {
        unsigned g = e / 32;
        int s = (b[4 + g / 2] >> 4 * (g % 2) & 15) + 16 * (int)(pair(b + 2) >> 2 * g & 3);
        return d * (s - 32) * nl[nibble(b + 8 + 16 * g, e % 32)];
    }
    case TC_TQ2_0:
        return half(pair(b + 64)) * ((b[32 * (e / 128) + e % 32] >> 2 * (e / 32 % 4) & 3) - 1);
    case TC_MXFP4:
        return ldexp(e2[nibble(b + 1, e)], b[0] - 128);
    case TC_Q1_0:
        return b[2 + e / 8] >> e % 8 & 1 ? d : -d;
    default:
        return d * ((b[2 + e / 4] >> 2 * (e % 4) & 3) - 1);
    }
}

static double value_of(enum tc_dtype dtype, const unsigned char *block, unsigned element) {
    if (dtype >= TC_Q2_K && dtype <= TC_Q6_K)
        return of_k(dtype, block, element);
    if (dtype >= TC_IQ2_XXS && dtype <= TC_IQ1_M)
        return of_iq(dtype, block, element);
    return dtype == TC_TQ1_0   ? of_ternary(block, element)
           : dtype == TC_NVFP4 ? of_nvfp4(block, element)
                               : of_simple(dtype, block, element);
}

/* Where a block has its F16 scales; IQ1_M has the bits of one in four places, and the two formats
 * of four bits have bytes instead. */
static unsigned scale_place(enum tc_dtype dtype) {
    switch (dtype) {
    case TC_Q2_K:
        return 80;
    case TC_Q3_K:
        return 108;
    case TC_Q6_K:
        return 208;
    case TC_TQ1_0:
        return 52;
    case TC_TQ2_0:
        return 64;
    default:
        return 0;
    }
}

static void set_scale(enum tc_dtype dtype, unsigned char *block, unsigned bits) {
    if (dtype == TC_IQ1_M) {
        for (unsigned k = 0; k < 4; k++)
            block[49 + 2 * k] =
                (unsigned char)((block[49 + 2 * k] & 15) | (bits >> 4 * k & 15) << 4);
        return;
    }
    unsigned at = scale_place(dtype);
    block[at] = (unsigned char)bits;
    block[at + 1] = (unsigned char)(bits >> 8);
}

static void check_block(enum tc_dtype dtype, const unsigned char *block, const char *cpu) {
    float got[256];
    unsigned elements = tc_dtype_block_elements(dtype);
    tc_block_dequantise(dtype, block, got, elements);
    for (unsigned e = 0; e < elements; e++) {
        float expected = (float)value_of(dtype, block, e);
        if (isnan(expected)) {
            cr_assert(isnan(got[e]));
            continue;
        }
        cr_assert(memcmp(&got[e], &expected, sizeof expected) == 0,
                  "%s with %s: element %u is %a, expected %a", tc_dtype_name(dtype), cpu, e,
                  (double)got[e], (double)expected);
    }
}

/* Every pattern of an F16 as scale (and so every byte of an E8M0 and an E4M3), with other random
 * numbers each; every third for the other instructions, which do the same arithmetic. */
Test(block, every_scale_of_every_dtype) {
    static const char *const cpus[] = {"plain", "avx2"};
    uint64_t state = 88172645463325252;
    for (int c = 0; c < 2; c++) {
        if (!tc_cpu_use(cpus[c]))
            continue;
        for (enum tc_dtype dtype = TC_Q4_0; dtype < TC_DTYPES; dtype++)
            for (unsigned bits = 0; bits < 65536; bits += TEST_SANITIZED ? 41 : c ? 3 : 1) {
                unsigned char block[210];
                for (unsigned i = 0; i < sizeof block; i++) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    block[i] = (unsigned char)(state >> 24);
                }
                set_scale(dtype, block, bits);
                check_block(dtype, block, cpus[c]);
            }
    }
}

Test(block, zeros_have_the_sign_of_the_formula) {
    unsigned char q4_0[18] = {0};
    float values[32];
    memset(q4_0 + 2, 0x80, 16); /* low nibble 0, high nibble 8 */
    tc_block_dequantise(TC_Q4_0, q4_0, values, 32);
    cr_assert(values[0] == 0 && signbit(values[0]), "0 times -8");
    cr_assert(values[16] == 0 && !signbit(values[16]), "0 times 0");
    unsigned char mxfp4[17] = {127, 8};
    tc_block_dequantise(TC_MXFP4, mxfp4, values, 32);
    cr_assert(values[0] == 0 && !signbit(values[0]), "code 8 is +0");
}

Test(block, casts_go_by_way_of_f32) {
    unsigned char block[34] = {0x55, 0x35}; /* 0.3333 */
    float values[32], back[32];
    uint16_t narrow[32];
    double wide[32];
    for (int i = 0; i < 32; i++)
        block[2 + i] = (unsigned char)(8 * i);
    tc_block_dequantise(TC_Q8_0, block, values, 32);
    tc_cast(TC_Q8_0, TC_F32, block, back, 32, NULL);
    cr_assert_arr_eq(values, back, sizeof values);
    tc_cast(TC_Q8_0, TC_F64, block, wide, 32, NULL);
    for (int i = 0; i < 32; i++)
        cr_assert(wide[i] == (double)values[i]);
    struct tc_cast_report report = {0}, direct = {0};
    uint16_t expected[32];
    tc_cast(TC_Q8_0, TC_BF16, block, narrow, 32, &report);
    tc_cast(TC_F32, TC_BF16, values, expected, 32, &direct);
    cr_assert_arr_eq(narrow, expected, sizeof narrow);
    cr_assert_eq(report.inexact, direct.inexact);
    cr_assert(report.inexact > 0);
    cr_assert(tc_cast_lossless(TC_Q8_0, TC_F32) && tc_cast_lossless(TC_Q8_0, TC_F64));
    cr_assert_not(tc_cast_lossless(TC_Q8_0, TC_BF16));
    cr_assert(tc_cast_exists(TC_Q8_0, TC_I8));
    cr_assert_not(tc_cast_exists(TC_F32, TC_Q8_0));
    cr_assert_not(tc_cast_exists(TC_Q4_0, TC_Q8_0));
}

static const char *measure(enum tc_dtype dtype, const uint64_t *shape, unsigned rank,
                           uint64_t *nbytes) {
    struct tc_error error = {0};
    uint64_t count;
    return tc_shape_measure(dtype, shape, rank, &count, nbytes, &error) ? "" : error.code;
}

Test(block, rows_are_whole_blocks) {
    uint64_t nbytes;
    cr_assert_str_eq(measure(TC_Q4_0, (uint64_t[]){3, 64}, 2, &nbytes), "");
    cr_assert_eq(nbytes, 3 * 2 * 18);
    cr_assert_str_eq(measure(TC_Q4_0, (uint64_t[]){2, 48}, 2, &nbytes), "block-shape");
    cr_assert_str_eq(measure(TC_Q4_0, (uint64_t[]){2, 16}, 2, &nbytes), "block-shape");
    cr_assert_str_eq(measure(TC_Q4_0, NULL, 0, &nbytes), "block-shape");
    cr_assert_str_eq(measure(TC_Q4_0, (uint64_t[]){0, 48}, 2, &nbytes), "block-shape");
    cr_assert_str_eq(measure(TC_Q4_0, (uint64_t[]){5, 0}, 2, &nbytes), "");
    cr_assert_eq(nbytes, 0);
    static const uint64_t large[3][3] = {{UINT64_C(1) << 40, UINT64_C(1) << 40, 0},
                                         {0, UINT64_C(1) << 40, UINT64_C(1) << 40},
                                         {UINT64_C(1) << 40, 0, UINT64_C(1) << 40}};
    for (int i = 0; i < 3; i++)
        cr_assert_str_eq(measure(TC_Q6_K, large[i], 3, &nbytes), "shape-overflow");
    cr_assert_str_eq(measure(TC_Q6_K, (uint64_t[]){UINT64_C(1) << 62}, 1, &nbytes),
                     "shape-overflow");
}

Test(block, table_of_dtypes) {
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++) {
        bool block = dtype >= TC_Q4_0;
        uint64_t nbytes;
        cr_assert_eq(tc_dtype_is_block(dtype), block);
        cr_assert_eq(!!(TC_SET_BLOCKS & TC_SET(dtype)), block);
        cr_assert_eq(tc_dtype_find(tc_text_of(tc_dtype_name(dtype))), dtype);
        cr_assert(tc_dtype_nbytes(dtype, 256, &nbytes));
        cr_assert_eq(nbytes, tc_dtype_span(dtype, 256));
        cr_assert_eq(256 % tc_dtype_block_elements(dtype), 0);
        if (!block)
            continue;
        cr_assert(tc_dtype_packed(dtype) && tc_dtype_is_float(dtype));
        cr_assert_eq(tc_dtype_promote(dtype, TC_SET(TC_F32) | TC_SET(TC_F64)), TC_F32);
        cr_assert_eq(tc_dtype_promote(dtype, TC_SET(TC_F16)), TC_NONE);
        cr_assert_not(tc_dtype_nbytes(dtype, 255, &nbytes));
    }
}
