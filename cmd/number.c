#include "cmd/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From printf's d.ddde±x. */
static void parse(struct tc_digits *digits, const char *text) {
    digits->count = 0;
    for (; *text != 'e'; text++)
        if (*text != '.')
            digits->digit[digits->count++] = *text;
    digits->exponent = atoi(text + 1);
}

static void trim_zeros(struct tc_digits *digits) {
    while (digits->count > 1 && digits->digit[digits->count - 1] == '0')
        digits->count--;
}

void number_round(struct tc_digits *digits, double value, int places) {
    char text[40];
    digits->negative = signbit(value);
    snprintf(text, sizeof text, "%.*e", places, fabs(value));
    parse(digits, text);
}

void number_cut(struct tc_digits *digits, double value, enum tc_precision precision, int places,
                bool scientific) {
    char text[400];
    tc_digits_shortest(digits, value, precision);
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
            *digits = (struct tc_digits){.negative = digits->negative, .count = 1, .digit = "0"};
    }
    trim_zeros(digits);
}

void number_add_value_json(struct tc_json_writer *json, const char *key,
                           const struct tc_value *value) {
    if (value->integer)
        tc_json_addf(json, key, "%s%" PRIu64, value->negative ? "-" : "", value->magnitude);
    else
        tc_json_add_real(json, key, value->real);
}

void number_add_brief(struct tc_buffer *out, double value) {
    if (isnan(value))
        tc_buffer_add_string(out, "–");
    else
        tc_buffer_addf(out, "%.6g", value);
}

void number_add_value_brief(struct tc_buffer *out, const struct tc_value *value) {
    if (value->integer)
        tc_buffer_addf(out, "%s%" PRIu64, value->negative ? "-" : "", value->magnitude);
    else
        number_add_brief(out, value->real);
}
