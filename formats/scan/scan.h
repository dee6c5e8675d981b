/*
 * Finds what code loading a file would run, without loading anything. A file is
 * called clean only if it opens as a known format, every byte of it is accounted
 * for, and everything in it that any loader could take for a pickle was run to its
 * end on the pickle machine (pickle/pickle.h) with only harmless results.
 *
 *     scan_init(&scan, &options);
 *     scan_file(&scan, path, &error);
 *     scan_verdict(&scan, allowed); …
 *     scan_release(&scan);
 *
 * file.c walks over regions: the file, members of archives, unpacked bytes, bytes
 * that a pickle hands to a loader, shards, external data. pickle.c, zip.c, tar.c,
 * npy.c, packed.c, source.c, checkpoint.c and graph.c each look at a region for one thing that it
 * may be. A scan is used by one thread; findings and their texts live until
 * scan_release.
 */
#ifndef TCONV_FORMATS_SCAN_SCAN_H
#define TCONV_FORMATS_SCAN_SCAN_H

#include <sys/stat.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/io/input.h"
#include "formats/pickle/pickle.h"

/* Worst last. */
enum scan_verdict {
    SCAN_CLEAN,
    SCAN_OTHER,  /* not of a known format, and nothing was found */
    SCAN_BROKEN, /* damaged, or loaders may read it in different ways */
    SCAN_CODE,   /* has a program for a framework's own interpreter */
    SCAN_UNSAFE,
};

enum scan_level {
    SCAN_ALLOWED, /* a name that tensor files need */
    SCAN_SCRIPT,  /* code of TorchScript */
    SCAN_PROGRAM, /* code of another framework: custom operators, graphs */
    SCAN_UNKNOWN,
    SCAN_DANGEROUS, /* known to run code or to reach the system */
};

enum scan_kind { SCAN_IMPORT, SCAN_CALL, SCAN_OTHERWISE };

struct scan_finding {
    enum scan_kind kind;
    enum scan_level level;
    struct tc_text name;   /* "module.name"; of a call: what is called */
    const char *code;      /* a short name that never changes, for programs */
    const char *what;      /* what is wrong; NULL where the name says it all */
    struct tc_text member; /* of an archive, or another file; bytes are NULL: the file itself */
    uint64_t offset;       /* in the file, or where `relative` in the unpacked bytes */
    bool relative;
};

struct scan_region;

struct scan {
    const struct tc_format_options *options;
    const struct stat *found;  /* of the file, when its folder was listed: another that has its
                                * name now is refused; NULL: none. Set by the caller */
    struct tc_arena arena;     /* names, regions */
    struct tc_input_pool pool; /* of the files beside it, of which there may be many */
    struct scan_finding *findings;
    size_t count;
    size_t capacity;
    size_t left_out; /* findings beyond the limit of how many are kept */
    size_t pickles;
    bool seen[SCAN_DANGEROUS + 1]; /* levels found, including findings left out */
    struct tc_error *broken;       /* the first damage; class TC_OK: none */
    struct tc_error *other;        /* why it is of no known format; class TC_OK: it is of one */
    struct tc_text broken_in;      /* the damaged member; bytes are NULL: the file itself */
    struct tc_text other_in;       /* the member of no known format, in the same way */
    /* Work done and its limits, over all regions. */
    struct pickle_budget budget;
    uint64_t regions;
    uint64_t most_regions;
    uint64_t unpacked;
    uint64_t most_unpacked;
    uint64_t streams; /* compressed streams that follow another one */
    /* The state of the walk. */
    struct scan_region *pending;      /* regions to look at */
    const struct scan_region *region; /* the one that is looked at */
    struct scan_region *tar; /* stands for that one while a member of torch's tar is read */
    bool places;             /* a pickle of the region says where in files others lie */
    bool reached;            /* the current pickle named something that Python could import */
    bool extended;           /* the current pickle named an extension (copyreg) */
    bool extension_called;   /* and called it */
};

void scan_init(struct scan *scan, const struct tc_format_options *options);
void scan_release(struct scan *scan);
/* Scans a file. False where it can't be opened or read; damage is no failure, but
 * recorded in *scan with the findings. */
bool scan_file(struct scan *scan, const char *path, struct tc_error *error);
/* The verdict, where findings of levels up to and including `allowed` do not count
 * against the file. */
enum scan_verdict scan_verdict(const struct scan *scan, enum scan_level allowed);

#endif
