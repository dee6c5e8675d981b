/*
 * The walk over regions, which file.c makes, for the parts that look into them. A
 * region is looked at once for everything it could be: each part below adds
 * findings, notes what is broken, adds regions of its own, and says whether it
 * accounts for every byte.
 */
#ifndef TCONV_FORMATS_SCAN_WALK_H
#define TCONV_FORMATS_SCAN_WALK_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/pickle/pickle.h"
#include "formats/scan/scan.h"

/* Bytes that regions lie in: a file, or what was unpacked. */
struct scan_source {
    struct tc_input *input;
    size_t users;
    bool packed; /* no file that a user has: offsets are relative */
};

enum scan_packing {
    SCAN_PLAIN,
    SCAN_DEFLATE, /* as zip has it; the size may not be known */
    SCAN_ZIPPED,  /* a member of a zip by another method */
    SCAN_ZLIB,
    SCAN_GZIP,
    SCAN_ZSTD,
    SCAN_BZIP2,
    SCAN_XZ,     /* and LZMA and lzip, which start by a mark */
    SCAN_LZMA,   /* LZMA without one: many files could be, few are */
    SCAN_CLOSED, /* by a program that is not here: LZ4 */
};

enum scan_role {
    SCAN_FILE,   /* must be a known format */
    SCAN_MEMBER, /* likewise, or plain text */
    /* Numbers, or what a broken archive left: something else accounts for it, or
     * nothing does. Here bytes may look like a pickle by accident: only one that
     * names something counts. */
    SCAN_DATA,
};

struct scan_region {
    struct scan_region *next;
    struct scan_source *source;
    uint64_t offset;
    uint64_t length;
    struct tc_text name; /* of the member; bytes are NULL: the file itself */
    uint64_t size;       /* unpacked, where that is known */
    uint32_t crc;        /* of a member of a zip */
    uint16_t method;     /* likewise */
    unsigned depth;
    uint8_t packing; /* enum scan_packing */
    uint8_t role;    /* enum scan_role */
    bool sized;      /* size and crc are known */
    bool archived;   /* a member of an archive: it has a name of its own there */
    bool script;     /* of a TorchScript archive */
    bool package;    /* of a torch.package archive */
    bool keys;       /* of torch's tar: persistent ids are keys */
    bool fragment;   /* of an archive that is broken: not looked at as one again */
};

/* What a region's parts are told. */
struct scan_view {
    struct scan *scan;
    const struct scan_region *region;
    struct tc_reader *reader; /* of the region's bytes, as a file of their own */
    struct tc_input *input;   /* the reader's */
    unsigned char head[512];
    size_t shown;
    bool zip;   /* a zip could be read from it by somebody */
    bool torch; /* and it has torch's data.pkl */
};

/* Bytes with one user, who drops them; takes the input, also where it fails. NULL
 * for no input, and without memory, with the error filled. */
struct scan_source *scan_source_new(struct tc_input *input, bool packed, struct tc_error *error);
void scan_source_drop(struct scan_source *source);

/* How many regions there may be grows with the bytes of files. */
void scan_allow_regions(struct scan *scan, uint64_t size);
/* Puts a region on the list, a user of its source: NULL with the error filled. */
struct scan_region *scan_push_region(struct scan *scan, struct scan_region region,
                                     struct tc_error *error);
/* Another region inside the one that is looked at, at its offset there. Those
 * added first are looked at last. NULL with the error filled. */
struct scan_region *scan_add_region(const struct scan_view *view, uint64_t offset, uint64_t length,
                                    struct tc_text name, enum scan_role role,
                                    struct tc_error *error);
/* Likewise of bytes that are in memory. */
bool scan_add_bytes(struct scan *scan, const void *bytes, uint64_t length, enum scan_role role,
                    struct tc_error *error);
/* A file that lies where the one that is looked at does, by its name there. */
bool scan_add_beside(const struct scan_view *view, struct tc_text name, enum scan_role role,
                     struct tc_error *error);
/* Another file, by its path. */
bool scan_add_file(const struct scan_view *view, const char *path, struct tc_text name,
                   enum scan_role role, struct tc_error *error);

/* The first thing that is wrong is kept; looking goes on where it can. False
 * where the error was the system's, which ends it all: then it is in *error. */
bool scan_note_broken(struct scan *scan, const struct tc_error *damage, struct tc_error *error);
void scan_note(struct scan *scan, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What is over a limit can't be proven; the option raises it. */
void scan_note_limit(struct scan *scan, const char *what, const char *option);

/* `offset` is that in the region. The name is copied. */
bool scan_add_finding(struct scan *scan, struct scan_finding finding, struct tc_error *error);
/* Of the region as a whole, by its code and what is wrong. */
bool scan_find(const struct scan_view *view, enum scan_level level, const char *code,
               struct tc_text name, uint64_t offset, const char *what, struct tc_error *error);

/* Parts. Each returns false only where the system failed or memory is out. */

/* pickle.c: pickles in a row from `at`, without end; *behind is where the
 * last that reached its STOP ends, `at` where none did. */
bool scan_pickles(const struct scan_view *view, uint64_t at, uint64_t *behind,
                  struct tc_error *error);

/* For a machine that is run elsewhere; the context is a struct scan. */
bool scan_on_global(void *context, const struct pickle_node *global, struct tc_error *error);
bool scan_on_call(void *context, const struct pickle_node *callable,
                  const struct pickle_node *arguments, uint64_t at, struct tc_error *error);
bool scan_on_misuse(void *context, const char *what, struct tc_text name, uint64_t at,
                    struct tc_error *error);

/* zip.c: members of an archive, wherever its end record is; and of one that
 * is broken whatever has a header. */
bool scan_zip(struct scan_view *view, bool *accounted, struct tc_error *error);
/* Sets view->zip. */
bool scan_zip_seen(struct scan_view *view, struct tc_error *error);

/* tar.c: members at steps of 512 bytes. */
bool scan_tar(const struct scan_view *view, bool *accounted, struct tc_error *error);

/* npy.c: arrays one after the other; *behind is where the last ends. */
bool scan_npy(const struct scan_view *view, uint64_t *behind, struct tc_error *error);

/* packed.c: the region unpacked: as much as could be, a file without a name.
 * What is wrong is in *damage. */
struct tc_input *scan_unpack(struct scan *scan, const struct scan_region *region,
                             struct tc_error *damage, struct tc_error *error);
/* A file without a name of these bytes. */
struct tc_input *scan_keep(const void *bytes, uint64_t length, const char *path,
                           struct tc_error *error);
/* Whether it starts as compressed bytes do. Not unpacked: SCAN_CLOSED. */
enum scan_packing scan_packing_seen(const struct scan_view *view);

/* source.c: programs in text: TorchScript's, Python's, Keras's. Told by the
 * member's name. *accounted where it is looked at as a whole. */
bool scan_source_text(const struct scan_view *view, bool *accounted, struct tc_error *error);

/* graph.c: the operators of an ONNX model or a TensorFlow graph. Damage is
 * only told of a model that could be opened: what could not is broken anyway. */
bool scan_onnx(const struct scan_view *view, bool opened, struct tc_error *error);
bool scan_tensorflow(const struct scan_view *view, bool *accounted, struct tc_error *error);

/* ASCII letters of any case. */
bool scan_name_ends(struct tc_text name, const char *ending);

#endif
