/*
 * The conversions that models need most, in loops that the compiler vectorises.
 * There is one table per set of instructions, all compiled from the same source.
 */
#ifndef TCONV_CORE_TENSOR_CAST_FAST_H
#define TCONV_CORE_TENSOR_CAST_FAST_H

#include "core/tensor/cast_report.h"

typedef void tc_cast_loop(const void *source, void *target, size_t count);
/* Compares `count` values with the result of narrowing and widening them again. */
typedef void tc_cast_compare(const void *source, const void *widened, size_t count,
                             struct tc_cast_report *report);

struct tc_cast_table {
    const char *cpu;
    tc_cast_loop *bf16_f32, *f32_bf16, *f16_f32, *f32_f16, *f32_f64, *f64_f32, *u16_f32, *i16_f32;
    tc_cast_compare *compare_f32, *compare_f64;
};

extern const struct tc_cast_table tc_cast_plain;
#if defined(__x86_64__)
extern const struct tc_cast_table tc_cast_avx2;
#endif

#endif
