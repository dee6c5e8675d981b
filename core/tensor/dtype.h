/*
 * Element types: their names, sizes, and which type holds which without loss.
 *
 * Every dtype is some elements in some bytes. Most have one element in 1 to 16 bytes; packed ones
 * several in 1 or 3 bytes; block dtypes, which quantised models have, 32 to 256 elements with
 * their common scales in 17 to 210 bytes (core/tensor/block.h gives their values). A row of a
 * tensor of a block dtype, its innermost dimension, is a whole number of blocks.
 */
#ifndef TCONV_CORE_TENSOR_DTYPE_H
#define TCONV_CORE_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/text.h"

enum tc_dtype {
    TC_BOOL,
    TC_U8,
    TC_I8,
    TC_U16,
    TC_I16,
    TC_U32,
    TC_I32,
    TC_U64,
    TC_I64,
    TC_F16,
    TC_BF16,
    TC_F32,
    TC_F64,
    TC_C64,
    TC_C128,
    TC_F8_E4M3,
    TC_F8_E5M2,
    TC_F8_E4M3FNUZ,
    TC_F8_E5M2FNUZ,
    TC_F8_E8M0,
    TC_F4,
    TC_F6_E2M3,
    TC_F6_E3M2,
    TC_U4,
    TC_I4,
    TC_C32,
    /* Block dtypes, as ggml calls them. */
    TC_Q4_0,
    TC_Q4_1,
    TC_Q5_0,
    TC_Q5_1,
    TC_Q8_0,
    TC_Q2_K,
    TC_Q3_K,
    TC_Q4_K,
    TC_Q5_K,
    TC_Q6_K,
    TC_IQ2_XXS,
    TC_IQ2_XS,
    TC_IQ2_S,
    TC_IQ3_XXS,
    TC_IQ3_S,
    TC_IQ1_S,
    TC_IQ1_M,
    TC_IQ4_NL,
    TC_IQ4_XS,
    TC_TQ1_0,
    TC_TQ2_0,
    TC_MXFP4,
    TC_NVFP4,
    TC_Q1_0,
    TC_Q2_0,
    TC_DTYPES,
    TC_NONE = TC_DTYPES
};

/* A set of dtypes, one bit each: what a format stores as it is. */
typedef uint64_t tc_dtype_set;
#define TC_SET(dtype) ((tc_dtype_set)1 << (dtype))
#define TC_SET_INTEGERS                                                                            \
    (TC_SET(TC_U8) | TC_SET(TC_I8) | TC_SET(TC_U16) | TC_SET(TC_I16) | TC_SET(TC_U32) |            \
     TC_SET(TC_I32) | TC_SET(TC_U64) | TC_SET(TC_I64))
#define TC_SET_F8                                                                                  \
    (TC_SET(TC_F8_E4M3) | TC_SET(TC_F8_E5M2) | TC_SET(TC_F8_E4M3FNUZ) | TC_SET(TC_F8_E5M2FNUZ) |   \
     TC_SET(TC_F8_E8M0))
/* All block dtypes. */
#define TC_SET_BLOCKS (TC_SET(TC_DTYPES) - TC_SET(TC_Q4_0))

const char *tc_dtype_name(enum tc_dtype dtype);
/* TC_NONE where there is no such name; canonical spelling only. */
enum tc_dtype tc_dtype_find(struct tc_text name);
/* For what a user writes: accepts any usual name, such as "float16" or
 * "torch.half", in any case. */
enum tc_dtype tc_dtype_named(struct tc_text name);
/* Adds a hint after an error about an unknown dtype: the most similar name, then
 * `otherwise`. */
bool tc_dtype_hint(struct tc_text name, struct tc_error *error, const char *otherwise);
/* The fewest elements that fill whole bytes, and how many bytes those are. */
unsigned tc_dtype_block_elements(enum tc_dtype dtype);
unsigned tc_dtype_block_bytes(enum tc_dtype dtype);
/* Whether its elements come in blocks with common scales. */
bool tc_dtype_is_block(enum tc_dtype dtype);
/* Bits an element takes: 4 and 6 for packed types, else a multiple of 8; not for block dtypes,
 * which have no whole number of bits. */
unsigned tc_dtype_bits(enum tc_dtype dtype);
/* Bytes of one component: half an element for complex types, 0 when packed.
 * This is the unit in which byte order is swapped. */
unsigned tc_dtype_component(enum tc_dtype dtype);
/* Whether one element does not fill whole bytes; true for block dtypes too. */
bool tc_dtype_packed(enum tc_dtype dtype);
/* Each dtype is of one family: these three, or the truth values, TC_BOOL alone. Packed types are
 * of the family that their elements are of. */
bool tc_dtype_is_integer(enum tc_dtype dtype);
bool tc_dtype_is_float(enum tc_dtype dtype);
bool tc_dtype_is_complex(enum tc_dtype dtype);
/* Bytes of `count` elements. False when it overflows, or when packed elements
 * do not fill whole bytes or blocks. */
bool tc_dtype_nbytes(enum tc_dtype dtype, uint64_t count, uint64_t *nbytes);
/* The same for elements that are in memory already, so that nothing overflows; `count` must fill
 * whole blocks. */
size_t tc_dtype_span(enum tc_dtype dtype, size_t count);

/* The smallest dtype in `target` that holds every value of `dtype` exactly;
 * dtype itself where it is there; TC_NONE where there is none. */
enum tc_dtype tc_dtype_promote(enum tc_dtype dtype, tc_dtype_set target);

#endif
