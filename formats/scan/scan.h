/*
 * What loading a file would run, found without loading anything. The default is
 * doubt: a file is clean only where it opens whole as a known format, every byte
 * is accounted for, and everything in it that any loader could take for a pickle
 * was run to its end on the machine (pickle.h) with only harmless results.
 *
 *     scan_init(&scan, &options);
 *     scan_file(&scan, path, &error);
 *     scan_verdict(&scan); …
 *     scan_release(&scan);
 *
 * file.c walks over regions: the file, members of archives, what compressed
 * bytes hold, bytes that a pickle hands to a loader, shards, external data.
 * What each may be is told by pickle.c, zip.c, tar.c, npy.c,
 * source.c and graph.c.
 */
#ifndef TCONV_FORMATS_SCAN_SCAN_H
#define TCONV_FORMATS_SCAN_SCAN_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "formats/pickle/pickle.h"

/* Worst last. */
enum scan_verdict {
    SCAN_CLEAN,
    SCAN_OTHER,  /* no known format, and nothing found */
    SCAN_BROKEN, /* not all of it can be read as every loader would */
    SCAN_CODE,   /* a program for a framework's own interpreter */
    SCAN_UNSAFE,
};

enum scan_level {
    SCAN_ALLOWED, /* a name that tensor files need */
    SCAN_SCRIPT,  /* TorchScript's functions */
    SCAN_PROGRAM, /* another framework's: custom operators, graphs */
    SCAN_UNKNOWN,
    SCAN_DANGEROUS, /* known to run code or to reach the system */
};

enum scan_kind { SCAN_IMPORT, SCAN_CALL, SCAN_OTHERWISE };

struct scan_finding {
    enum scan_kind kind;
    enum scan_level level;
    struct tc_text name;   /* "module.name"; of a call: what is called */
    const char *code;      /* a stable slug; */
    const char *what;      /* and what is wrong, unless the name says it all */
    struct tc_text member; /* of an archive, or another file; bytes are NULL: the file itself */
    uint64_t offset;       /* in the file, or in what is packed or nested */
    bool relative;         /* the latter */
};

struct scan_region;

struct scan {
    const struct tc_format_options *options;
    struct tc_arena arena; /* names, regions */
    struct scan_finding *findings;
    size_t count;
    size_t capacity;
    size_t left_out; /* beyond a limit */
    size_t pickles;
    bool seen[SCAN_DANGEROUS + 1]; /* levels, of those left out too */
    struct tc_error *broken;       /* what is wrong; class TC_OK: nothing */
    struct tc_error *other;        /* what the file seems to be; likewise */
    struct tc_text broken_in;      /* the member that is; bytes are NULL: the file itself */
    struct tc_text other_in;
    /* What it may cost, over all of the file's regions. */
    struct pickle_budget budget;
    uint64_t regions;
    uint64_t most_regions;
    uint64_t unpacked;
    uint64_t most_unpacked;
    uint64_t streams; /* compressed ones, that follow another */
    /* Where it is now. */
    struct scan_region *pending;
    const struct scan_region *region;
    struct scan_region *tar; /* the same, while a member of torch's tar is read */
    bool reached;            /* this pickle named something that Python could import */
    bool extended;           /* this one named an extension */
    bool extension_called;
};

void scan_init(struct scan *scan, const struct tc_format_options *options);
void scan_release(struct scan *scan);
/* False where the file can't be opened or read; what it holds is in *scan. */
bool scan_file(struct scan *scan, const char *path, struct tc_error *error);
/* Levels up to and with `allowed` do not count against the file. */
enum scan_verdict scan_verdict(const struct scan *scan, enum scan_level allowed);

#endif
