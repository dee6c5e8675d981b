/*
 * Verifies a file as a whole: reads every tensor, checks all checksums, and reports
 * what readers accept but other programs may not.
 */
#ifndef TCONV_CORE_INSPECT_VERIFY_FILE_H
#define TCONV_CORE_INSPECT_VERIFY_FILE_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/io/progress.h"

struct tc_verify_file_options {
    bool verbose;          /* also notes on alignment to 64 bytes */
    tc_progress *progress; /* NULL: none */
    void *context;
};

/* Adds damage to reader->options->findings, which must be there; false only where
 * the checks could not be done. */
bool tc_verify_file(struct tc_reader *reader, const struct tc_verify_file_options *options,
                    struct tc_error *error);

#endif
