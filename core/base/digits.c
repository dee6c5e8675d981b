/*
 * Schubfach, by Raffaello Giulietti ("The Schubfach way to render doubles",
 * 2020): no trial and no long arithmetic. A value is c × 2^q; every number
 * between the midpoints to its neighbours reads back as it. There is one k for which
 * that interval holds at least one and at most ten multiples of 10^k, so at
 * most one of 10^(k+1). The value and the ends of the interval are divided by
 * 10^k, to a quarter, by one multiplication with a rounded power of ten. The
 * quotient is "rounded to odd": its last bit says whether anything was cut off,
 * and 126 bits of the power are enough for that to be right.
 */
#include "core/base/digits.h"

#include <math.h>
#include <string.h>

#include "core/base/powers_of_ten.h"

/* Bits of c, the least q, and the value from which on repr uses an exponent. */
static const struct {
    int bits, least;
    double most;
} formats[] = {
    [TC_PRECISION_F16] = {11, -24, 1e3},
    [TC_PRECISION_F32] = {24, -149, 1e6},
    [TC_PRECISION_F64] = {53, -1074, 1e16},
};

struct binary {
    uint64_t c;
    int q;
};

/* A positive value as c × 2^q, with c of no more bits than the precision has. */
static struct binary split(double size, enum tc_precision precision) {
    const uint64_t hidden = UINT64_C(1) << 52;
    uint64_t bits;
    memcpy(&bits, &size, sizeof bits);
    int field = (int)(bits >> 52);
    uint64_t c = bits & (hidden - 1);
    if (field)
        c |= hidden;
    int q = (field ? field : 1) - 1075;
    int drop = 53 - formats[precision].bits;
    if (q + drop < formats[precision].least)
        drop = formats[precision].least - q;
    if (drop > 54)
        return (struct binary){0, 0};
    if (drop > 0) {
        uint64_t half = UINT64_C(1) << (drop - 1);
        uint64_t kept = c >> drop;
        uint64_t rest = c & (2 * half - 1);
        c = kept + (rest > half || (rest == half && kept & 1));
        q += drop;
    }
    if (c == UINT64_C(1) << formats[precision].bits)
        return (struct binary){c >> 1, q + 1};
    return (struct binary){c, q};
}

/* The floor of log10(2^e), of log10(3/4 × 2^e), and of log2(10^e), for the
 * exponents that occur; a shift of a negative number rounds down. */
static int log10_of_power_of_two(int e) {
    return (e * 1262611) >> 22;
}

static int log10_of_three_quarters(int e) {
    return (e * 1262611 - 524031) >> 22;
}

static int log2_of_power_of_ten(int e) {
    return (e * 1741647) >> 19;
}

/* The product divided by 2^128, "rounded to odd": its last bit is also set where
 * anything was cut off. */
static uint64_t multiply(const uint64_t power[2], uint64_t factor) {
    unsigned __int128 low = (unsigned __int128)power[1] * factor;
    unsigned __int128 high = (unsigned __int128)power[0] * factor + (uint64_t)(low >> 64);
    return (uint64_t)(high >> 64) | ((uint64_t)high > 1);
}

/* The shortest number that reads back as c × 2^q is the result × 10^*exponent. */
static uint64_t shorten(struct binary value, enum tc_precision precision, int *exponent) {
    /* The neighbour below a power of two is only half as far away. */
    bool narrow = value.c == UINT64_C(1) << (formats[precision].bits - 1) &&
                  value.q > formats[precision].least;
    int k = narrow ? log10_of_three_quarters(value.q) : log10_of_power_of_two(value.q);
    int shift = value.q + log2_of_power_of_ten(-k) + 1;
    const uint64_t *power = tc_powers_of_ten[-k - TC_LEAST_POWER];
    /* A midpoint reads back as the even one of its two neighbours, so the ends of
     * the interval belong to it only where c is even. */
    uint64_t odd = value.c & 1;
    uint64_t least = multiply(power, (4 * value.c - 2 + narrow) << shift) + odd;
    uint64_t middle = multiply(power, (4 * value.c) << shift);
    uint64_t most = multiply(power, (4 * value.c + 2) << shift) - odd;
    uint64_t below = middle / 4;
    if (below >= 10) {
        uint64_t tens = below / 10;
        bool lower = least <= 40 * tens;
        bool upper = 40 * tens + 40 <= most;
        if (lower != upper) {
            *exponent = k + 1;
            return tens + upper;
        }
    }
    *exponent = k;
    bool lower = least <= 4 * below;
    bool upper = 4 * below + 4 <= most;
    if (lower != upper)
        return below + upper;
    uint64_t half = 4 * below + 2;
    return below + (middle > half || (middle == half && below & 1));
}

void tc_digits_shortest(struct tc_digits *digits, double value, enum tc_precision precision) {
    *digits = (struct tc_digits){.negative = signbit(value), .count = 1, .digit = "0"};
    struct binary binary = split(fabs(value), precision);
    if (binary.c == 0)
        return;
    int exponent;
    uint64_t number = shorten(binary, precision, &exponent);
    for (; number % 10 == 0; number /= 10)
        exponent++;
    char reversed[20];
    int count = 0;
    for (; number; number /= 10)
        reversed[count++] = (char)('0' + number % 10);
    for (int i = 0; i < count; i++)
        digits->digit[i] = reversed[count - 1 - i];
    digits->count = count;
    digits->exponent = exponent + count - 1;
}

/* d.ddde±xx */
static char *print_scientific(char *at, const struct tc_digits *digits) {
    *at++ = digits->digit[0];
    if (digits->count > 1) {
        *at++ = '.';
        memcpy(at, digits->digit + 1, (size_t)digits->count - 1);
        at += digits->count - 1;
    }
    int size = digits->exponent < 0 ? -digits->exponent : digits->exponent;
    *at++ = 'e';
    *at++ = digits->exponent < 0 ? '-' : '+';
    if (size >= 100)
        *at++ = (char)('0' + size / 100);
    *at++ = (char)('0' + size / 10 % 10);
    *at++ = (char)('0' + size % 10);
    return at;
}

/* ddd.ddd, with at least one digit on both sides of the point. */
static char *print_plain(char *at, const struct tc_digits *digits) {
    if (digits->exponent < 0)
        *at++ = '0', *at++ = '.';
    for (int i = digits->exponent + 1; i < 0; i++)
        *at++ = '0';
    for (int i = 0; i < digits->count || i <= digits->exponent; i++) {
        *at++ = i < digits->count ? digits->digit[i] : '0';
        if (i == digits->exponent)
            *at++ = '.';
    }
    if (at[-1] == '.')
        *at++ = '0';
    return at;
}

void tc_buffer_add_repr(struct tc_buffer *buffer, double value, enum tc_precision precision) {
    if (!isfinite(value)) {
        tc_buffer_add_string(buffer, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    struct tc_digits digits;
    tc_digits_shortest(&digits, value, precision);
    char text[48];
    char *at = text;
    double size = fabs(value);
    if (digits.negative)
        *at++ = '-';
    at = size >= formats[precision].most || (size < 1e-4 && size != 0)
             ? print_scientific(at, &digits)
             : print_plain(at, &digits);
    tc_buffer_add(buffer, text, (size_t)(at - text));
}

void tc_buffer_add_real(struct tc_buffer *buffer, double number) {
    if (isfinite(number))
        tc_buffer_add_repr(buffer, number, TC_PRECISION_F64);
    else
        tc_buffer_add_json(buffer,
                           isnan(number) ? TC_TEXT("NaN")
                           : number > 0  ? TC_TEXT("Infinity")
                                         : TC_TEXT("-Infinity"),
                           TC_ESCAPE_SERDE);
}
