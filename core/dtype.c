#include "core/dtype.h"

#include "core/checked.h"

#define WIDENINGS 4

/* `wider` lists, smallest first, the types that hold every value exactly.
 * An absent entry reads as TC_BOOL, which nothing widens to. */
static const struct dtype_row {
    const char *name;
    uint8_t bits;
    uint8_t component;
    uint8_t wider[WIDENINGS];
} rows[TC_DTYPES] = {
    [TC_BOOL] = {"BOOL", 8, 1, {TC_U8, TC_I8, TC_I16, TC_I32}},
    [TC_U8] = {"U8", 8, 1, {TC_I16, TC_U16, TC_I32, TC_I64}},
    [TC_I8] = {"I8", 8, 1, {TC_I16, TC_I32, TC_I64}},
    [TC_U16] = {"U16", 16, 2, {TC_I32, TC_U32, TC_I64, TC_U64}},
    [TC_I16] = {"I16", 16, 2, {TC_I32, TC_I64}},
    [TC_U32] = {"U32", 32, 4, {TC_I64, TC_U64}},
    [TC_I32] = {"I32", 32, 4, {TC_I64}},
    [TC_U64] = {"U64", 64, 8, {0}},
    [TC_I64] = {"I64", 64, 8, {0}},
    [TC_F16] = {"F16", 16, 2, {TC_F32, TC_F64}},
    [TC_BF16] = {"BF16", 16, 2, {TC_F32, TC_F64}},
    [TC_F32] = {"F32", 32, 4, {TC_F64}},
    [TC_F64] = {"F64", 64, 8, {0}},
    [TC_C64] = {"C64", 64, 4, {TC_C128}},
    [TC_C128] = {"C128", 128, 8, {0}},
    [TC_F8_E4M3] = {"F8_E4M3", 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}},
    [TC_F8_E5M2] = {"F8_E5M2", 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}},
    [TC_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}},
    [TC_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}},
    [TC_F8_E8M0] = {"F8_E8M0", 8, 1, {TC_BF16, TC_F32, TC_F64}},
    [TC_F4] = {"F4", 4, 0, {0}},
    [TC_F6_E2M3] = {"F6_E2M3", 6, 0, {0}},
    [TC_F6_E3M2] = {"F6_E3M2", 6, 0, {0}},
    [TC_U4] = {"U4", 4, 0, {0}},
    [TC_I4] = {"I4", 4, 0, {0}},
    [TC_C32] = {"C32", 32, 2, {TC_C64, TC_C128}},
};

const char *tc_dtype_name(enum tc_dtype dtype) {
    return dtype < TC_DTYPES ? rows[dtype].name : "none";
}

enum tc_dtype tc_dtype_find(struct tc_text name) {
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
        if (tc_text_equal(name, tc_text_of(rows[dtype].name)))
            return dtype;
    return TC_NONE;
}

unsigned tc_dtype_bits(enum tc_dtype dtype) {
    return rows[dtype].bits;
}

unsigned tc_dtype_component(enum tc_dtype dtype) {
    return rows[dtype].component;
}

bool tc_dtype_packed(enum tc_dtype dtype) {
    return rows[dtype].component == 0;
}

bool tc_dtype_nbytes(enum tc_dtype dtype, uint64_t count, uint64_t *nbytes) {
    if (!tc_dtype_packed(dtype))
        return tc_mul(count, rows[dtype].bits / 8u, nbytes);
    uint64_t bits;
    if (!tc_mul(count, rows[dtype].bits, &bits) || bits % 8 != 0)
        return false;
    *nbytes = bits / 8;
    return true;
}

enum tc_dtype tc_dtype_promote(enum tc_dtype dtype, tc_dtype_set target) {
    if (target & TC_SET(dtype))
        return dtype;
    for (int i = 0; i < WIDENINGS && rows[dtype].wider[i]; i++)
        if (target & TC_SET(rows[dtype].wider[i]))
            return rows[dtype].wider[i];
    return TC_NONE;
}
