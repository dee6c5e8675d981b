#include "core/cast.h"

#include <string.h>

/* A binary floating-point format with sign, as its fields lie in an integer. */
struct layout {
    unsigned exponent;
    unsigned mantissa;
    int bias;
    enum { IEEE, FINITE, FNUZ } special; /* FINITE: E4M3, all ones is NaN, no Inf */
};

static const struct layout f16 = {5, 10, 15, IEEE};
static const struct layout bf16 = {8, 7, 127, IEEE};
static const struct layout f32 = {8, 23, 127, IEEE};
static const struct layout f64 = {11, 52, 1023, IEEE};
static const struct layout e4m3 = {4, 3, 7, FINITE};
static const struct layout e5m2 = {5, 2, 15, IEEE};
static const struct layout e4m3fnuz = {4, 3, 8, FNUZ};
static const struct layout e5m2fnuz = {5, 2, 16, FNUZ};

/* NaN with what payload there is moved to the top of the wider mantissa. */
static uint64_t widen_nan(uint64_t sign, uint64_t mantissa, const struct layout *from,
                          const struct layout *to) {
    uint64_t ones = (UINT64_C(1) << to->exponent) - 1;
    return sign << (to->exponent + to->mantissa) | ones << to->mantissa |
           mantissa << (to->mantissa - from->mantissa);
}

static bool is_nan(uint64_t exponent, uint64_t mantissa, uint64_t sign,
                   const struct layout *from) {
    uint64_t ones = (UINT64_C(1) << from->exponent) - 1;
    switch (from->special) {
    case IEEE:
        return exponent == ones && mantissa != 0;
    case FINITE:
        return exponent == ones && mantissa == (UINT64_C(1) << from->mantissa) - 1;
    case FNUZ:
        return sign == 1 && exponent == 0 && mantissa == 0;
    }
    return false;
}

/*
 * One value from a format to a wider one, where every finite value has an
 * exact place; a subnormal may become normal, and the reverse.
 */
static inline uint64_t widen(uint64_t bits, const struct layout *from, const struct layout *to) {
    uint64_t sign = bits >> (from->exponent + from->mantissa) & 1;
    uint64_t from_ones = (UINT64_C(1) << from->exponent) - 1;
    uint64_t exponent = bits >> from->mantissa & from_ones;
    uint64_t mantissa = bits & ((UINT64_C(1) << from->mantissa) - 1);
    if (is_nan(exponent, mantissa, sign, from)) {
        /* FNUZ has one NaN, the pattern of -0: give it the quiet bit. */
        if (from->special == FNUZ)
            return widen_nan(1, UINT64_C(1) << (from->mantissa - 1), from, to);
        return widen_nan(sign, mantissa, from, to);
    }
    uint64_t top = sign << (to->exponent + to->mantissa);
    if (from->special == IEEE && exponent == from_ones)
        return top | ((UINT64_C(1) << to->exponent) - 1) << to->mantissa;
    uint64_t hidden = UINT64_C(1) << from->mantissa;
    int power = (int)exponent - from->bias;
    if (exponent == 0) {
        if (mantissa == 0)
            return top;
        /* Subnormal: bring its leading one to the hidden place. */
        int up = (int)from->mantissa - (63 - __builtin_clzll(mantissa));
        mantissa <<= up;
        power = 1 - from->bias - up;
    }
    uint64_t significand = (mantissa | hidden) << (to->mantissa - from->mantissa);
    int place = power + to->bias;
    if (place <= 0) /* subnormal in the target: E5M2 and E5M2FNUZ in F16, BF16 in F32 */
        return top | significand >> (1 - place);
    return top | (uint64_t)place << to->mantissa |
           (significand & ((UINT64_C(1) << to->mantissa) - 1));
}

/* One loop a pair: with constant layouts the compiler folds all of widen(). */
#define FLOAT_CAST(name, from_type, from, to_type, to)                                             \
    static void name(const void *source, void *target, size_t count) {                             \
        const unsigned char *in = source;                                                          \
        unsigned char *out = target;                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            from_type bits;                                                                        \
            memcpy(&bits, in + i * sizeof bits, sizeof bits);                                      \
            to_type wide = (to_type)widen(bits, &from, &to);                                       \
            memcpy(out + i * sizeof wide, &wide, sizeof wide);                                     \
        }                                                                                          \
    }

#define INTEGER_CAST(name, from_type, to_type)                                                     \
    static void name(const void *source, void *target, size_t count) {                             \
        const unsigned char *in = source;                                                          \
        unsigned char *out = target;                                                               \
        for (size_t i = 0; i < count; i++) {                                                       \
            from_type narrow;                                                                      \
            memcpy(&narrow, in + i * sizeof narrow, sizeof narrow);                                \
            to_type wide = (to_type)narrow;                                                        \
            memcpy(out + i * sizeof wide, &wide, sizeof wide);                                     \
        }                                                                                          \
    }

FLOAT_CAST(f16_f32, uint16_t, f16, uint32_t, f32)
FLOAT_CAST(f16_f64, uint16_t, f16, uint64_t, f64)
FLOAT_CAST(bf16_f64, uint16_t, bf16, uint64_t, f64)
FLOAT_CAST(f32_f64, uint32_t, f32, uint64_t, f64)
FLOAT_CAST(e4m3_f16, uint8_t, e4m3, uint16_t, f16)
FLOAT_CAST(e4m3_bf16, uint8_t, e4m3, uint16_t, bf16)
FLOAT_CAST(e4m3_f32, uint8_t, e4m3, uint32_t, f32)
FLOAT_CAST(e4m3_f64, uint8_t, e4m3, uint64_t, f64)
FLOAT_CAST(e5m2_f16, uint8_t, e5m2, uint16_t, f16)
FLOAT_CAST(e5m2_bf16, uint8_t, e5m2, uint16_t, bf16)
FLOAT_CAST(e5m2_f32, uint8_t, e5m2, uint32_t, f32)
FLOAT_CAST(e5m2_f64, uint8_t, e5m2, uint64_t, f64)
FLOAT_CAST(e4m3fnuz_f16, uint8_t, e4m3fnuz, uint16_t, f16)
FLOAT_CAST(e4m3fnuz_bf16, uint8_t, e4m3fnuz, uint16_t, bf16)
FLOAT_CAST(e4m3fnuz_f32, uint8_t, e4m3fnuz, uint32_t, f32)
FLOAT_CAST(e4m3fnuz_f64, uint8_t, e4m3fnuz, uint64_t, f64)
FLOAT_CAST(e5m2fnuz_f16, uint8_t, e5m2fnuz, uint16_t, f16)
FLOAT_CAST(e5m2fnuz_bf16, uint8_t, e5m2fnuz, uint16_t, bf16)
FLOAT_CAST(e5m2fnuz_f32, uint8_t, e5m2fnuz, uint32_t, f32)
FLOAT_CAST(e5m2fnuz_f64, uint8_t, e5m2fnuz, uint64_t, f64)

INTEGER_CAST(u8_u16, uint8_t, uint16_t)
INTEGER_CAST(u8_u32, uint8_t, uint32_t)
INTEGER_CAST(u8_u64, uint8_t, uint64_t)
INTEGER_CAST(i8_i16, int8_t, int16_t)
INTEGER_CAST(i8_i32, int8_t, int32_t)
INTEGER_CAST(i8_i64, int8_t, int64_t)
INTEGER_CAST(u16_u32, uint16_t, uint32_t)
INTEGER_CAST(u16_u64, uint16_t, uint64_t)
INTEGER_CAST(i16_i32, int16_t, int32_t)
INTEGER_CAST(i16_i64, int16_t, int64_t)
INTEGER_CAST(u32_u64, uint32_t, uint64_t)
INTEGER_CAST(i32_i64, int32_t, int64_t)

/* BF16 is the upper half of F32. */
static void bf16_f32(const void *source, void *target, size_t count) {
    const unsigned char *in = source;
    unsigned char *out = target;
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, in + i * sizeof half, sizeof half);
        uint32_t wide = (uint32_t)half << 16;
        memcpy(out + i * sizeof wide, &wide, sizeof wide);
    }
}

/* Any byte but 0 is true: targets without BOOL get 0 and 1. */
static void bool_u8(const void *source, void *target, size_t count) {
    const unsigned char *in = source;
    unsigned char *out = target;
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] != 0;
}

static void bool_i16(const void *source, void *target, size_t count) {
    const unsigned char *in = source;
    unsigned char *out = target;
    for (size_t i = 0; i < count; i++) {
        out[2 * i] = in[i] != 0;
        out[2 * i + 1] = 0;
    }
}

static void bool_i32(const void *source, void *target, size_t count) {
    const unsigned char *in = source;
    unsigned char *out = target;
    for (size_t i = 0; i < count; i++) {
        uint32_t wide = in[i] != 0;
        memcpy(out + i * sizeof wide, &wide, sizeof wide);
    }
}

/*
 * E8M0 is a bare exponent, 2^(e-127), with 255 as NaN. 2^-127 is subnormal in
 * BF16 and F32.
 */
static uint32_t widen_e8m0(uint8_t exponent) {
    if (exponent == 0)
        return UINT32_C(1) << 22;
    return exponent == 255 ? UINT32_C(0x7FC00000) : (uint32_t)exponent << 23;
}

static void e8m0_bf16(const void *source, void *target, size_t count) {
    const uint8_t *in = source;
    unsigned char *out = target;
    for (size_t i = 0; i < count; i++) {
        uint16_t wide = (uint16_t)(widen_e8m0(in[i]) >> 16);
        memcpy(out + i * sizeof wide, &wide, sizeof wide);
    }
}

static void e8m0_f32(const void *source, void *target, size_t count) {
    const uint8_t *in = source;
    unsigned char *out = target;
    for (size_t i = 0; i < count; i++) {
        uint32_t wide = widen_e8m0(in[i]);
        memcpy(out + i * sizeof wide, &wide, sizeof wide);
    }
}

static void e8m0_f64(const void *source, void *target, size_t count) {
    const uint8_t *in = source;
    unsigned char *out = target;
    for (size_t i = 0; i < count; i++) {
        uint64_t wide = widen(widen_e8m0(in[i]), &f32, &f64);
        memcpy(out + i * sizeof wide, &wide, sizeof wide);
    }
}

/* Complex numbers are pairs of their component. */
static void c32_c64(const void *source, void *target, size_t count) {
    f16_f32(source, target, 2 * count);
}

static void c32_c128(const void *source, void *target, size_t count) {
    f16_f64(source, target, 2 * count);
}

static void c64_c128(const void *source, void *target, size_t count) {
    f32_f64(source, target, 2 * count);
}

static tc_cast *const casts[TC_DTYPES][TC_DTYPES] = {
    [TC_BOOL] = {[TC_U8] = bool_u8, [TC_I8] = bool_u8, [TC_I16] = bool_i16, [TC_I32] = bool_i32},
    [TC_U8] = {[TC_U16] = u8_u16, [TC_I16] = u8_u16, [TC_I32] = u8_u32, [TC_I64] = u8_u64},
    [TC_I8] = {[TC_I16] = i8_i16, [TC_I32] = i8_i32, [TC_I64] = i8_i64},
    [TC_U16] = {[TC_U32] = u16_u32, [TC_I32] = u16_u32, [TC_I64] = u16_u64, [TC_U64] = u16_u64},
    [TC_I16] = {[TC_I32] = i16_i32, [TC_I64] = i16_i64},
    [TC_U32] = {[TC_I64] = u32_u64, [TC_U64] = u32_u64},
    [TC_I32] = {[TC_I64] = i32_i64},
    [TC_F16] = {[TC_F32] = f16_f32, [TC_F64] = f16_f64},
    [TC_BF16] = {[TC_F32] = bf16_f32, [TC_F64] = bf16_f64},
    [TC_F32] = {[TC_F64] = f32_f64},
    [TC_C64] = {[TC_C128] = c64_c128},
    [TC_C32] = {[TC_C64] = c32_c64, [TC_C128] = c32_c128},
    [TC_F8_E4M3] = {[TC_F16] = e4m3_f16, [TC_BF16] = e4m3_bf16, [TC_F32] = e4m3_f32,
                    [TC_F64] = e4m3_f64},
    [TC_F8_E5M2] = {[TC_F16] = e5m2_f16, [TC_BF16] = e5m2_bf16, [TC_F32] = e5m2_f32,
                    [TC_F64] = e5m2_f64},
    [TC_F8_E4M3FNUZ] = {[TC_F16] = e4m3fnuz_f16, [TC_BF16] = e4m3fnuz_bf16,
                        [TC_F32] = e4m3fnuz_f32, [TC_F64] = e4m3fnuz_f64},
    [TC_F8_E5M2FNUZ] = {[TC_F16] = e5m2fnuz_f16, [TC_BF16] = e5m2fnuz_bf16,
                        [TC_F32] = e5m2fnuz_f32, [TC_F64] = e5m2fnuz_f64},
    [TC_F8_E8M0] = {[TC_BF16] = e8m0_bf16, [TC_F32] = e8m0_f32, [TC_F64] = e8m0_f64},
};

tc_cast *tc_cast_find(enum tc_dtype from, enum tc_dtype to) {
    return from < TC_DTYPES && to < TC_DTYPES ? casts[from][to] : NULL;
}
