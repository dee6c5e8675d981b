/*
 * Writes the files of an output, several at once where that is quicker. The main thread opens one
 * after the other, since only it may (core/io/publish.h); others write and seal them. Of several
 * failures that of the first file counts, as if one had been written after the other.
 */
#ifndef TCONV_CORE_CONVERT_SIDE_BY_SIDE_H
#define TCONV_CORE_CONVERT_SIDE_BY_SIDE_H

#include "core/base/error.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"

struct tc_open_file {
    struct tc_outfile *out;
    struct tc_outfile *companion; /* NULL: none */
};

struct tc_files_work {
    void *context;
    /* In the main thread, in the order of the files. */
    bool (*open)(void *context, size_t number, struct tc_open_file *open, struct tc_error *error);
    /* In any thread, on `threads` of them. `is_main`: it is the main thread that writes. */
    bool (*write)(void *context, size_t number, const struct tc_open_file *open, size_t threads,
                  bool is_main, struct tc_error *error);
    /* Reports progress, in the main thread, while others write. */
    void (*report)(void *context);
};

/* How many files of a plan are worth writing at once. */
size_t tc_plan_side_by_side(const struct tc_plan *plan);
/* Writes so many files, at most `at_once` at a time. */
bool tc_files_write(const struct tc_files_work *work, size_t count, size_t at_once,
                    struct tc_error *error);

#endif
