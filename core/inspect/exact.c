#include "core/inspect/exact.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef unsigned __int128 u128;

#define CARRY_AFTER (1u << 30)

/* The same number in digits of base 2^64, without its sign. Digit i weighs
 * 2^(64 i - TC_EXACT_POINT). */
#define WIDE 72
struct wide {
    uint64_t limb[WIDE];
    int low, high; /* all digits that are not zero lie in [low, high) */
    bool negative;
};

static void carry(struct tc_exact *exact) {
    for (int i = 0; i + 1 < TC_EXACT_LIMBS; i++) {
        int64_t over = exact->limb[i] >> 32;
        exact->limb[i] &= 0xFFFFFFFF;
        exact->limb[i + 1] += over;
    }
    exact->pending = 0;
}

static void count_term(struct tc_exact *exact, uint32_t terms) {
    exact->pending += terms;
    if (exact->pending >= CARRY_AFTER)
        carry(exact);
}

void tc_exact_add(struct tc_exact *exact, uint64_t magnitude, bool negative, int exponent) {
    unsigned place = (unsigned)(exponent + TC_EXACT_POINT);
    int64_t *limb = &exact->limb[place / 32];
    u128 shifted = (u128)magnitude << place % 32;
    int64_t sign = negative ? -1 : 1;
    limb[0] += sign * (int64_t)(uint32_t)shifted;
    limb[1] += sign * (int64_t)(uint32_t)(shifted >> 32);
    limb[2] += sign * (int64_t)(uint32_t)(shifted >> 64);
    count_term(exact, 1);
}

void tc_exact_add_double(struct tc_exact *exact, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7FF);
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    if (exponent)
        mantissa |= UINT64_C(1) << 52;
    else
        exponent = 1;
    if (mantissa)
        tc_exact_add(exact, mantissa, bits >> 63, exponent - 1075);
}

void tc_exact_merge(struct tc_exact *into, const struct tc_exact *from) {
    for (int i = 0; i < TC_EXACT_LIMBS; i++)
        into->limb[i] += from->limb[i];
    count_term(into, from->pending + 1);
}

static void widen(struct wide *wide, struct tc_exact *exact) {
    carry(exact);
    *wide = (struct wide){.negative = exact->limb[TC_EXACT_LIMBS - 1] < 0};
    struct tc_exact magnitude = *exact;
    if (wide->negative) {
        for (int i = 0; i < TC_EXACT_LIMBS; i++)
            magnitude.limb[i] = -magnitude.limb[i];
        carry(&magnitude);
    }
    for (int i = TC_EXACT_LIMBS - 1; i >= 0; i--) {
        wide->limb[i / 2] |= (uint64_t)magnitude.limb[i] << 32 * (i % 2);
        if (magnitude.limb[i]) {
            wide->low = i / 2;
            wide->high = wide->high ? wide->high : i / 2 + 1;
        }
    }
}

/* The leading digits of a number, highest first, and whether more follow. */
#define LEADING 7
struct leading {
    uint64_t limb[LEADING];
    int first;   /* the position of limb[0] in struct wide */
    bool sticky; /* what was cut off is not zero */
};

static struct leading lead(const struct wide *wide) {
    struct leading leading = {.first = wide->high - 1};
    for (int i = 0; i < LEADING && leading.first - i >= wide->low; i++)
        leading.limb[i] = wide->limb[leading.first - i];
    leading.sticky = wide->high - wide->low > LEADING;
    return leading;
}

static void divide(struct leading *number, uint64_t divisor) {
    uint64_t rest = 0;
    for (int i = 0; i < LEADING; i++) {
        u128 part = (u128)rest << 64 | number->limb[i];
        number->limb[i] = (uint64_t)(part / divisor);
        rest = (uint64_t)(part % divisor);
    }
    number->sticky |= rest != 0;
}

/* The first 128 bits, from the leading one on, and the exponent of the last of them.
 * The number must not be zero; after two divisions there are still digits enough. */
static u128 first_bits(const struct leading *number, int *exponent, bool *sticky) {
    int at = 0;
    while (!number->limb[at])
        at++;
    int shift = __builtin_clzll(number->limb[at]);
    u128 bits = (u128)number->limb[at] << 64 | number->limb[at + 1];
    uint64_t next = number->limb[at + 2];
    *sticky = number->sticky || next << shift;
    if (shift)
        bits = bits << shift | next >> (64 - shift);
    for (int i = at + 3; i < LEADING; i++)
        *sticky |= number->limb[i] != 0;
    *exponent = (number->first - at - 1) * 64 - TC_EXACT_POINT - shift;
    return bits;
}

/* Setting the last bit where anything was cut off makes the one rounding right: that
 * bit lies eleven bits or more below the last bit of a double. */
static double rounded(uint64_t bits, bool sticky, int exponent) {
    return (double)ldexpl((long double)(bits | sticky), exponent);
}

double tc_exact_mean(struct tc_exact *sum, uint64_t count) {
    struct wide wide;
    int exponent;
    bool sticky;
    widen(&wide, sum);
    if (!wide.high)
        return 0;
    struct leading mean = lead(&wide);
    divide(&mean, count);
    u128 bits = first_bits(&mean, &exponent, &sticky);
    double magnitude = rounded((uint64_t)(bits >> 64), sticky || (uint64_t)bits, exponent + 64);
    return wide.negative ? -magnitude : magnitude;
}

/* number -= part << 64 * place; the result is known not to be negative. */
static void subtract_at(struct wide *number, u128 part, int place) {
    for (; part; place++) {
        uint64_t low = (uint64_t)part;
        part >>= 64;
        part += number->limb[place] < low;
        number->limb[place] -= low;
    }
}

/* count × squares − sum², which is count² times the variance. A sum has no
 * digit below TC_EXACT_POINT / 2, so that its square fits the same digits. */
static void spread(struct wide *result, const struct wide *sum, const struct wide *squares,
                   uint64_t count) {
    *result = (struct wide){.low = 0};
    uint64_t over = 0;
    for (int i = squares->low; i < squares->high || over; i++) {
        u128 part = (u128)squares->limb[i] * count + over;
        result->limb[i] = (uint64_t)part;
        over = (uint64_t)(part >> 64);
    }
    for (int i = sum->low; i < sum->high; i++)
        for (int j = sum->low; j < sum->high; j++)
            subtract_at(result, (u128)sum->limb[i] * sum->limb[j], i + j - TC_EXACT_POINT / 64);
    for (int i = 0; i < WIDE; i++)
        if (result->limb[i]) {
            result->low = result->high ? result->low : i;
            result->high = i + 1;
        }
}

static uint64_t square_root(u128 number) {
    long double guess = sqrtl((long double)number);
    uint64_t root = guess >= 0x1p64L ? UINT64_MAX : (uint64_t)guess;
    while ((u128)root * root > number)
        root--;
    while (root < UINT64_MAX && (u128)(root + 1) * (root + 1) <= number)
        root++;
    return root;
}

double tc_exact_deviation(struct tc_exact *sum, struct tc_exact *squares, uint64_t count) {
    struct wide wide_sum, wide_squares, difference;
    int exponent;
    bool sticky;
    widen(&wide_sum, sum);
    widen(&wide_squares, squares);
    spread(&difference, &wide_sum, &wide_squares, count);
    if (!difference.high)
        return 0;
    struct leading variance = lead(&difference);
    divide(&variance, count);
    divide(&variance, count);
    u128 bits = first_bits(&variance, &exponent, &sticky);
    if (exponent % 2) { /* the square root halves the exponent */
        sticky |= (uint64_t)bits & 1;
        bits >>= 1;
        exponent++;
    }
    uint64_t root = square_root(bits);
    return rounded(root, sticky || (u128)root * root != bits, exponent / 2);
}
