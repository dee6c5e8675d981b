/* The options of the formats that hold numpy's arrays. */
#ifndef TCONV_FORMATS_NUMPY_OPTIONS_H
#define TCONV_FORMATS_NUMPY_OPTIONS_H

#include "core/format/format_option.h"

enum npy_strings { NPY_STRINGS_SKIP, NPY_STRINGS_BYTES };

extern const struct tc_format_option npy_void_option;
extern const struct tc_format_option npy_strings_option;

#endif
