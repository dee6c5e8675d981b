
/* --npy-void exists because arrays of ml_dtypes (bfloat16 and others) are saved as
 * void, which says only how many bytes an element has. */
#include "formats/numpy/options.h"

#include "core/tensor/dtype.h"

const struct tc_format_option npy_void_option = {
    .name = "npy-void",
    .use = TC_FOR_READING,
    .type = TC_OPTION_DTYPE,
    .initial.dtype = TC_NONE,
    .argument = "DTYPE",
    .help = "what an npy array of void type holds (BF16, F8_E4M3, …)",
};

const struct tc_format_option npy_strings_option = {
    .name = "strings",
    .use = TC_FOR_READING,
    .type = TC_OPTION_CHOICE,
    .initial.choice = NPY_STRINGS_SKIP,
    .choices = (const char *const[]){"skip", "bytes", NULL},
    .argument = "skip|bytes",
    .help = "text arrays of numpy: left out (skip), or kept as bytes (bytes)",
};
