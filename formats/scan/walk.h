/*
 * The walk over regions, for the modules that look into them. file.c takes region
 * after region and calls each of the modules below for it, since loaders differ in
 * what they take bytes for. A module adds findings, records damage, adds regions
 * inside this one, and says whether it accounts for every byte.
 */
#ifndef TCONV_FORMATS_SCAN_WALK_H
#define TCONV_FORMATS_SCAN_WALK_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "formats/pickle/pickle.h"
#include "formats/scan/scan.h"

/* A file that regions lie in: the user's, or a temporary one of unpacked bytes. Its
 * input is closed when the last of its users drops it. */
struct scan_source {
    struct tc_input *input;
    size_t users;
    bool packed; /* unpacked bytes: offsets mean nothing in the user's file */
};

enum scan_packing {
    SCAN_PLAIN,
    SCAN_DEFLATE, /* as zip has it; the size may not be known */
    SCAN_ZIPPED,  /* a member of a zip by another method */
    SCAN_ZLIB,
    SCAN_GZIP,
    SCAN_ZSTD,
    SCAN_BZIP2,
    SCAN_XZ,     /* also LZMA and lzip, where they are recognised by their first bytes */
    SCAN_LZMA,   /* LZMA without such bytes: many files could be that, few are */
    SCAN_CLOSED, /* compressed in a way that tconv can't unpack: LZ4 */
};

enum scan_role {
    SCAN_FILE,   /* must be a known format */
    SCAN_MEMBER, /* must be a known format or plain text */
    /* Numbers of a tensor, or a piece of a broken archive, which need not be a known
     * format. Such bytes may look like a pickle by accident: only a pickle that
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
    uint16_t method;     /* of a member of a zip */
    unsigned depth;
    uint8_t packing; /* enum scan_packing */
    uint8_t role;    /* enum scan_role */
    bool sized;      /* size and crc are known */
    bool archived;   /* a member of an archive: it has a name of its own there */
    bool script;     /* of a TorchScript archive */
    bool package;    /* of a torch.package archive */
    bool keys;       /* of torch's tar: persistent ids are keys */
    bool fragment;   /* a piece of a broken archive: not looked at as an archive again */
};

/* What a module gets of the region it looks at. */
struct scan_view {
    struct scan *scan;
    const struct scan_region *region;
    struct tc_reader *reader; /* of the region's bytes, as a file of their own */
    struct tc_input *input;   /* the reader's */
    unsigned char head[512];
    size_t shown; /* bytes of `head` that the region has */
    bool zip;     /* some loader could read a zip from it */
    bool torch;   /* and that zip has torch's data.pkl */
};

/* A source with one user, who calls scan_source_drop. It owns the input, which is
 * closed on failure too. NULL where the input is NULL, or memory is out: then with
 * the error filled. */
struct scan_source *scan_source_new(struct tc_input *input, bool packed, struct tc_error *error);
void scan_source_drop(struct scan_source *source);

/* Raises the limit of regions by what a file of this size may have. */
void scan_allow_regions(struct scan *scan, uint64_t size);
/* Puts a copy of the region on the list, as another user of its source. NULL with
 * the error filled. */
struct scan_region *scan_push_region(struct scan *scan, struct scan_region region,
                                     struct tc_error *error);
/* Adds a region inside the one that is looked at; `offset` is relative to that one.
 * Those added first are looked at last. NULL with the error filled. */
struct scan_region *scan_add_region(const struct scan_view *view, uint64_t offset, uint64_t length,
                                    struct tc_text name, enum scan_role role,
                                    struct tc_error *error);
/* Adds a region of bytes that are in memory, which are copied. */
bool scan_add_bytes(struct scan *scan, const void *bytes, uint64_t length, enum scan_role role,
                    struct tc_error *error);
/* Adds a file of this name in the folder of the one that is looked at. */
bool scan_add_beside(const struct scan_view *view, struct tc_text name, enum scan_role role,
                     struct tc_error *error);
/* Opens a file of this name in that folder, to add regions of it. *source is NULL where it can't be
 * opened, which is recorded. */
bool scan_open_beside(const struct scan_view *view, struct tc_text name,
                      struct scan_source **source, struct tc_error *error);
/* Adds a file by its path; `name` is what findings call it. */
bool scan_add_file(const struct scan_view *view, const char *path, struct tc_text name,
                   enum scan_role role, struct tc_error *error);

/* Records damage, of which only the first is kept, so that the scan can go on. False
 * where the error is the system's, which ends the scan: it is then in *error. */
bool scan_note_broken(struct scan *scan, const struct tc_error *damage, struct tc_error *error);
/* Whether it is the machine that failed, which says nothing of the file. */
bool scan_machine_failed(const struct tc_error *error);
/* Records damage that these words describe. */
void scan_note(struct scan *scan, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Records that something is over a limit, so that it was not looked at whole, and
 * which option raises the limit. */
void scan_note_limit(struct scan *scan, const char *what, const char *option);

/* Adds a finding in the current region; finding.offset is relative to it. The name
 * is copied. */
bool scan_add_finding(struct scan *scan, struct scan_finding finding, struct tc_error *error);
/* Adds a finding that is neither an import nor a call. */
bool scan_find(const struct scan_view *view, enum scan_level level, const char *code,
               struct tc_text name, uint64_t offset, const char *what, struct tc_error *error);

/* The modules. Each function returns false only where the system failed or memory
 * is out. */

/* pickle.c: one pickle after the other from `at`, until one fails. *behind is where
 * the last that reached its STOP ends; `at` where none did. */
bool scan_pickles(const struct scan_view *view, uint64_t at, uint64_t *behind,
                  struct tc_error *error);

/* Callbacks for a pickle machine that another module runs; the context is a struct
 * scan. */
bool scan_on_global(void *context, const struct pickle_node *global, struct tc_error *error);
bool scan_on_call(void *context, const struct pickle_node *callable,
                  const struct pickle_node *arguments, uint64_t at, struct tc_error *error);
bool scan_on_misuse(void *context, const char *what, struct tc_text name, uint64_t at,
                    struct tc_error *error);

/* zip.c: members of a zip archive, wherever its end record is. Of a damaged archive,
 * everything that has a local header. */
bool scan_zip(struct scan_view *view, bool *accounted, struct tc_error *error);
/* Sets view->zip and view->torch. */
bool scan_zip_seen(struct scan_view *view, struct tc_error *error);

/* tar.c: members at steps of 512 bytes. */
bool scan_tar(const struct scan_view *view, bool *accounted, struct tc_error *error);

/* npy.c: arrays one after the other from the start; *behind is where the last
 * ends. */
bool scan_npy(const struct scan_view *view, uint64_t *behind, struct tc_error *error);

/* packed.c: unpacks the region, as far as possible, to a temporary file without a
 * name. What is wrong with it is in *damage. */
struct tc_input *scan_unpack(struct scan *scan, const struct scan_region *region,
                             struct tc_error *damage, struct tc_error *error);
/* A temporary file without a name that holds these bytes; `path` is for messages. */
struct tc_input *scan_keep(const void *bytes, uint64_t length, struct tc_input *source,
                           struct tc_error *error);
/* How the region is compressed, by its first bytes. */
enum scan_packing scan_packing_seen(const struct scan_view *view);

/* source.c: programs as text: TorchScript's, Python's, Keras's, recognised by the
 * member's name. *accounted is set where the whole text was looked at. */
bool scan_source_text(const struct scan_view *view, bool *accounted, struct tc_error *error);

/* checkpoint.c: the items of a distributed checkpoint whose table this region is. Each is a range
 * of a file beside it that torch loads as a file of its own. */
bool scan_checkpoint(const struct scan_view *view, struct tc_error *error);

/* graph.c: the operators of an ONNX model or a TensorFlow graph. Damage is only
 * recorded of a model that could be opened; any other is known to be broken. */
bool scan_onnx(const struct scan_view *view, bool opened, struct tc_error *error);
bool scan_tensorflow(const struct scan_view *view, bool *accounted, struct tc_error *error);

/* Whether a name has this ending, in ASCII letters of either case. */
bool scan_name_ends(struct tc_text name, const char *ending);

#endif
