/* Compares with the C library, which prints and reads any number of digits exactly
 * but does not find the shortest. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/digits.h"
#include "core/base/text.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/test/sanitized.h"

static uint64_t state = UINT64_C(88172645463325252);

static uint64_t random_bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static bool reads_back(const char *text, double value, enum tc_precision precision) {
    double read = strtod(text, NULL);
    uint16_t half, wanted;
    switch (precision) {
    case TC_PRECISION_F16:
        /* Numbers of so few digits are never so close to a midpoint that rounding to
         * F64 first would matter. */
        tc_cast(TC_F64, TC_F16, &read, &half, 1, NULL);
        tc_cast(TC_F64, TC_F16, &value, &wanted, 1, NULL);
        return half == wanted;
    case TC_PRECISION_F32:
        return strtof(text, NULL) == (float)value;
    default:
        return read == value;
    }
}

/* The first `count` digits as an integer, plus `more`, with an exponent: 123e-5. */
static void print_digits(char *text, size_t size, const struct tc_digits *digits, int count,
                         int more) {
    uint64_t number = 0;
    for (int i = 0; i < count; i++)
        number = 10 * number + (uint64_t)(digits->digit[i] - '0');
    snprintf(text, size, "%llue%d", (unsigned long long)(number + (uint64_t)more),
             digits->exponent - count + 1);
}

/* The digits read back as the value; no shorter ones do; none of the same number are
 * nearer to it. */
static void check(double value, enum tc_precision precision) {
    struct tc_digits digits;
    char text[64], nearest[64], kept[64];
    tc_digits_shortest(&digits, value, precision);
    print_digits(text, sizeof text, &digits, digits.count, 0);
    cr_assert(reads_back(text, value, precision), "%a as %s does not read back", value, text);
    cr_assert(digits.count == 1 || digits.digit[digits.count - 1] != '0', "%a: %s", value, text);
    if (digits.count > 1) {
        /* The two numbers with one digit less that enclose the value. */
        print_digits(kept, sizeof kept, &digits, digits.count - 1, 0);
        cr_assert_not(reads_back(kept, value, precision), "%a: %s for %s", value, text, kept);
        print_digits(kept, sizeof kept, &digits, digits.count - 1, 1);
        cr_assert_not(reads_back(kept, value, precision), "%a: %s for %s", value, text, kept);
    }
    snprintf(nearest, sizeof nearest, "%.*e", digits.count - 1, value);
    if (reads_back(nearest, value, precision)) {
        long double distance = fabsl((long double)value - strtold(text, NULL));
        long double least = fabsl((long double)value - strtold(nearest, NULL));
        cr_assert(distance <= least, "%a: %s for %s", value, text, nearest);
    }
}

Test(digits, of_many_doubles) {
    for (int i = 0; i < (TEST_SANITIZED ? 200000 : 1000000); i++) {
        uint64_t bits = random_bits() & INT64_MAX;
        double value;
        switch (i % 5) {
        case 0:
        case 1:
            memcpy(&value, &bits, sizeof value);
            break;
        case 2: /* decimal, as people write them */
            value = (double)(bits % 10000000) / 1000;
            break;
        case 3: /* whole, of any length */
            value = (double)(bits >> (bits & 63));
            break;
        default: /* near zero, where precision ends */
            bits &= (UINT64_C(1) << 53) - 1;
            bits >>= random_bits() & 31;
            memcpy(&value, &bits, sizeof value);
        }
        if (isfinite(value) && value != 0)
            check(value, TC_PRECISION_F64);
    }
}

/* Neighbours below a power of two are closer than those above it. */
Test(digits, of_every_power_of_two_and_ten) {
    for (int e = -1074; e < 1024; e++) {
        check(ldexp(1, e), TC_PRECISION_F64);
        check(nextafter(ldexp(1, e), 0) == 0 ? 1 : nextafter(ldexp(1, e), 0), TC_PRECISION_F64);
        check(nextafter(ldexp(1, e), 2 * ldexp(1, e)), TC_PRECISION_F64);
    }
    for (int e = -149; e < 128; e++)
        check(ldexp(1, e), TC_PRECISION_F32);
    for (int e = -323; e <= 308; e++) {
        char text[16];
        struct tc_digits digits;
        snprintf(text, sizeof text, "1e%d", e);
        tc_digits_shortest(&digits, strtod(text, NULL), TC_PRECISION_F64);
        cr_assert(digits.count == 1 && digits.digit[0] == '1' && digits.exponent == e, "%s", text);
    }
}

Test(digits, of_floats) {
    for (int i = 0; i < (TEST_SANITIZED ? 60000 : 300000); i++) {
        uint32_t bits = (uint32_t)random_bits() & INT32_MAX;
        float value;
        if (i % 8 == 0)
            bits &= 0xFFFFFFu; /* near zero */
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value) && value != 0)
            check((double)value, TC_PRECISION_F32);
    }
}

Test(digits, of_every_half) {
    for (unsigned bits = 1; bits < 0x7C00; bits++) {
        uint16_t half = (uint16_t)bits;
        double value;
        tc_cast(TC_F16, TC_F64, &half, &value, 1, NULL);
        check(value, TC_PRECISION_F16);
    }
}

static const char *real(double value) {
    static struct tc_buffer text;
    text.length = 0;
    tc_buffer_add_real(&text, value);
    return text.bytes;
}

/* Python 3's repr of the same numbers. */
Test(digits, as_python_prints_them) {
    cr_assert_str_eq(real(0), "0.0");
    cr_assert_str_eq(real(-0.0), "-0.0");
    cr_assert_str_eq(real(10), "10.0");
    cr_assert_str_eq(real(-100), "-100.0");
    cr_assert_str_eq(real(0.1), "0.1");
    cr_assert_str_eq(real(0.30000000000000004), "0.30000000000000004");
    cr_assert_str_eq(real(1.0 / 3), "0.3333333333333333");
    cr_assert_str_eq(real(0.0001), "0.0001");
    cr_assert_str_eq(real(0.00012345), "0.00012345");
    cr_assert_str_eq(real(0.00001), "1e-05");
    cr_assert_str_eq(real(9999999999999998), "9999999999999998.0");
    cr_assert_str_eq(real(1e16), "1e+16");
    cr_assert_str_eq(real(1.5e100), "1.5e+100");
    cr_assert_str_eq(real(5e-324), "5e-324");
    cr_assert_str_eq(real(DBL_MAX), "1.7976931348623157e+308");
    cr_assert_str_eq(real(DBL_MIN), "2.2250738585072014e-308");
    cr_assert_str_eq(real(2e23), "2e+23");
    cr_assert_str_eq(real(0x1p53), "9007199254740992.0");
    cr_assert_str_eq(real((double)NAN), "\"NaN\"");
    cr_assert_str_eq(real((double)INFINITY), "\"Infinity\"");
    cr_assert_str_eq(real(-(double)INFINITY), "\"-Infinity\"");
}

/* A value that its precision does not have is rounded to one that it has. */
Test(digits, of_what_has_to_be_rounded_first) {
    struct tc_digits digits;
    tc_digits_shortest(&digits, 0.1, TC_PRECISION_F32);
    cr_assert(digits.count == 1 && digits.digit[0] == '1' && digits.exponent == -1);
    tc_digits_shortest(&digits, 1e-60, TC_PRECISION_F32);
    cr_assert(digits.count == 1 && digits.digit[0] == '0');
    tc_digits_shortest(&digits, 0x1.fffffffp0, TC_PRECISION_F32);
    cr_assert(digits.count == 1 && digits.digit[0] == '2' && digits.exponent == 0);
}
