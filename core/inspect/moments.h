/*
 * Counts, extremes and exact sums of a tensor's elements. The pieces may be added in
 * any order and of any size: the result is the same.
 *
 *     struct tc_moments moments = {0};
 *     tc_moments_add(&moments, dtype, bytes, length) …   pieces of whole elements
 *     tc_moments_merge(&moments, &another) …             what another thread has
 *     tc_moments_finish(&moments, &stats)
 */
#ifndef TCONV_CORE_INSPECT_MOMENTS_H
#define TCONV_CORE_INSPECT_MOMENTS_H

#include "core/inspect/exact.h"
#include "core/tensor/dtype.h"

/* An exact value: integers have up to 64 bits, more than a double holds. */
struct tc_value {
    bool integer;
    bool negative;      /* of an integer */
    uint64_t magnitude; /* of an integer */
    double real;        /* of any other value */
};

struct tc_moments {
    uint64_t count;
    uint64_t zeros, nan, inf;
    bool any; /* there was a finite value, so min and max are set */
    struct tc_value min, max;
    struct tc_exact sum, squares;
};

/* min, max, mean and stddev are those of the finite values, and NaN where there are
 * none. Complex numbers count by their magnitude. */
struct tc_stats {
    uint64_t count;
    uint64_t zeros, nonzeros, nan, inf;
    struct tc_value min, max;
    double mean;
    double stddev; /* of the population */
};

/* `length` bytes, at any alignment: whole elements, and for packed dtypes a multiple
 * of three bytes, except in the tensor's last piece. */
void tc_moments_add(struct tc_moments *moments, enum tc_dtype dtype, const void *bytes,
                    size_t length);
void tc_moments_merge(struct tc_moments *into, const struct tc_moments *from);
void tc_moments_finish(struct tc_moments *moments, struct tc_stats *stats);

/* A complex number's magnitude; `component` is 4 or 8, the bytes of a component. */
double tc_magnitude(const unsigned char *bytes, unsigned component);

#endif
