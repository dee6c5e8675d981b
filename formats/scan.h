/*
 * What a file's pickles would import and call, were they loaded by Python:
 * found without loading anything. Every pickle of the file is looked at, those
 * in members of a zip, behind the header of an array of objects, and in bytes
 * that are given to a loader.
 *
 * Nothing is taken on trust: what can't be read as every loader would read it
 * is broken, and what is not on the list of pickle_globals.c is unsafe.
 */
#ifndef TCONV_FORMATS_SCAN_H
#define TCONV_FORMATS_SCAN_H

#include "core/format.h"

struct scan_finding {
    struct tc_text name;   /* "module.name"; of a call: what is called */
    struct tc_text member; /* of a zip or tar; empty: the file itself */
    uint64_t offset;       /* of the opcode: in the file, or in what is packed or nested */
    bool relative;         /* the latter */
    bool call;
    bool allowed;
    bool dangerous; /* known to run code or reach the system */
};

struct scan {
    struct tc_arena arena;
    const struct tc_format_options *options;
    struct scan_finding *findings;
    size_t count;
    size_t capacity;
    size_t left_out; /* beyond the first 100,000 */
    size_t pickles;
    bool unsafe;
    struct tc_error *broken; /* what is wrong; class TC_OK: nothing */
    /* Where it is now. */
    struct tc_text member;
    bool relative;
    bool script; /* in an archive of TorchScript */
    unsigned depth;
};

void scan_init(struct scan *scan, const struct tc_format_options *options);
void scan_release(struct scan *scan);
/* False where the file can't be opened or is of a kind that is not looked
 * into; what it holds is in *scan. */
bool scan_file(struct scan *scan, const char *path, struct tc_error *error);

#endif
