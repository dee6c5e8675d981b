/*
 * Looks over a file as a whole: reads every tensor, checks all checksums, and
 * what no reader minds but a program might.
 */
#ifndef TCONV_CORE_AUDIT_H
#define TCONV_CORE_AUDIT_H

#include "core/convert.h"

struct tc_audit_options {
    bool verbose;          /* notes on alignment beyond what elements need */
    tc_progress *progress; /* NULL: none */
    void *context;
};

/* Damage goes to reader->options->findings, which must be there; false only
 * where the work could not be done. */
bool tc_audit(struct tc_reader *reader, const struct tc_audit_options *options,
              struct tc_error *error);

#endif
