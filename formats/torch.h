/*
 * Tensors of torch's files: storages (runs of bytes in the file) and views
 * into them. The containers (torch_zip.c, torch_legacy.c, torch_tar.c) find
 * the pickle and the storages; torch_tree.c walks what the pickle holds and
 * adds a tensor, or metadata, for each leaf; torch_read.c reads the views.
 *
 *     torch_init → torch_open_zip, …_legacy, …_tar or …_plain → torch_finish
 *     torch_read, torch_extent, torch_verify …
 *     torch_release
 */
#ifndef TCONV_FORMATS_TORCH_H
#define TCONV_FORMATS_TORCH_H

#include "core/gather.h"
#include "core/spool.h"
#include "formats/pickle.h"
#include "formats/zip_read.h"

struct torch_storage {
    uint64_t offset;                 /* of its bytes in the file, */
    const unsigned char *memory;     /* or they are here, */
    const struct zip_member *member; /* or packed in this; stored: for its CRC */
    uint64_t nbytes;
    uint64_t numel;
    uint8_t dtype; /* of its class; TC_NONE: untyped bytes */
    bool placed;   /* where it lies is known */
    bool swap;     /* big-endian */
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
    struct tc_table keys;     /* the storages' own names; cookie: storage */
    struct tc_table parts;    /* names of views of storages; cookie: storage; offset, nbytes */
    struct torch_view *views; /* by a tensor's cookie */
    size_t view_count;
    size_t view_capacity;
    uint64_t total; /* bytes of all tensors */
    uint64_t steps; /* opcodes that the pickles took */
    bool swap;      /* the file is big-endian */
    bool legacy;    /* persistent ids may name views of storages */
    /* Of a zip. */
    struct zip zip;
    struct tc_table members; /* cookie: member */
    struct tc_text root;
    bool *used;  /* by member: a storage that something refers to */
    bool script; /* TorchScript */
    bool bars;   /* a bar in a name stands for a dot */
    /* Classes that were not understood. */
    struct tc_table classes;
    /* The one view or storage that is being gathered or inflated. */
    const struct torch_view *current;
    struct tc_gather gather;
    bool gathering;
    struct zip_stream inflating;
    struct tc_spool spool;
    const struct torch_storage *spooled;
};

void torch_init(struct torch *torch, struct tc_reader *reader);
void torch_release(struct torch *torch);
/* Checks what only the whole file tells; ties tensors that share all. */
bool torch_finish(struct torch *torch, struct tc_error *error);

/* Containers. */
bool torch_open_zip(struct torch *torch, struct tc_error *error);
bool torch_open_legacy(struct torch *torch, struct tc_error *error);
bool torch_open_tar(struct torch *torch, struct tc_error *error);
/* One pickle and nothing behind it. */
bool torch_open_plain(struct torch *torch, struct tc_error *error);

/* What the two old ones share: the dict that tells of the system, numbers in
 * the file, and where a storage lies. `at` moves on. */
bool torch_read_system(struct pickle *pickle);
bool torch_take_u64(struct torch *torch, uint64_t *at, uint64_t end, uint64_t *value,
                    struct tc_error *error);
bool torch_place_storage(struct torch_storage *storage, uint64_t *at, uint64_t end,
                         struct tc_error *error);

/* Whether a probe sees a torch archive in a zip; with constants: TorchScript. */
bool torch_zip_seen(const struct tc_probe *probe, bool *script);
/* Whether a legacy file's magic number is among the first bytes. */
bool torch_legacy_seen(const struct tc_probe *probe);

/* A machine for this file, its persistent ids being torch's. */
void torch_watch_pickle(const struct torch *torch, struct pickle *pickle);
void torch_pickle_init(struct torch *torch, struct pickle *pickle, uint64_t at, uint64_t end,
                       struct tc_error *error);
pickle_persistent torch_persistent;

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

/* Adds everything that a pickle's result holds. */
bool torch_walk(struct torch *torch, struct pickle_node *root, struct tc_error *error);
/* numpy's arrays and scalars: false with the error filled where they are
 * broken; *known is false for kinds that no tensor can hold. */
bool torch_numpy(struct torch *torch, const struct pickle_node *node, struct torch_shape *shape,
                 bool *known, struct tc_error *error);
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
