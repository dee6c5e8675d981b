/*
 * Decimal digits of floating-point numbers: the fewest that read back as the
 * same value of its precision, and among those the nearest to it, as Python's
 * repr and numpy print them. Every command prints numbers by these.
 */
#ifndef TCONV_CORE_BASE_DIGITS_H
#define TCONV_CORE_BASE_DIGITS_H

#include <stdbool.h>

#include "core/base/text.h"

/* The precision of a value: how near its neighbours lie. */
enum tc_precision { TC_PRECISION_F16, TC_PRECISION_F32, TC_PRECISION_F64 };

/* ±d.ddd × 10^exponent. Zero is one digit 0. */
struct tc_digits {
    bool negative;
    int count;
    int exponent;
    char digit[24]; /* '0' to '9', the first not '0' unless it is the only one */
};

/* The digits of a finite value, which is first rounded to the precision. */
void tc_digits_shortest(struct tc_digits *digits, double value, enum tc_precision precision);

/* Prints as numpy prints a scalar of that precision, which for F64 is Python's
 * repr: 0.1, 1e-05, 1.0, nan, inf. */
void tc_buffer_add_repr(struct tc_buffer *buffer, double value, enum tc_precision precision);
/* Prints a JSON value: a finite number as Python's repr, any other as the string
 * "NaN", "Infinity" or "-Infinity". */
void tc_buffer_add_real(struct tc_buffer *buffer, double number);

#endif
