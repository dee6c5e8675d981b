#include "core/tensor/block.h"

#include <stdint.h>
#include <string.h>

#include "core/base/cpu.h"
#include "core/tensor/vector.h"

typedef void dequantise(const unsigned char *in, float *restrict out, size_t blocks);

/* What the coordinates of the codebooks stand for. */
static const float two_bit_sizes[4] = {8, 25, 43, 0};
static const float iq3_xxs_sizes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const float iq3_s_sizes[8] = {1, 3, 5, 7, 9, 11, 13, 15};
static const float iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
static const float twice_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#define TABLE(set)                                                                                 \
    {                                                                                              \
        [TC_Q4_0] = q4_0_##set, [TC_Q4_1] = q4_1_##set, [TC_Q5_0] = q5_0_##set,                    \
        [TC_Q5_1] = q5_1_##set, [TC_Q8_0] = q8_0_##set, [TC_Q2_K] = q2_k_##set,                    \
        [TC_Q3_K] = q3_k_##set, [TC_Q4_K] = q4_k_##set, [TC_Q5_K] = q5_k_##set,                    \
        [TC_Q6_K] = q6_k_##set, [TC_IQ2_XXS] = iq2_xxs_##set, [TC_IQ2_XS] = iq2_xs_##set,          \
        [TC_IQ2_S] = iq2_s_##set, [TC_IQ3_XXS] = iq3_xxs_##set, [TC_IQ3_S] = iq3_s_##set,          \
        [TC_IQ1_S] = iq1_s_##set, [TC_IQ1_M] = iq1_m_##set, [TC_IQ4_NL] = iq4_nl_##set,            \
        [TC_IQ4_XS] = iq4_xs_##set, [TC_TQ1_0] = tq1_0_##set, [TC_TQ2_0] = tq2_0_##set,            \
        [TC_MXFP4] = mxfp4_##set, [TC_NVFP4] = nvfp4_##set, [TC_Q1_0] = q1_0_##set,                \
        [TC_Q2_0] = q2_0_##set                                                                     \
    }

#define NAME(x) x##_plain
#include "core/tensor/block.inc"
#undef NAME
static dequantise *const plain[TC_DTYPES] = TABLE(plain);

#if defined(__x86_64__)
TC_AVX2_BEGIN
#define NAME(x) x##_avx2
#include "core/tensor/block.inc"
#undef NAME
TC_AVX2_END
static dequantise *const avx2[TC_DTYPES] = TABLE(avx2);
#endif

void tc_block_dequantise(enum tc_dtype dtype, const void *source, float *target, size_t count) {
    dequantise *const *table = plain;
#if defined(__x86_64__)
    if (tc_cpu_avx2())
        table = avx2;
#endif
    table[dtype](source, target, count / tc_dtype_block_elements(dtype));
}
