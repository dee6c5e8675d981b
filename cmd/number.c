#include "cmd/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"

/* Digits that always suffice; digits of which every text has a normal value of
 * its own, so that a value's text of so many is its shortest one but for zeros
 * at the end, if it reads back at all; and the smallest normal value. */
static const struct {
    int most, safe;
    double normal;
} kinds[] = {
    [NUMBER_F16] = {5, 3, 0x1p-14},
    [NUMBER_F32] = {9, 6, 0x1p-126},
    [NUMBER_F64] = {17, 15, 0x1p-1022},
};

static bool reads_back(const char *text, double value, enum number_kind kind) {
    double read = strtod(text, NULL);
    uint16_t half, wanted;
    switch (kind) {
    case NUMBER_F16:
        tc_cast(TC_F64, TC_F16, &read, &half, 1, NULL);
        tc_cast(TC_F64, TC_F16, &value, &wanted, 1, NULL);
        return half == wanted;
    case NUMBER_F32:
        return strtof(text, NULL) == (float)value;
    default:
        return read == value;
    }
}

/* From printf's d.ddde±x. */
static void parse(struct number_digits *digits, const char *text) {
    digits->count = 0;
    for (; *text != 'e'; text++)
        if (*text != '.')
            digits->digit[digits->count++] = *text;
    digits->exponent = atoi(text + 1);
}

static void trim_zeros(struct number_digits *digits) {
    while (digits->count > 1 && digits->digit[digits->count - 1] == '0')
        digits->count--;
}

/* The neighbour above with as many digits: near a power of two it may read
 * back where the nearest one does not, since the values below lie closer. */
static bool next_reads_back(const char *text, double value, enum number_kind kind, char *above,
                            size_t size) {
    snprintf(above, size, "%s", text);
    char *at = strchr(above, 'e') - 1;
    while (at >= above && (*at == '9' || *at == '.'))
        at--;
    if (at < above)
        return false;
    ++*at;
    for (at++; *at != 'e'; at++)
        if (*at != '.')
            *at = '0';
    return reads_back(above, value, kind);
}

static bool is_power_of_two(double value) {
    int exponent;
    return frexp(value, &exponent) == 0.5;
}

/* Numbers such as 1.5 and 0.125, in a fraction of the time: where the value is
 * a whole number of thousandths of no more digits than the kind keeps apart,
 * those are its digits, and there are no fewer. */
static bool is_plain(struct number_digits *digits, double size, enum number_kind kind) {
    double thousandths = size * 1000;
    if (!(thousandths < 1e6) || thousandths != trunc(thousandths) || thousandths / 1000 != size)
        return false;
    unsigned left = (unsigned)thousandths;
    char text[8];
    int count = 0;
    for (; left; left /= 10)
        text[count++] = (char)('0' + left % 10);
    int zeros = 0;
    while (text[zeros] == '0')
        zeros++;
    if (count - zeros > kinds[kind].safe)
        return false;
    digits->count = count - zeros;
    digits->exponent = count - 4;
    for (int i = 0; i < digits->count; i++)
        digits->digit[i] = text[count - 1 - i];
    digits->digit[digits->count] = '\0';
    return true;
}

void number_shortest(struct number_digits *digits, double value, enum number_kind kind) {
    char text[40], above[40];
    double size = fabs(value);
    *digits = (struct number_digits){.negative = signbit(value), .count = 1, .digit = "0"};
    if (size == 0 || is_plain(digits, size, kind))
        return;
    for (int count = size < kinds[kind].normal ? 1 : kinds[kind].safe; count <= kinds[kind].most;
         count++) {
        snprintf(text, sizeof text, "%.*e", count - 1, size);
        if (reads_back(text, size, kind))
            break;
        if (is_power_of_two(size) && next_reads_back(text, size, kind, above, sizeof above)) {
            memcpy(text, above, sizeof text);
            break;
        }
    }
    parse(digits, text);
    trim_zeros(digits);
}

void number_round(struct number_digits *digits, double value, int places) {
    char text[40];
    digits->negative = signbit(value);
    snprintf(text, sizeof text, "%.*e", places, fabs(value));
    parse(digits, text);
}

void number_cut(struct number_digits *digits, double value, enum number_kind kind, int places,
                bool scientific) {
    char text[400];
    number_shortest(digits, value, kind);
    int behind = digits->count - 1 - (scientific ? 0 : digits->exponent);
    if (behind <= places)
        return;
    if (scientific) {
        number_round(digits, value, places);
    } else {
        snprintf(text, sizeof text, "%.*f", places, fabs(value));
        const char *point = strchr(text, '.');
        const char *first = text;
        while (*first == '0' || *first == '.')
            first++;
        digits->count = 0;
        digits->exponent = first < point ? (int)(point - first) - 1 : -(int)(first - point);
        for (; *first; first++)
            if (*first != '.' && digits->count < (int)sizeof digits->digit)
                digits->digit[digits->count++] = *first;
        if (!digits->count)
            *digits =
                (struct number_digits){.negative = digits->negative, .count = 1, .digit = "0"};
    }
    trim_zeros(digits);
}

void number_add_repr(struct tc_buffer *out, double value, enum number_kind kind) {
    static const double most[] = {[NUMBER_F16] = 1e3, [NUMBER_F32] = 1e6, [NUMBER_F64] = 1e16};
    struct number_digits digits;
    if (!isfinite(value)) {
        tc_buffer_add_string(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    number_shortest(&digits, value, kind);
    int exponent = digits.exponent;
    double size = fabs(value);
    tc_buffer_add_string(out, digits.negative ? "-" : "");
    if (size >= most[kind] || (size < 1e-4 && size != 0)) {
        tc_buffer_add(out, digits.digit, 1);
        if (digits.count > 1)
            tc_buffer_addf(out, ".%.*s", digits.count - 1, digits.digit + 1);
        tc_buffer_addf(out, "e%+03d", exponent);
        return;
    }
    if (exponent < 0)
        tc_buffer_add_string(out, "0.");
    for (int i = exponent + 1; i < 0; i++)
        tc_buffer_add_string(out, "0");
    for (int i = 0; i < digits.count || i <= exponent; i++) {
        tc_buffer_add(out, i < digits.count ? &digits.digit[i] : "0", 1);
        if (i == exponent)
            tc_buffer_add_string(out, i + 1 < digits.count ? "." : ".0");
    }
}

void number_add_json(struct tc_buffer *out, double value) {
    if (isfinite(value))
        number_add_repr(out, value, NUMBER_F64);
    else
        tc_buffer_add_shortest(out, value);
}

static void add_integer(struct tc_buffer *out, const struct tc_value *value) {
    tc_buffer_addf(out, "%s%" PRIu64, value->negative ? "-" : "", value->magnitude);
}

void number_add_value_json(struct tc_buffer *out, const struct tc_value *value) {
    if (value->integer)
        add_integer(out, value);
    else
        number_add_json(out, value->real);
}

void number_add_brief(struct tc_buffer *out, double value) {
    if (isnan(value))
        tc_buffer_add_string(out, "–");
    else
        tc_buffer_addf(out, "%.6g", value);
}

void number_add_value_brief(struct tc_buffer *out, const struct tc_value *value) {
    if (value->integer)
        add_integer(out, value);
    else
        number_add_brief(out, value->real);
}
