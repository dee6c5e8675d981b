#include "core/tensor/cast_narrow.h"

#include <string.h>

#include "core/base/cpu.h"
#include "core/tensor/vector.h"

/* How a small float represents what is no finite number (core/tensor/number.h). */
enum family { IEEE, FINITE_ONLY, UNSIGNED_ZERO };

#define LANES(lanes, set)                                                                          \
    [TC_BOOL] = boolean_##lanes##_##set, [TC_U8] = u8_##lanes##_##set,                             \
    [TC_I8] = i8_##lanes##_##set, [TC_U16] = u16_##lanes##_##set, [TC_I16] = i16_##lanes##_##set,  \
    [TC_F8_E4M3] = e4m3_##lanes##_##set, [TC_F8_E5M2] = e5m2_##lanes##_##set,                      \
    [TC_F8_E4M3FNUZ] = e4m3fnuz_##lanes##_##set, [TC_F8_E5M2FNUZ] = e5m2fnuz_##lanes##_##set,      \
    [TC_F8_E8M0] = e8m0_##lanes##_##set
#define TABLE(set)                                                                                 \
    {                                                                                              \
        .of_f32 = {LANES(f32, set)}, .of_f64 = {                                                   \
            LANES(f64, set),                                                                       \
            [TC_F16] = f16_f64_##set,                                                              \
            [TC_BF16] = bf16_f64_##set                                                             \
        }                                                                                          \
    }

#define WORD uint32_t
#define SIGNED int32_t
#define UNALIGNED struct tc_u32
#define REAL float
#define MANTISSA 23
#define BIAS 127
#define MARGIN 0x1p-21
#define NAME(x) x##_f32_plain
#include "core/tensor/cast_narrow.inc"
#undef NAME
#if defined(__x86_64__)
TC_AVX2_BEGIN
#define NAME(x) x##_f32_avx2
#include "core/tensor/cast_narrow.inc"
#undef NAME
TC_AVX2_END
#endif
#undef WORD
#undef SIGNED
#undef UNALIGNED
#undef REAL
#undef MANTISSA
#undef BIAS
#undef MARGIN

#define WORD uint64_t
#define SIGNED int64_t
#define UNALIGNED struct tc_u64
#define REAL double
#define MANTISSA 52
#define BIAS 1023
#define MARGIN 0x1p-50
#define NAME(x) x##_f64_plain
#include "core/tensor/cast_narrow.inc"
#undef NAME
static const struct tc_narrow_table plain = TABLE(plain);
#if defined(__x86_64__)
TC_AVX2_BEGIN
#define NAME(x) x##_f64_avx2
#include "core/tensor/cast_narrow.inc"
#undef NAME
TC_AVX2_END
static const struct tc_narrow_table avx2 = TABLE(avx2);
#endif

const struct tc_narrow_table *tc_narrow_table(void) {
#if defined(__x86_64__)
    if (tc_cpu_avx2())
        return &avx2;
#endif
    return &plain;
}
