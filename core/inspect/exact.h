/*
 * Sums without any rounding: a fixed-point number wide enough for every
 * double and for the square of every double. Since they are exact, they do
 * not depend on the order of their terms, and so not on threads or chunks.
 * What is derived from them is rounded once, to nearest, ties to even.
 */
#ifndef TCONV_CORE_INSPECT_EXACT_H
#define TCONV_CORE_INSPECT_EXACT_H

#include <stdbool.h>
#include <stdint.h>

/* The lowest bit is 2^-2176, below the square of the smallest subnormal; the highest
 * lies above 2^64 squares of the largest double. */
#define TC_EXACT_POINT 2176
#define TC_EXACT_LIMBS 138

/* Digits of base 2^32 in 64 bits: carries are delayed until after 2^30 terms. */
struct tc_exact {
    int64_t limb[TC_EXACT_LIMBS];
    uint32_t pending; /* terms since the last carry */
};

/* Adds ±magnitude × 2^exponent. */
void tc_exact_add(struct tc_exact *exact, uint64_t magnitude, bool negative, int exponent);
/* Adds a finite double. */
void tc_exact_add_double(struct tc_exact *exact, double value);
void tc_exact_merge(struct tc_exact *into, const struct tc_exact *from);

/* The mean, and the standard deviation of the population, of `count` > 0 terms whose
 * sum and sum of squares are given. Both carry the sums' digits, hence no const. */
double tc_exact_mean(struct tc_exact *sum, uint64_t count);
double tc_exact_deviation(struct tc_exact *sum, struct tc_exact *squares, uint64_t count);

#endif
