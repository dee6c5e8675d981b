/*
 * Looks over a file as a whole: reads every tensor, checks all checksums, and
 * what no reader minds but a program might.
 */
#ifndef TCONV_CORE_INSPECT_VERIFY_FILE_H
#define TCONV_CORE_INSPECT_VERIFY_FILE_H

#include "core/base/error.h"
#include "core/format/reader.h"
#include "core/io/progress.h"

struct tc_verify_file_options {
    bool verbose;          /* notes on alignment beyond what elements need */
    tc_progress *progress; /* NULL: none */
    void *context;
};

/* Damage goes to reader->options->findings, which must be there; false only
 * where the work could not be done. */
bool tc_verify_file(struct tc_reader *reader, const struct tc_verify_file_options *options,
                    struct tc_error *error);

#endif
