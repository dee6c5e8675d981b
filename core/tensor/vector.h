/*
 * Loops that the compiler vectorises, compiled once for any CPU and once for one with AVX2: a
 * source includes its .inc file twice, the second time between TC_AVX2_BEGIN and TC_AVX2_END.
 */
#ifndef TCONV_CORE_TENSOR_VECTOR_H
#define TCONV_CORE_TENSOR_VECTOR_H

#include <stdint.h>

/* Elements as files have them, at any alignment. */
struct tc_u8 {
    uint8_t v;
} __attribute__((packed, may_alias));
struct tc_u16 {
    uint16_t v;
} __attribute__((packed, may_alias));
struct tc_u32 {
    uint32_t v;
} __attribute__((packed, may_alias));
struct tc_u64 {
    uint64_t v;
} __attribute__((packed, may_alias));

#if defined(__clang__)
#define TC_AVX2_BEGIN                                                                              \
    _Pragma("clang attribute push(__attribute__((target(\"avx2\"))), apply_to = function)")
#define TC_AVX2_END _Pragma("clang attribute pop")
#else
#define TC_AVX2_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2\")")
#define TC_AVX2_END _Pragma("GCC pop_options")
#endif

#endif
