#include "core/tensor/cast_wide.h"

#include <stdint.h>
#include <string.h>

#include "core/tensor/vector.h"

/* How a small float represents what is no finite number (core/tensor/cast.c). */
enum family { IEEE, FINITE_ONLY, UNSIGNED_ZERO };
/* What a value may become. */
enum target { FLOATS, INTEGERS, POWERS };

#define TABLE(set)                                                                                 \
    {                                                                                              \
        .decode = {[TC_U32] = u32_wide_##set,                                                      \
                   [TC_I32] = i32_wide_##set,                                                      \
                   [TC_U64] = u64_wide_##set,                                                      \
                   [TC_I64] = i64_wide_##set,                                                      \
                   [TC_F32] = f32_wide_##set},                                                     \
        .encode = {[TC_BOOL] = wide_bool_##set,                                                    \
                   [TC_U8] = wide_u8_##set,                                                        \
                   [TC_I8] = wide_i8_##set,                                                        \
                   [TC_U16] = wide_u16_##set,                                                      \
                   [TC_I16] = wide_i16_##set,                                                      \
                   [TC_U32] = wide_u32_##set,                                                      \
                   [TC_I32] = wide_i32_##set,                                                      \
                   [TC_U64] = wide_u64_##set,                                                      \
                   [TC_I64] = wide_i64_##set,                                                      \
                   [TC_F16] = wide_f16_##set,                                                      \
                   [TC_BF16] = wide_bf16_##set,                                                    \
                   [TC_F32] = wide_f32_##set,                                                      \
                   [TC_F64] = wide_f64_##set,                                                      \
                   [TC_F8_E4M3] = wide_e4m3_##set,                                                 \
                   [TC_F8_E5M2] = wide_e5m2_##set,                                                 \
                   [TC_F8_E4M3FNUZ] = wide_e4m3fnuz_##set,                                         \
                   [TC_F8_E5M2FNUZ] = wide_e5m2fnuz_##set,                                         \
                   [TC_F8_E8M0] = wide_e8m0_##set},                                                \
        .compare_floats = compare_floats_##set, .compare_integers = compare_integers_##set,        \
        .compare_powers = compare_powers_##set                                                     \
    }

#define NAME(x) x##_plain
#include "core/tensor/cast_wide.inc"
#undef NAME
const struct tc_wide_table tc_wide_plain = TABLE(plain);

#if defined(__x86_64__)
TC_AVX2_BEGIN
#define NAME(x) x##_avx2
#include "core/tensor/cast_wide.inc"
#undef NAME
TC_AVX2_END
const struct tc_wide_table tc_wide_avx2 = TABLE(avx2);
#endif
