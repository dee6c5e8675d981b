/*
 * Tensors of torch's files: storages (runs of bytes in the file) and views
 * into them. The containers (zip.c, legacy.c, tar.c) find
 * the pickle and the storages; tree.c walks what the pickle holds and
 * adds a tensor, or metadata, for each leaf; read.c reads the views.
 *
 *     torch_init → torch_open_zip, …_legacy, …_tar or …_plain → torch_finish
 *     torch_read, torch_extent, torch_verify …
 *     torch_release
 */
#ifndef TCONV_FORMATS_TORCH_TORCH_H
#define TCONV_FORMATS_TORCH_TORCH_H

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/spool.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/strided_view.h"
#include "core/tensor/table.h"
#include "formats/pickle/pickle.h"
#include "formats/zip/read.h"

struct torch_storage {
    uint64_t offset;                 /* of its bytes in the file, */
    const unsigned char *memory;     /* or they are here, */
    const struct zip_member *member; /* or packed in this; stored: for its CRC */
    uint64_t nbytes;
    uint64_t numel;
    struct tc_text key; /* its name; empty: none */
    uint8_t dtype;      /* of its class; TC_NONE: untyped bytes */
    bool placed;        /* where it lies is known */
    bool excused;       /* a tensor of it that nobody wants */
    bool swap;          /* big-endian */
};

/* A run of bytes of a storage. */
struct torch_part {
    uint32_t storage;
    uint64_t offset;
    uint64_t nbytes;
};

struct torch_view {
    uint32_t storage;
    uint8_t dtype;
    uint8_t rank;
    uint8_t element; /* bytes */
    bool swap : 1;
    bool conjugate : 1; /* torch keeps these two as a note on a view */
    bool negative : 1;
    uint64_t start;         /* byte in the storage */
    const uint64_t *shape;  /* of elements as they are stored */
    const uint64_t *stride; /* bytes; NULL: in C order */
};

/* Looks on while pickles are read for what they name, and nothing else. */
struct torch_watch {
    void *context;                                      /* NULL: nobody does */
    void (*on_member)(void *context, const char *name); /* of a tar */
    bool (*on_global)(void *context, const struct pickle_node *global, struct tc_error *error);
    bool (*on_call)(void *context, const struct pickle_node *callable,
                    const struct pickle_node *arguments, uint64_t at, struct tc_error *error);
    bool (*on_misuse)(void *context, const char *what, struct tc_text name, uint64_t at,
                      struct tc_error *error);
};

struct torch {
    struct tc_reader *reader;
    struct torch_watch watch;
    struct torch_storage *storages;
    size_t storage_count;
    size_t storage_capacity;
    struct tc_name_map keys;       /* the storages' own names; the number is the storage's */
    struct tc_name_map part_names; /* of parts of storages; the number is a position in `parts` */
    struct torch_part *parts;
    size_t part_capacity;
    struct torch_view *views; /* by a tensor's cookie */
    size_t view_count;
    size_t view_capacity;
    uint64_t unpacked_total; /* bytes of packed storages that were unpacked so far */
    uint32_t first_cookie;   /* of a view's tensor */
    uint64_t total;          /* bytes of all tensors */
    uint64_t steps;          /* opcodes that the pickles took */
    uint64_t text;           /* bytes that they have */
    unsigned char *unpacked; /* a file that is deflated as a whole */
    void *container;         /* what its persistent ids need; a container's own */
    bool swap;               /* the file is big-endian */
    bool nested;             /* tensors stand in lists, dicts or objects in one another */
    bool legacy;             /* persistent ids may name views of storages */
    /* Of a zip. */
    struct zip zip;
    struct tc_name_map members; /* the number is the member's */
    struct tc_text root;
    uint32_t *used;     /* by member: 1 + the storage that lies there; 0: nothing refers to it */
    const char *folder; /* of the storages: "data/" or "constants/" */
    bool script;        /* TorchScript, */
    bool model;         /* of torch 1.0 or 1.1: model.json */
    bool bars;          /* a bar in a name stands for a dot */
    /* Names that are not understood; the number is how many calls there were of each. */
    struct tc_name_map classes;
    /* Names: of tensors that are several, and the numbers behind names that came again. */
    struct tc_name_map groups;
    struct tc_name_map numbers;
    /* The one view or storage that is being gathered or inflated. */
    const struct torch_view *current;
    struct tc_view_reader view_reader;
    bool gathering;
    struct zip_stream inflating;
    struct tc_spool spool;
    const struct torch_storage *spooled;
};

void torch_init(struct torch *torch, struct tc_reader *reader);
void torch_release(struct torch *torch);
/* Checks what only the whole file tells; ties tensors that share all. */
bool torch_finish(struct torch *torch, struct tc_error *error);

/*
 * The pickle of an array of objects in a file of numpy's, with --pickle=inert:
 *     torch_init → torch_add_objects for each → torch_finish_objects → torch_read …
 * Its tensors have cookies from TORCH_FIRST_OBJECT on, so that the file's own
 * backend can tell them from its own.
 */
#define TORCH_FIRST_OBJECT (UINT32_C(1) << 31)
/* In memory that outlives the reader, or where that is NULL at a place of the
 * file. The tensors are called NAME.0 and so on. */
bool torch_add_objects(struct torch *torch, struct tc_text name, const unsigned char *memory,
                       uint64_t at, uint64_t end, struct tc_error *error);
bool torch_finish_objects(struct torch *torch, struct tc_error *error);

/* Containers. */
bool torch_open_zip(struct torch *torch, struct tc_error *error);
bool torch_open_legacy(struct torch *torch, struct tc_error *error);
bool torch_open_tar(struct torch *torch, struct tc_error *error);
/* One pickle and nothing behind it. */
bool torch_open_plain(struct torch *torch, struct tc_error *error);
/* The same, deflated as a whole. */
bool torch_open_packed(struct torch *torch, struct tc_error *error);
bool torch_packed_seen(const struct tc_probe *probe);

/* What the two old ones share: the dict that tells of the system, numbers in
 * the file, and where a storage lies. The machine's place moves on. */
bool torch_read_system(struct pickle *pickle);
bool torch_take_u64(struct pickle *pickle, uint64_t *value);
bool torch_place_storage(struct pickle *pickle, struct torch_storage *storage);

/* The tensors that model.json lists. */
bool torch_read_model(struct torch *torch, struct tc_error *error);

/* Whether a probe sees a torch archive in a zip; with constants: TorchScript. */
bool torch_zip_seen(const struct tc_probe *probe, bool *script);
/* Whether a legacy file's magic number is among the first bytes. */
bool torch_legacy_seen(const struct tc_probe *probe);

/* A machine for this file, its persistent ids being torch's. */
void torch_watch_pickle(const struct torch *torch, struct pickle *pickle);
void torch_pickle_init(struct torch *torch, struct pickle *pickle, uint64_t at, uint64_t end,
                       struct tc_error *error);
pickle_persistent torch_persistent;
/* Counts what a pickle took, which bounds what its values may take. */
void torch_count_pickle(struct torch *torch, const struct pickle *pickle);
/* The bytes of an array behind joblib's wrapper of it. */
bool torch_joblib_array(struct pickle *pickle, struct pickle_node *wrapper);

/* The number of a member of a zip's folder. NULL: not there. */
const uint32_t *torch_find_member(const struct torch *torch, const char *folder,
                                  struct tc_text name);
/* Whether a storage's bytes are where they should be. */
bool torch_check_storage(const struct torch *torch, uint32_t index, struct tc_error *error);
/* A storage; a key that is there must be the same again. */
bool torch_add_storage(struct torch *torch, struct tc_text key, enum tc_dtype dtype, uint64_t numel,
                       uint32_t *index, struct tc_error *error);
/* One without a key, whose bytes are in memory, or where that is NULL at
 * `offset` of the file. */
bool torch_add_bytes(struct torch *torch, const void *memory, uint64_t offset, uint64_t nbytes,
                     uint32_t *index, struct tc_error *error);

/* What a rebuilt tensor is; sizes as torch has them. */
struct torch_shape {
    enum tc_dtype dtype;
    uint32_t storage;
    uint64_t base;   /* of the part of the storage that counts: byte, */
    uint64_t extent; /* and bytes */
    uint64_t offset; /* elements */
    unsigned rank;
    uint64_t size[TC_MAX_RANK];
    uint64_t stride[TC_MAX_RANK]; /* elements */
    bool conjugate;
    bool negative;
};
/* Adds a tensor to the table; the name must outlive it. */
bool torch_add_tensor(struct torch *torch, struct tc_text name, const struct torch_shape *shape,
                      struct tc_metadata *metadata, struct tc_error *error);

/* The value of a text key; of several the last, as in Python. NULL where there is
 * none, or no dict. */
struct pickle_node *torch_find_key(const struct pickle_node *dict, const char *key);

/* Adds everything that a pickle's result holds. */
bool torch_walk(struct torch *torch, struct pickle_node *root, struct tc_error *error);
/* Only the tensors of it, under this name. */
bool torch_walk_under(struct torch *torch, struct tc_text name, struct pickle_node *root,
                      struct tc_error *error);
/* Likewise the tensors of TorchScript's code, CONSTANTS.c0 and so on. */
bool torch_walk_constants(struct torch *torch, struct pickle_node *root, struct tc_error *error);
/* numpy's arrays and scalars: false with the error filled where they are
 * broken; *other says what those are that no tensor can hold. */
bool torch_numpy(struct torch *torch, const struct pickle_node *node, struct torch_shape *shape,
                 const char **other, struct tc_error *error);
/* Bytes of one element of a numpy dtype, whatever it is; objects have none. */
bool torch_numpy_item(const struct pickle_node *dtype, uint64_t *nbytes, bool *objects);
/* Non-negative integers of a tuple or list; false where it is none. */
bool torch_sizes(const struct pickle_node *node, uint64_t *sizes, unsigned *rank);
/* Strides of C order, in elements. */
void torch_dense(struct torch_shape *shape);

/* What reading holds: for torch_release. */
void torch_forget(struct torch *torch);
bool torch_read(struct torch *torch, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
                size_t length, struct tc_error *error);
bool torch_extent(struct torch *torch, const struct tc_tensor *tensor, struct tc_extent *extent);
bool torch_verify(struct torch *torch, const bool *wanted, struct tc_error *error);

#endif
