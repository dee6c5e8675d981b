/*
 * What differs between two files of tensors, whatever their formats: names, shapes,
 * dtypes, values, metadata. Tables are compared first; then the data of tensors
 * that both files have is read, each file in a thread of its own, in bounded
 * memory. The order of tensors, and whether they share their data, do not count.
 */
#ifndef TCONV_CORE_INSPECT_COMPARE_H
#define TCONV_CORE_INSPECT_COMPARE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/inspect/compare_values.h"
#include "core/io/progress.h"
#include "core/tensor/select.h"
#include "core/tensor/table.h"

struct tc_compare_options {
    struct tc_tolerance tolerance;
    const struct tc_select *select; /* names that count; NULL: all */
    bool ignore_metadata;
    tc_progress *progress; /* NULL: none */
    void *context;
};

/* A tensor that both files have. */
struct tc_compared {
    const struct tc_tensor *a;
    const struct tc_tensor *b;
    struct tc_value_diff *values; /* NULL: no difference, or not compared */
    uint32_t like;                /* 1 + the pair whose data both share, so that its result is
                                   * theirs; 0: none */
    bool shape;                   /* the shapes differ: then no values are compared */
    bool dtype;                   /* the dtypes differ */
    bool comparable;              /* the values can be compared */
};

/* A metadata entry that differs; a side that does not have it is NULL. */
struct tc_metadata_diff {
    struct tc_text tensor; /* bytes are NULL for the file's own */
    struct tc_text key;
    const struct tc_text *a;
    const struct tc_text *b;
};

struct tc_compare {
    const struct tc_compare_options *options;
    struct tc_reader *readers[2];
    struct tc_arena arena;
    const struct tc_tensor **removed; /* only in the first file, in its order */
    size_t removed_count;
    const struct tc_tensor **added; /* only in the second */
    size_t added_count;
    struct tc_compared *pairs;
    size_t pair_count;
    const struct tc_compared **listed; /* all of them, in the first file's order */
    struct tc_compared **worst;        /* pairs whose values differ, the worst first */
    size_t worst_count;
    struct tc_metadata_diff *metadata;
    size_t metadata_count;
    size_t metadata_capacity;
    uint64_t bytes; /* of the first file, to be compared */
    uint64_t done;  /* of these, compared so far */
    /* There is no difference. In a numeric comparison another dtype is none where
     * the values are equal. */
    bool equal;
};

/* Reads both and verifies their checksums. The result points into the readers'
 * tables. Call tc_compare_release also where this fails. */
bool tc_compare_run(struct tc_compare *compare, struct tc_reader *a, struct tc_reader *b,
                    const struct tc_compare_options *options, struct tc_error *error);
void tc_compare_release(struct tc_compare *compare);

#endif
