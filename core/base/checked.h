/*
 * Arithmetic on sizes that a file had a say in: each function returns false
 * instead of wrapping around, and then leaves *result alone.
 */
#ifndef TCONV_CORE_BASE_CHECKED_H
#define TCONV_CORE_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool tc_add(uint64_t a, uint64_t b, uint64_t *result) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *result = sum;
    return true;
}

static inline bool tc_mul(uint64_t a, uint64_t b, uint64_t *result) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *result = product;
    return true;
}

/* Rounds up to a multiple of alignment, a power of two. */
static inline bool tc_align_up(uint64_t value, uint64_t alignment, uint64_t *result) {
    uint64_t sum;
    if (__builtin_add_overflow(value, alignment - 1, &sum))
        return false;
    *result = sum & ~(alignment - 1);
    return true;
}

/* Whether [offset, offset + length) lies within [0, size). */
static inline bool tc_range_within(uint64_t offset, uint64_t length, uint64_t size) {
    return offset <= size && length <= size - offset;
}

#endif
