#include "core/inspect/compare_values.h"

#include <math.h>
#include <string.h>

#include "core/tensor/cast.h"

/* Small enough that a block's numbers stay in the CPU's first cache. */
#define BLOCK 512u
#define WIDEST 16u /* bytes of an element: C128 */

/* Which arithmetic is exact for a pair of dtypes. */
enum lane { PACKED, REAL, INTEGER, WIDE };

struct run {
    const struct tc_tolerance *tolerance;
    enum tc_dtype a;
    enum tc_dtype b;
    struct tc_value_diff *diff;
    uint64_t at; /* index of the block's first element */
};

/* Truth values compare with integers as 0 and 1. */
static bool is_integer(enum tc_dtype dtype) {
    return dtype == TC_BOOL || tc_dtype_is_integer(dtype);
}

static bool is_long(enum tc_dtype dtype) {
    return dtype == TC_U64 || dtype == TC_I64;
}

static enum lane lane_of(enum tc_dtype a, enum tc_dtype b) {
    if (tc_dtype_packed(a) && !tc_dtype_is_block(a))
        return PACKED;
    if (tc_cast_lossless(a, TC_F64) && tc_cast_lossless(b, TC_F64))
        return REAL;
    return is_integer(a) && is_integer(b) ? INTEGER : WIDE;
}

bool tc_values_comparable(enum tc_dtype a, enum tc_dtype b, bool numeric) {
    return a == b || (numeric && (tc_cast_exists(a, b) || tc_cast_exists(b, a)));
}

/* Counts a pair that differs; `gap` is NaN where one of the two is; `same`: only
 * the bits differ. */
static inline void note(struct tc_value_diff *diff, uint64_t at, double gap, double size,
                        bool same) {
    if (diff->differing++ == 0)
        diff->first = diff->worst = at;
    if (same) {
        diff->bits_only++;
        return;
    }
    if (isnan(gap)) {
        diff->nan++;
        return;
    }
    if (gap > diff->max_abs) {
        diff->max_abs = gap;
        diff->worst = at;
    }
    if (isinf(gap) || size == 0)
        diff->max_rel = INFINITY;
    else if (gap > diff->max_rel * size) /* a product costs less than a quotient */
        diff->max_rel = fmax(diff->max_rel, gap / size);
}

/* No tolerance makes an infinity close to anything. */
static bool is_close(const struct tc_tolerance *tolerance, long double gap, long double size) {
    return isfinite(gap) && isfinite(size) &&
           gap <= (long double)tolerance->absolute + (long double)tolerance->relative * size;
}

/* Widens to F64, by way of F32 where that has a fast path. */
static void widen(enum tc_dtype dtype, const unsigned char *from, double *to, size_t count) {
    float halfway[BLOCK];
    if (dtype == TC_BF16 || dtype == TC_F16) {
        tc_cast(dtype, TC_F32, from, halfway, count, NULL);
        tc_cast(TC_F32, TC_F64, halfway, to, count, NULL);
    } else if (dtype == TC_F64) {
        memcpy(to, from, count * sizeof *to);
    } else {
        tc_cast(dtype, TC_F64, from, to, count, NULL);
    }
}

/* Widening is injective, so that the widened bits are equal only where the original
 * bits are. */
static void compare_reals(const struct run *run, const unsigned char *a, const unsigned char *b,
                          size_t count) {
    double x[BLOCK];
    double y[BLOCK];
    widen(run->a, a, x, count);
    widen(run->b, b, y, count);
    const struct tc_tolerance tolerance = *run->tolerance;
    struct tc_value_diff diff = *run->diff; /* a copy is kept in registers */
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&x[i], &y[i], sizeof x[i]) == 0)
            continue;
        double gap = fabs(x[i] - y[i]);
        double size = fabs(y[i]);
        bool plain = gap > 0 && gap < INFINITY && size < INFINITY;
        bool same = !plain && (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])));
        if (tolerance.numeric &&
            (same || (plain && gap <= tolerance.absolute + tolerance.relative * size)))
            continue;
        note(&diff, run->at + i, gap, size, same);
    }
    *run->diff = diff;
}

__extension__ typedef __int128 wide_integer;

static void load_integers(enum tc_dtype dtype, const unsigned char *from, wide_integer *to,
                          size_t count) {
    int64_t values[BLOCK];
    if (is_long(dtype))
        memcpy(values, from, count * sizeof *values);
    else
        tc_cast(dtype, TC_I64, from, values, count, NULL);
    for (size_t i = 0; i < count; i++)
        to[i] = dtype == TC_U64 ? (wide_integer)(uint64_t)values[i] : values[i];
}

static void compare_integers(const struct run *run, const unsigned char *a, const unsigned char *b,
                             size_t count) {
    wide_integer x[BLOCK];
    wide_integer y[BLOCK];
    load_integers(run->a, a, x, count);
    load_integers(run->b, b, y, count);
    for (size_t i = 0; i < count; i++) {
        if (x[i] == y[i])
            continue;
        wide_integer gap = x[i] < y[i] ? y[i] - x[i] : x[i] - y[i];
        wide_integer size = y[i] < 0 ? -y[i] : y[i];
        if (run->tolerance->numeric &&
            is_close(run->tolerance, (long double)gap, (long double)size))
            continue;
        note(run->diff, run->at + i, (double)gap, (double)size, false);
    }
}

struct wide {
    long double real;
    long double imaginary;
};

/* Extended precision holds 64-bit integers; complex numbers come as C128. */
static void load_wide(enum tc_dtype dtype, const unsigned char *from, struct wide *to,
                      size_t count) {
    double parts[BLOCK][2];
    if (!is_long(dtype))
        tc_cast(dtype, TC_C128, from, parts, count, NULL);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        if (!is_long(dtype)) {
            to[i] = (struct wide){parts[i][0], parts[i][1]};
            continue;
        }
        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        to[i] = (struct wide){
            dtype == TC_U64 ? (long double)bits : (long double)(int64_t)bits,
            0,
        };
    }
}

static long double distance(long double x, long double y) {
    return x == y || (isnan(x) && isnan(y)) ? 0 : fabsl(x - y);
}

static bool one_is_nan(struct wide x, struct wide y) {
    return isnan(x.real) != isnan(y.real) || isnan(x.imaginary) != isnan(y.imaginary);
}

static void compare_wide(const struct run *run, const unsigned char *a, const unsigned char *b,
                         size_t count) {
    struct wide x[BLOCK];
    struct wide y[BLOCK];
    size_t bytes = tc_dtype_bits(run->a) / 8;
    load_wide(run->a, a, x, count);
    load_wide(run->b, b, y, count);
    for (size_t i = 0; i < count; i++) {
        if (run->a == run->b && memcmp(a + i * bytes, b + i * bytes, bytes) == 0)
            continue;
        long double real = distance(x[i].real, y[i].real);
        long double imaginary = distance(x[i].imaginary, y[i].imaginary);
        bool nan = one_is_nan(x[i], y[i]);
        bool same = !nan && real == 0 && imaginary == 0;
        long double gap = nan ? (long double)NAN : hypotl(real, imaginary);
        long double size = hypotl(y[i].real, y[i].imaginary);
        if (run->tolerance->numeric && (same || is_close(run->tolerance, gap, size)))
            continue;
        note(run->diff, run->at + i, (double)gap, (double)size, same);
    }
}

/* Elements lie from the lowest bit up; only their bits are compared. */
static void compare_packed(const struct run *run, const unsigned char *a, const unsigned char *b,
                           size_t count) {
    unsigned bits = tc_dtype_bits(run->a);
    for (size_t i = 0; i < count; i++) {
        unsigned other = 0;
        for (size_t bit = i * bits; bit < (i + 1) * bits; bit++)
            other |= (unsigned)(a[bit / 8] ^ b[bit / 8]) >> bit % 8 & 1u;
        if (other)
            note(run->diff, run->at + i, 0, 1, false);
    }
}

static void compare_block(const struct run *run, enum lane lane, const unsigned char *a,
                          const unsigned char *b, size_t count) {
    switch (lane) {
    case PACKED:
        compare_packed(run, a, b, count);
        break;
    case REAL:
        compare_reals(run, a, b, count);
        break;
    case INTEGER:
        compare_integers(run, a, b, count);
        break;
    case WIDE:
        compare_wide(run, a, b, count);
        break;
    }
}

/* Whether one block, cast without loss to the other's dtype, has the same bits:
 * then elements need not be compared one by one. */
static bool cast_is_same(const struct run *run, const unsigned char *a, const unsigned char *b,
                         size_t count) {
    unsigned char as_other[BLOCK * WIDEST];
    if (run->a == run->b)
        return memcmp(a, b, tc_dtype_span(run->a, count)) == 0;
    if (tc_cast_lossless(run->a, run->b)) {
        tc_cast(run->a, run->b, a, as_other, count, NULL);
        return memcmp(as_other, b, tc_dtype_span(run->b, count)) == 0;
    }
    if (tc_cast_lossless(run->b, run->a)) {
        tc_cast(run->b, run->a, b, as_other, count, NULL);
        return memcmp(as_other, a, tc_dtype_span(run->a, count)) == 0;
    }
    return false;
}

/* Two blocks of a block dtype may stand for the same values in other bits: such a block counts as
 * one element that differs in bits only. */
static void note_other_codes(const struct run *run, const unsigned char *a, const unsigned char *b,
                             size_t count) {
    if (run->a != run->b || !tc_dtype_is_block(run->a) || run->tolerance->numeric)
        return;
    size_t elements = tc_dtype_block_elements(run->a);
    size_t bytes = tc_dtype_block_bytes(run->a);
    for (size_t i = 0; i < count / elements; i++) {
        float x[256];
        float y[256];
        tc_cast(run->a, TC_F32, a + i * bytes, x, elements, NULL);
        tc_cast(run->b, TC_F32, b + i * bytes, y, elements, NULL);
        if (memcmp(a + i * bytes, b + i * bytes, bytes) != 0 &&
            memcmp(x, y, elements * sizeof *x) == 0)
            note(run->diff, run->at + i * elements, 0, 1, true);
    }
}

void tc_values_compare(const struct tc_tolerance *tolerance, enum tc_dtype a, enum tc_dtype b,
                       const void *x, const void *y, size_t count, uint64_t at,
                       struct tc_value_diff *diff) {
    if (a == b && memcmp(x, y, tc_dtype_span(a, count)) == 0)
        return;
    /* As U8, so that a truth value that is neither 0 nor 1 differs from 1. */
    a = a == TC_BOOL ? TC_U8 : a;
    b = b == TC_BOOL ? TC_U8 : b;
    struct run run = {.tolerance = tolerance, .a = a, .b = b, .diff = diff};
    enum lane lane = lane_of(a, b);
    for (size_t done = 0; done < count;) {
        size_t step = count - done < BLOCK ? count - done : BLOCK;
        const unsigned char *from_a = (const unsigned char *)x + tc_dtype_span(a, done);
        const unsigned char *from_b = (const unsigned char *)y + tc_dtype_span(b, done);
        run.at = at + done;
        if (!cast_is_same(&run, from_a, from_b, step)) {
            compare_block(&run, lane, from_a, from_b, step);
            note_other_codes(&run, from_a, from_b, step);
        }
        done += step;
    }
}
