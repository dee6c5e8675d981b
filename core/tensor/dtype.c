#include "core/tensor/dtype.h"

#include <string.h>
#include <strings.h>

#include "core/base/checked.h"
#include "core/base/near.h"

#define WIDENINGS 4

/* F32 holds the values of every block dtype as its reference computes them. */
#define BLOCK(name, elements, bytes)                                                               \
    { name, FLOAT, 0, 0, {TC_F32, TC_F64}, elements, bytes }

/* `wider` lists, smallest first, the types that hold every value exactly.
 * An absent entry reads as TC_BOOL, which nothing widens to. */
static const struct dtype_row {
    const char *name;
    enum { TRUTH, INTEGER, FLOAT, COMPLEX } family;
    uint8_t bits;
    uint8_t component;
    uint8_t wider[WIDENINGS];
    /* Of a block dtype; 0: it is none. */
    uint16_t elements;
    uint16_t bytes;
} rows[TC_DTYPES] = {
    [TC_BOOL] = {"BOOL", TRUTH, 8, 1, {TC_U8, TC_I8, TC_I16, TC_I32}, 0, 0},
    [TC_U8] = {"U8", INTEGER, 8, 1, {TC_I16, TC_U16, TC_I32, TC_I64}, 0, 0},
    [TC_I8] = {"I8", INTEGER, 8, 1, {TC_I16, TC_I32, TC_I64}, 0, 0},
    [TC_U16] = {"U16", INTEGER, 16, 2, {TC_I32, TC_U32, TC_I64, TC_U64}, 0, 0},
    [TC_I16] = {"I16", INTEGER, 16, 2, {TC_I32, TC_I64}, 0, 0},
    [TC_U32] = {"U32", INTEGER, 32, 4, {TC_I64, TC_U64}, 0, 0},
    [TC_I32] = {"I32", INTEGER, 32, 4, {TC_I64}, 0, 0},
    [TC_U64] = {"U64", INTEGER, 64, 8, {0}, 0, 0},
    [TC_I64] = {"I64", INTEGER, 64, 8, {0}, 0, 0},
    [TC_F16] = {"F16", FLOAT, 16, 2, {TC_F32, TC_F64}, 0, 0},
    [TC_BF16] = {"BF16", FLOAT, 16, 2, {TC_F32, TC_F64}, 0, 0},
    [TC_F32] = {"F32", FLOAT, 32, 4, {TC_F64}, 0, 0},
    [TC_F64] = {"F64", FLOAT, 64, 8, {0}, 0, 0},
    [TC_C64] = {"C64", COMPLEX, 64, 4, {TC_C128}, 0, 0},
    [TC_C128] = {"C128", COMPLEX, 128, 8, {0}, 0, 0},
    [TC_F8_E4M3] = {"F8_E4M3", FLOAT, 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}, 0, 0},
    [TC_F8_E5M2] = {"F8_E5M2", FLOAT, 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}, 0, 0},
    [TC_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", FLOAT, 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}, 0, 0},
    [TC_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", FLOAT, 8, 1, {TC_F16, TC_BF16, TC_F32, TC_F64}, 0, 0},
    [TC_F8_E8M0] = {"F8_E8M0", FLOAT, 8, 1, {TC_BF16, TC_F32, TC_F64}, 0, 0},
    [TC_F4] = {"F4", FLOAT, 4, 0, {0}, 0, 0},
    [TC_F6_E2M3] = {"F6_E2M3", FLOAT, 6, 0, {0}, 0, 0},
    [TC_F6_E3M2] = {"F6_E3M2", FLOAT, 6, 0, {0}, 0, 0},
    [TC_U4] = {"U4", INTEGER, 4, 0, {0}, 0, 0},
    [TC_I4] = {"I4", INTEGER, 4, 0, {0}, 0, 0},
    [TC_C32] = {"C32", COMPLEX, 32, 2, {TC_C64, TC_C128}, 0, 0},
    [TC_Q4_0] = BLOCK("Q4_0", 32, 18),
    [TC_Q4_1] = BLOCK("Q4_1", 32, 20),
    [TC_Q5_0] = BLOCK("Q5_0", 32, 22),
    [TC_Q5_1] = BLOCK("Q5_1", 32, 24),
    [TC_Q8_0] = BLOCK("Q8_0", 32, 34),
    [TC_Q2_K] = BLOCK("Q2_K", 256, 84),
    [TC_Q3_K] = BLOCK("Q3_K", 256, 110),
    [TC_Q4_K] = BLOCK("Q4_K", 256, 144),
    [TC_Q5_K] = BLOCK("Q5_K", 256, 176),
    [TC_Q6_K] = BLOCK("Q6_K", 256, 210),
    [TC_IQ2_XXS] = BLOCK("IQ2_XXS", 256, 66),
    [TC_IQ2_XS] = BLOCK("IQ2_XS", 256, 74),
    [TC_IQ2_S] = BLOCK("IQ2_S", 256, 82),
    [TC_IQ3_XXS] = BLOCK("IQ3_XXS", 256, 98),
    [TC_IQ3_S] = BLOCK("IQ3_S", 256, 110),
    [TC_IQ1_S] = BLOCK("IQ1_S", 256, 50),
    [TC_IQ1_M] = BLOCK("IQ1_M", 256, 56),
    [TC_IQ4_NL] = BLOCK("IQ4_NL", 32, 18),
    [TC_IQ4_XS] = BLOCK("IQ4_XS", 256, 136),
    [TC_TQ1_0] = BLOCK("TQ1_0", 256, 54),
    [TC_TQ2_0] = BLOCK("TQ2_0", 256, 66),
    [TC_MXFP4] = BLOCK("MXFP4", 32, 17),
    [TC_NVFP4] = BLOCK("NVFP4", 64, 36),
    [TC_Q1_0] = BLOCK("Q1_0", 128, 18),
    [TC_Q2_0] = BLOCK("Q2_0", 64, 18),
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

/*
 * What people and their programs call them; case, '_' and '-' do not matter.
 * numpy's short codes are not here: its f4 has four bytes, our F4 four bits.
 */
static const struct dtype_alias {
    enum tc_dtype dtype;
    const char *name;
} aliases[] = {
    {TC_BOOL, "boolean"},
    {TC_U8, "uint8"},
    {TC_U8, "byte"},
    {TC_U8, "ubyte"},
    {TC_I8, "int8"},
    {TC_I8, "char"},
    {TC_U16, "uint16"},
    {TC_U16, "ushort"},
    {TC_I16, "int16"},
    {TC_I16, "short"},
    {TC_U32, "uint32"},
    {TC_U32, "uint"},
    {TC_I32, "int32"},
    {TC_I32, "int"},
    {TC_U64, "uint64"},
    {TC_U64, "ulong"},
    {TC_I64, "int64"},
    {TC_I64, "long"},
    {TC_F16, "float16"},
    {TC_F16, "fp16"},
    {TC_F16, "half"},
    {TC_BF16, "bfloat16"},
    {TC_BF16, "bfloat"},
    {TC_BF16, "bfp16"},
    {TC_F32, "float32"},
    {TC_F32, "fp32"},
    {TC_F32, "float"},
    {TC_F32, "single"},
    {TC_F64, "float64"},
    {TC_F64, "fp64"},
    {TC_F64, "double"},
    {TC_C64, "complex64"},
    {TC_C64, "cfloat"},
    {TC_C64, "csingle"},
    {TC_C128, "complex128"},
    {TC_C128, "cdouble"},
    {TC_C32, "complex32"},
    {TC_C32, "chalf"},
    {TC_F8_E4M3, "float8_e4m3fn"},
    {TC_F8_E4M3, "float8_e4m3"},
    {TC_F8_E4M3, "fp8_e4m3fn"},
    {TC_F8_E4M3, "fp8_e4m3"},
    {TC_F8_E4M3, "f8_e4m3fn"},
    {TC_F8_E4M3, "e4m3fn"},
    {TC_F8_E4M3, "e4m3"},
    {TC_F8_E5M2, "float8_e5m2"},
    {TC_F8_E5M2, "fp8_e5m2"},
    {TC_F8_E5M2, "e5m2"},
    {TC_F8_E4M3FNUZ, "float8_e4m3fnuz"},
    {TC_F8_E4M3FNUZ, "fp8_e4m3fnuz"},
    {TC_F8_E4M3FNUZ, "e4m3fnuz"},
    {TC_F8_E5M2FNUZ, "float8_e5m2fnuz"},
    {TC_F8_E5M2FNUZ, "fp8_e5m2fnuz"},
    {TC_F8_E5M2FNUZ, "e5m2fnuz"},
    {TC_F8_E8M0, "float8_e8m0fnu"},
    {TC_F8_E8M0, "float8_e8m0"},
    {TC_F8_E8M0, "fp8_e8m0"},
    {TC_F8_E8M0, "f8_e8m0fnu"},
    {TC_F8_E8M0, "e8m0fnu"},
    {TC_F8_E8M0, "e8m0"},
    {TC_F4, "float4_e2m1fn_x2"},
    {TC_F4, "float4_e2m1fn"},
    {TC_F4, "float4_e2m1"},
    {TC_F4, "fp4_e2m1"},
    {TC_F4, "f4_e2m1"},
    {TC_F4, "float4"},
    {TC_F4, "fp4"},
    {TC_F4, "e2m1"},
    {TC_F6_E2M3, "float6_e2m3fn"},
    {TC_F6_E2M3, "float6_e2m3"},
    {TC_F6_E2M3, "fp6_e2m3"},
    {TC_F6_E2M3, "e2m3"},
    {TC_F6_E3M2, "float6_e3m2fn"},
    {TC_F6_E3M2, "float6_e3m2"},
    {TC_F6_E3M2, "fp6_e3m2"},
    {TC_F6_E3M2, "e3m2"},
    {TC_U4, "uint4"},
    {TC_I4, "int4"},
};
#define ALIASES (sizeof aliases / sizeof *aliases)

/* The name without a library's prefix, as in "torch.float16" or "DT_FLOAT". */
static struct tc_text without_library(struct tc_text name) {
    static const char *const libraries[] = {
        "torch.",     "np.",         "numpy.",     "jnp.",         "jax.numpy.",        "tf.",
        "tf.dtypes.", "tensorflow.", "ml_dtypes.", "tensorproto.", "onnx.tensorproto.", "mx.",
        "dt_"};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        size_t length = strlen(libraries[i]);
        if (name.length > length && strncasecmp(name.bytes, libraries[i], length) == 0)
            return (struct tc_text){name.bytes + length, name.length - length};
    }
    return name;
}

enum tc_dtype tc_dtype_named(struct tc_text name) {
    struct tc_text own = without_library(name);
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
        if (tc_names_alike(own, tc_text_of(rows[dtype].name)))
            return dtype;
    for (size_t i = 0; i < ALIASES; i++)
        if (tc_names_alike(own, tc_text_of(aliases[i].name)))
            return aliases[i].dtype;
    return TC_NONE;
}

bool tc_dtype_hint(struct tc_text name, struct tc_error *error, const char *otherwise) {
    struct tc_near near;
    tc_near_init(&near, without_library(name));
    for (enum tc_dtype dtype = 0; dtype < TC_DTYPES; dtype++)
        tc_near_try(&near, tc_text_of(rows[dtype].name));
    for (size_t i = 0; i < ALIASES; i++)
        tc_near_try(&near, tc_text_of(aliases[i].name));
    return tc_near_hint(&near, error, otherwise);
}

unsigned tc_dtype_bits(enum tc_dtype dtype) {
    return rows[dtype].bits;
}

unsigned tc_dtype_component(enum tc_dtype dtype) {
    return rows[dtype].component;
}

bool tc_dtype_is_integer(enum tc_dtype dtype) {
    return rows[dtype].family == INTEGER;
}

bool tc_dtype_is_float(enum tc_dtype dtype) {
    return rows[dtype].family == FLOAT;
}

bool tc_dtype_is_complex(enum tc_dtype dtype) {
    return rows[dtype].family == COMPLEX;
}

bool tc_dtype_packed(enum tc_dtype dtype) {
    return rows[dtype].component == 0;
}

bool tc_dtype_is_block(enum tc_dtype dtype) {
    return rows[dtype].elements != 0;
}

unsigned tc_dtype_block_elements(enum tc_dtype dtype) {
    const struct dtype_row *row = &rows[dtype];
    return row->elements ? row->elements : row->bits == 4 ? 2 : row->bits == 6 ? 4 : 1;
}

unsigned tc_dtype_block_bytes(enum tc_dtype dtype) {
    const struct dtype_row *row = &rows[dtype];
    return row->elements ? row->bytes : tc_dtype_block_elements(dtype) * row->bits / 8;
}

size_t tc_dtype_span(enum tc_dtype dtype, size_t count) {
    return count / tc_dtype_block_elements(dtype) * tc_dtype_block_bytes(dtype);
}

bool tc_dtype_nbytes(enum tc_dtype dtype, uint64_t count, uint64_t *nbytes) {
    unsigned elements = tc_dtype_block_elements(dtype);
    return count % elements == 0 && tc_mul(count / elements, tc_dtype_block_bytes(dtype), nbytes);
}

enum tc_dtype tc_dtype_promote(enum tc_dtype dtype, tc_dtype_set target) {
    if (target & TC_SET(dtype))
        return dtype;
    for (int i = 0; i < WIDENINGS && rows[dtype].wider[i]; i++)
        if (target & TC_SET(rows[dtype].wider[i]))
            return rows[dtype].wider[i];
    return TC_NONE;
}
