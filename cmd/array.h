/*
 * Arrays as text, as numpy's str() prints them: at most 75 characters a line,
 * eight digits behind the point, and of a large array only the three first and
 * last of each axis.
 */
#ifndef TCONV_CMD_ARRAY_H
#define TCONV_CMD_ARRAY_H

#include "core/base/digits.h"
#include "core/base/limits.h"
#include "core/base/text.h"

#define ARRAY_EDGE 3         /* elements kept at each end of an axis */
#define ARRAY_THRESHOLD 1000 /* elements up to which all are kept */

enum array_kind { ARRAY_TRUTH, ARRAY_INTEGER, ARRAY_REAL, ARRAY_COMPLEX };

struct array {
    enum array_kind kind;
    enum tc_precision precision; /* of real and complex elements */
    bool is_signed;              /* of integers */
    unsigned rank;
    uint64_t shape[TC_MAX_RANK];
    bool summarised;
    /* The elements kept, in C order. */
    uint64_t kept[TC_MAX_RANK]; /* a shape */
    size_t count;
    uint64_t *integers; /* two's complement; truths too */
    double *reals;
    double *imaginaries;
};

/* Sets which elements are kept, from kind, rank and shape; false where that
 * is more than can be counted. */
bool array_plan(struct array *array, bool all);
/* Prints a piece at a time with `emit`, which empties the buffer. */
void array_print(const struct array *array, void (*emit)(struct tc_buffer *text),
                 struct tc_buffer *text);

#endif
