/* Numbers as text where the shortest digits (core/base/digits.h) are not what is
 * wanted: rounded ones, and values that may be integers or floating-point. */
#ifndef TCONV_CMD_NUMBER_H
#define TCONV_CMD_NUMBER_H

#include <stdbool.h>

#include "core/base/digits.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/inspect/moments.h"

/* The shortest digits, but at most `places` behind the point of d.ddd
 * (scientific) or of the whole number; then the exact value is rounded, and
 * trailing zeros go. */
void number_cut(struct tc_digits *digits, double value, enum tc_precision precision, int places,
                bool scientific);

/* The exact value rounded to `places` digits behind the point of d.ddd. */
void number_round(struct tc_digits *digits, double value, int places);

void number_add_value_json(struct tc_json_writer *json, const char *key,
                           const struct tc_value *value);
/* For people: six digits. */
void number_add_brief(struct tc_buffer *out, double value);
void number_add_value_brief(struct tc_buffer *out, const struct tc_value *value);

#endif
