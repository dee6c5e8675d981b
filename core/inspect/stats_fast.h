/*
 * The inner loops of statistics: one table per set of instructions, all compiled
 * from the same source. Each loop takes a block of at most TC_STATS_BLOCK values.
 */
#ifndef TCONV_CORE_INSPECT_STATS_FAST_H
#define TCONV_CORE_INSPECT_STATS_FAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TC_STATS_BLOCK 1024

/* What one pass over a block of floats finds. */
struct tc_scan {
    uint64_t zeros, nan, inf;
    double min, max; /* of the finite values; meaningless where there are none */
    double top;      /* the largest magnitude of a finite value */
};

/* What one pass over a block of integers finds. The sum of squares is
 * low + 2^32 high. */
struct tc_integers {
    uint64_t zeros;
    int64_t min, max;
    int64_t sum;
    uint64_t low, high;
};

struct tc_stats_table {
    const char *cpu;
    /* Scans a block and converts its values to doubles, with 0 in place of NaN and
     * Inf. */
    void (*scan_f32)(const void *source, size_t count, double *values, struct tc_scan *scan);
    void (*scan_f64)(const void *source, size_t count, double *values, struct tc_scan *scan);
    /* Exact sums of values of at most 24 bits (sums[0]) and of their squares
     * (sums[1] + sums[2]). `values` has zeros up to the end of a full block; `top`
     * is the largest magnitude and not zero. False where the magnitudes differ too
     * much for that. */
    bool (*sum_f32)(const double *values, size_t count, double top, double sums[3]);
    /* For integers within ±2^32. */
    void (*sum_integers)(const int64_t *values, size_t count, struct tc_integers *result);
};

extern const struct tc_stats_table tc_stats_plain;
#if defined(__x86_64__)
extern const struct tc_stats_table tc_stats_avx2;
#endif

#endif
