/* What a cast did to the values: errors for the ledger, and for checks of what the user allows. */
#ifndef TCONV_CORE_TENSOR_CAST_REPORT_H
#define TCONV_CORE_TENSOR_CAST_REPORT_H

#include <stdint.h>

/* Summed over all calls. */
struct tc_cast_report {
    uint64_t overflow;  /* finite values that became Inf or NaN, or left the range */
    uint64_t underflow; /* values that became zero */
    uint64_t nan_made;  /* Inf that became NaN; NaN that an integer can't hold */
    uint64_t inexact;   /* values that changed at all */
    double max_abs;     /* largest error of finite results */
    double max_rel;
};

#endif
