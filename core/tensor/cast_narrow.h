/*
 * Casts of F32 and F64 to dtypes of 8 and 16 bits that also say what was lost, in one pass over
 * registers: the rounded value is at hand where its bits are made, so that nothing is read back.
 * Blocks with values that are rare (Inf and NaN), and those with a new largest error, which takes a
 * division to find, are left to the caller. There is one table per set of instructions, all
 * compiled from the same source.
 */
#ifndef TCONV_CORE_TENSOR_CAST_NARROW_H
#define TCONV_CORE_TENSOR_CAST_NARROW_H

#include <stddef.h>
#include <stdint.h>

#include "core/tensor/dtype.h"

/* The largest errors so far, and the bits (of an F64) of a value that has the largest relative one,
 * and its mantissa's: values of few bits have the same error again and again. */
struct tc_narrow_bounds {
    double max_abs;
    double max_rel;
    uint64_t mantissa; /* UINT64_MAX: not known */
    uint64_t value;
};

/* What a block lost. */
struct tc_narrow_found {
    uint64_t overflow, underflow, nan_made, inexact;
    bool special; /* there are Inf or NaN: neither the result nor the rest of this is valid */
    bool larger;  /* an error may be larger than those before */
};

/* Casts at most TC_NARROW_MOST elements. */
typedef void tc_narrow_loop(const void *source, void *target, size_t count,
                            const struct tc_narrow_bounds *bounds, struct tc_narrow_found *found);
#define TC_NARROW_MOST 1024u

struct tc_narrow_table {
    tc_narrow_loop *of_f32[TC_DTYPES]; /* by target; NULL: there is none */
    tc_narrow_loop *of_f64[TC_DTYPES];
};

/* For the set of instructions that is in use. */
const struct tc_narrow_table *tc_narrow_table(void);

#endif
