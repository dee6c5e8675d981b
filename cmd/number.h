/*
 * Numbers as text, as numpy and Python write them: the fewest digits that read
 * back to the same value of their dtype.
 */
#ifndef TCONV_CMD_NUMBER_H
#define TCONV_CMD_NUMBER_H

#include "core/base/text.h"
#include "core/inspect/moments.h"

/* The precision a value has: how near other values of its dtype lie. */
enum number_kind { NUMBER_F16, NUMBER_F32, NUMBER_F64 };

/* ±d.ddd × 10^exponent. Zero is one digit 0. */
struct number_digits {
    bool negative;
    int count;
    int exponent;
    char digit[24]; /* '0' to '9', the first not '0' unless it is the only one */
};

/* A finite value, in as few digits as tell it from its neighbours. */
void number_shortest(struct number_digits *digits, double value, enum number_kind kind);
/* The same, but at most `places` behind the point of d.ddd (scientific) or of
 * the whole number; then the exact value is rounded, and trailing zeros go. */
void number_cut(struct number_digits *digits, double value, enum number_kind kind, int places,
                bool scientific);

/* The exact value rounded to `places` digits behind the point of d.ddd. */
void number_round(struct number_digits *digits, double value, int places);

/* As numpy's scalars, and F64 as Python's repr: 0.1, 1e-05, 1.0, nan, inf. */
void number_add_repr(struct tc_buffer *out, double value, enum number_kind kind);
/* For JSON: as repr, but "NaN", "Infinity" and "-Infinity" as strings. */
void number_add_json(struct tc_buffer *out, double value);
void number_add_value_json(struct tc_buffer *out, const struct tc_value *value);
/* For people: six digits. */
void number_add_brief(struct tc_buffer *out, double value);
void number_add_value_brief(struct tc_buffer *out, const struct tc_value *value);

#endif
