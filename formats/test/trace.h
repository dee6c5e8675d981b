/*
 * What the programs share that tell Python's suites what tconv makes of many inputs: they
 * come one after the other on standard input, each with its length before it (4 bytes,
 * little-endian), and each is answered by a line on standard output.
 */
#ifndef TCONV_FORMATS_TEST_TRACE_H
#define TCONV_FORMATS_TEST_TRACE_H

#include <stddef.h>

#include "core/base/text.h"

/* Appends the line for an input, with its newline. */
typedef void trace_input(const unsigned char *bytes, size_t length, struct tc_buffer *line);

/* Runs until the input ends; returns the program's exit status. */
int trace_all(trace_input *trace);

#endif
