/*
 * Element types: their names, sizes, and which type holds which without loss.
 */
#ifndef TCONV_CORE_TENSOR_DTYPE_H
#define TCONV_CORE_TENSOR_DTYPE_H

#include <stdbool.h>
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
    TC_DTYPES,
    TC_NONE = TC_DTYPES
};

/* A set of dtypes, one bit each: what a format stores as it is. */
typedef uint32_t tc_dtype_set;
#define TC_SET(dtype) ((tc_dtype_set)1 << (dtype))
#define TC_SET_INTEGERS                                                                            \
    (TC_SET(TC_U8) | TC_SET(TC_I8) | TC_SET(TC_U16) | TC_SET(TC_I16) | TC_SET(TC_U32) |            \
     TC_SET(TC_I32) | TC_SET(TC_U64) | TC_SET(TC_I64))
#define TC_SET_F8                                                                                  \
    (TC_SET(TC_F8_E4M3) | TC_SET(TC_F8_E5M2) | TC_SET(TC_F8_E4M3FNUZ) | TC_SET(TC_F8_E5M2FNUZ) |   \
     TC_SET(TC_F8_E8M0))

const char *tc_dtype_name(enum tc_dtype dtype);
/* TC_NONE where there is no such name; canonical spelling only. */
enum tc_dtype tc_dtype_find(struct tc_text name);
/* For what a user writes: accepts any usual name, such as "float16" or
 * "torch.half", in any case. */
enum tc_dtype tc_dtype_named(struct tc_text name);
/* Adds a hint after an error about an unknown dtype: the most similar name, then
 * `otherwise`. */
bool tc_dtype_hint(struct tc_text name, struct tc_error *error, const char *otherwise);
/* Bits an element takes: 4 and 6 for packed types, else a multiple of 8. */
unsigned tc_dtype_bits(enum tc_dtype dtype);
/* Bytes of one component: half an element for complex types, 0 when packed.
 * This is the unit in which byte order is swapped. */
unsigned tc_dtype_component(enum tc_dtype dtype);
bool tc_dtype_packed(enum tc_dtype dtype);
/* Each dtype is of one family: these three, or the truth values, TC_BOOL alone. Packed types are
 * of the family that their elements are of. */
bool tc_dtype_is_integer(enum tc_dtype dtype);
bool tc_dtype_is_float(enum tc_dtype dtype);
bool tc_dtype_is_complex(enum tc_dtype dtype);
/* Bytes of `count` elements. False when it overflows, or when packed elements
 * do not fill whole bytes. */
bool tc_dtype_nbytes(enum tc_dtype dtype, uint64_t count, uint64_t *nbytes);

/* The smallest dtype in `target` that holds every value of `dtype` exactly;
 * dtype itself where it is there; TC_NONE where there is none. */
enum tc_dtype tc_dtype_promote(enum tc_dtype dtype, tc_dtype_set target);

#endif
