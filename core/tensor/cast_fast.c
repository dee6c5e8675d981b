#include "core/tensor/cast_fast.h"

#include <string.h>

#include "core/tensor/vector.h"

#define TABLE(set)                                                                                 \
    {                                                                                              \
        .cpu = #set, .bf16_f32 = bf16_f32_##set, .f32_bf16 = f32_bf16_##set,                       \
        .f16_f32 = f16_f32_##set, .f32_f16 = f32_f16_##set, .f32_f64 = f32_f64_##set,              \
        .f64_f32 = f64_f32_##set, .u16_f32 = u16_f32_##set, .i16_f32 = i16_f32_##set,              \
        .compare_f32 = compare_f32_##set, .compare_f64 = compare_f64_##set                         \
    }

#define NAME(x) x##_plain
#include "core/tensor/cast_fast.inc"
#undef NAME
const struct tc_cast_table tc_cast_plain = TABLE(plain);

#if defined(__x86_64__)
TC_AVX2_BEGIN
#define NAME(x) x##_avx2
#include "core/tensor/cast_fast.inc"
#undef NAME
TC_AVX2_END
const struct tc_cast_table tc_cast_avx2 = TABLE(avx2);
#endif
