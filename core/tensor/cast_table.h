/*
 * Casts from dtypes of 8 and 16 bits by tables: each possible value is cast once. Tables are made
 * when they are first needed, and stay until the program ends.
 */
#ifndef TCONV_CORE_TENSOR_CAST_TABLE_H
#define TCONV_CORE_TENSOR_CAST_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/tensor/cast_report.h"
#include "core/tensor/dtype.h"

/* The result of each value; NULL without memory. */
const unsigned char *tc_cast_results(enum tc_dtype from, enum tc_dtype to);
/* Looks elements of `in` bytes up, 1 or 2, in a table of elements of `out` bytes. */
void tc_look_up(const unsigned char *source, size_t in, const unsigned char *table, size_t out,
                unsigned char *target, size_t count);
/* Whether a table pays off: there is one, or there are not far fewer elements than values. */
bool tc_cast_table_pays(enum tc_dtype from, enum tc_dtype to, size_t count);
/* A report is made from 8 bits only. False where there is no memory for the table. */
bool tc_cast_by_table(enum tc_dtype from, enum tc_dtype to, const unsigned char *source,
                      unsigned char *target, size_t count, struct tc_cast_report *report);

#endif
