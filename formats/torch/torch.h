/*
 * Reads the tensors of torch's files: storages (runs of bytes in the file) and
 * views into them. The containers (zip.c, legacy.c, tar.c, plain.c) find the pickle
 * and the storages; walk.c walks over what the pickle built and adds a tensor, or
 * metadata, for each leaf; read.c reads the views.
 *
 *     torch_init → torch_open_zip, …_legacy, …_tar or …_plain → torch_finish
 *     torch_read, torch_extent, torch_verify …
 *     torch_release
 *
 * Names and nodes are the reader's arena's. Opening runs in one thread; torch_read
 * of a sequential tensor in one at a time, of any other in several; torch_verify
 * may run while tensors are read.
 */
#ifndef TCONV_FORMATS_TORCH_TORCH_H
#define TCONV_FORMATS_TORCH_TORCH_H

#include "core/base/arena.h"
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
#include "formats/zip/directory.h"
#include "formats/zip/read.h"

struct torch_storage {
    uint64_t offset;                 /* of its bytes in the file, */
    const unsigned char *memory;     /* or its bytes, where they are in memory */
    const struct zip_member *member; /* that has it, packed or stored; NULL: none */
    uint64_t nbytes;
    uint32_t key;     /* of one that a zip lacks: 1 + its position in `keys`; 0: none */
    uint8_t dtype;    /* of its class; TC_NONE: untyped bytes */
    bool placed : 1;  /* it is known where its bytes lie */
    bool excused : 1; /* its bytes may be missing: only an unselected tensor needs them */
    bool swap : 1;    /* big-endian */
};

/* A run of bytes of a storage, which legacy files name as a storage of its own. */
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
    bool conjugate : 1;     /* the imaginary parts are to be negated */
    bool negative : 1;      /* the elements are to be negated */
    uint64_t start;         /* byte in the storage */
    const uint64_t *shape;  /* of elements as they are stored */
    const uint64_t *stride; /* bytes; NULL: in C order */
};

/* Callbacks for a scan, which wants to know what the pickles of a file name and
 * call while they are read. */
struct torch_watch {
    void *context;                                      /* NULL: there is no scan */
    void (*on_member)(void *context, const char *name); /* of a tar */
    bool (*on_global)(void *context, const struct pickle_node *global, struct tc_error *error);
    bool (*on_call)(void *context, const struct pickle_node *callable,
                    const struct pickle_node *arguments, uint64_t at, struct tc_error *error);
    bool (*on_misuse)(void *context, const char *what, struct tc_text name, uint64_t at,
                      struct tc_error *error);
};

/* A value that became a tensor, or several: the checkpoint's tree needs its name. */
struct torch_taken {
    const struct pickle_node *node;
    struct tc_text name;
    bool renamed; /* the name is not its path, which another has */
};

struct torch {
    struct tc_reader *reader;
    struct torch_watch watch;
    struct torch_storage *storages;
    size_t storage_count;
    size_t storage_capacity;
    struct tc_name_map keys;       /* the storages' own names; the number is the storage's */
    struct tc_name_map part_names; /* the number is a position in `parts` */
    struct torch_part *parts;
    size_t part_capacity;
    struct torch_view *views; /* by a tensor's cookie */
    size_t view_count;
    size_t view_capacity;
    struct tc_arena nodes;      /* of the pickles: freed where only tensors came of them */
    struct pickle_node *object; /* what the pickle built; NULL: nothing that has a tree */
    uint64_t counted;           /* bytes of the nodes that the reader's arena counts as its own */
    bool forgotten;             /* what the pickle built was freed */
    struct torch_taken *taken;  /* in the order of the walk */
    size_t taken_count;
    size_t taken_capacity;
    uint64_t unpacked_total; /* bytes of packed storages that were unpacked so far */
    uint32_t first_cookie;   /* the cookie of the first view's tensor */
    uint64_t total;          /* bytes of all tensors */
    uint64_t steps;          /* opcodes in all pickles */
    uint64_t text;           /* bytes of all pickles */
    unsigned char *unpacked; /* the content of a file that is deflated as a whole */
    void *container;         /* what the container's persistent ids need */
    bool swap;               /* the file is big-endian */
    bool nested;             /* some tensors are inside nested lists, dicts or objects */
    bool legacy;             /* persistent ids may name parts of storages */
    /* The rest is for zip archives. */
    struct zip zip;
    struct tc_name_index members; /* of zip.members */
    struct tc_text root;
    uint32_t *used;     /* by member: 1 + the storage that lies there; 0: nothing refers to it */
    const char *folder; /* of the storages: "data/" or "constants/" */
    bool script;        /* a TorchScript archive */
    bool model;         /* one of torch 1.0 or 1.1, whose tensors model.json lists */
    bool bars;          /* "|" in a tensor's name stands for "." */
    /* Unknown classes; the number is how many objects of each there are. */
    struct tc_name_map classes;
    /* Names of values that become several tensors; the next number for a name that
     * occurs again (NAME~1). */
    struct tc_name_map groups;
    struct tc_name_map numbers;
    /* The sequential tensor that is being read: its view, or its packed storage. */
    const struct torch_view *current;
    struct tc_view_reader view_reader;
    bool viewing; /* view_reader is in use */
    struct zip_stream inflating;
    struct tc_spool spool;
    const struct torch_storage *spooled;
};

void torch_init(struct torch *torch, struct tc_reader *reader);
void torch_release(struct torch *torch);
/* Called once all tensors are added: makes the checks that need the whole file, and
 * marks tensors that share all their data. */
bool torch_finish(struct torch *torch, struct tc_error *error);

/*
 * The pickle of an array of objects in an .npy or .npz file, with --pickle=inert:
 *     torch_init → torch_add_objects for each → torch_finish_objects → torch_read …
 * Its tensors have cookies from TORCH_FIRST_OBJECT on, so that the file's own
 * backend can tell them from its own.
 */
#define TORCH_FIRST_OBJECT (UINT32_C(1) << 31)
/* Adds the tensors of such a pickle, which lies at [at, end) of `memory`, which must
 * outlive the reader, or where that is NULL of the file. They are called NAME.0 and
 * so on. */
bool torch_add_objects(struct torch *torch, struct tc_text name, const unsigned char *memory,
                       uint64_t at, uint64_t end, struct tc_error *error);
bool torch_finish_objects(struct torch *torch, struct tc_error *error);

/* Containers. */
bool torch_open_zip(struct torch *torch, struct tc_error *error);
/* The same up to the pickle's result, which the caller looks through itself. */
bool torch_open_object(struct torch *torch, struct pickle_node **root, struct tc_error *error);
bool torch_open_legacy(struct torch *torch, struct tc_error *error);
bool torch_open_tar(struct torch *torch, struct tc_error *error);
/* A file that is one pickle, without storages. */
bool torch_open_plain(struct torch *torch, struct tc_error *error);
/* Such a file that is deflated as a whole, as joblib does it. */
bool torch_open_packed(struct torch *torch, struct tc_error *error);
bool torch_packed_seen(const struct tc_probe *probe);

/* What the legacy and the tar container share. Each reads at the machine's place,
 * which moves on: the dict that describes the system that wrote the file, a number of
 * eight bytes, and a storage's bytes, whose place is recorded. */
bool torch_read_system(struct pickle *pickle);
bool torch_take_u64(struct pickle *pickle, uint64_t *value);
bool torch_place_storage(struct pickle *pickle, struct torch_storage *storage);

/* Adds the tensors that model.json lists. */
bool torch_read_model(struct torch *torch, struct tc_error *error);

/* Whether a probe sees an archive of torch; *script: of TorchScript, which has
 * constants. */
bool torch_zip_seen(const struct tc_probe *probe, bool *script);
/* Whether a legacy file's magic number is among the first bytes. */
bool torch_legacy_seen(const struct tc_probe *probe);

/* Gives a machine the callbacks of the scan, if there is one. */
void torch_watch_pickle(const struct torch *torch, struct pickle *pickle);
/* Sets up a machine for a pickle of this file, whose persistent ids name storages. */
void torch_pickle_init(struct torch *torch, struct pickle *pickle, uint64_t at, uint64_t end,
                       struct tc_error *error);
pickle_persistent torch_persistent;
/* Adds a pickle's size to the totals, which bound what the walk may cost, and its nodes to the
 * memory of the reader's tables. */
void torch_count_pickle(struct torch *torch, const struct pickle *pickle);
/* A machine's on_build: takes the array's bytes that follow joblib's wrapper. */
bool torch_joblib_array(struct pickle *pickle, struct pickle_node *wrapper);

/* The zip member with this name in this folder; NULL: there is none. */
struct zip_member *torch_find_member(const struct torch *torch, const char *folder,
                                     struct tc_text name);
/* Fails where a storage's bytes are missing or not as many as it says. */
bool torch_check_storage(const struct torch *torch, uint32_t index, struct tc_error *error);
/* Adds a storage. One that has the key already is taken, and must have the same
 * dtype and size. */
bool torch_add_storage(struct torch *torch, struct tc_text key, enum tc_dtype dtype, uint64_t numel,
                       uint32_t *index, struct tc_error *error);
/* How many elements a storage has; of untyped bytes: how many bytes. */
uint64_t torch_storage_numel(const struct torch_storage *storage);
/* Adds a storage without a key, whose bytes are in memory, or where that is NULL at
 * `offset` of the file. */
bool torch_add_bytes(struct torch *torch, const void *memory, uint64_t offset, uint64_t nbytes,
                     uint32_t *index, struct tc_error *error);

/* Frees what the pickles built, after the walk, where nothing needs it any more: that of a million
 * tensors takes more memory than everything else. */
void torch_forget(struct torch *torch);

/* Doubles the room of a list, which the reader's arena counts. */
bool torch_grow(struct torch *torch, void **list, size_t *capacity, size_t size,
                struct tc_error *error);
/* Adds a value to `taken`. */
bool torch_note_taken(struct torch *torch, const struct pickle_node *node, struct tc_text name,
                      bool renamed, struct tc_error *error);

/* A tensor as torch describes it: sizes and strides in elements of a storage. */
struct torch_shape {
    enum tc_dtype dtype;
    uint32_t storage;
    uint64_t base;   /* the tensor lies in these bytes of the storage: first byte, */
    uint64_t extent; /* and how many */
    uint64_t offset; /* of the first element, in elements from `base` on */
    unsigned rank;
    uint64_t size[TC_MAX_RANK];
    uint64_t stride[TC_MAX_RANK]; /* elements */
    bool conjugate;
    bool negative;
};
/* Adds a tensor to the table, which the name must outlive. */
bool torch_add_tensor(struct torch *torch, struct tc_text name, const struct torch_shape *shape,
                      struct tc_metadata *metadata, struct tc_error *error);

/* The value of a text key in a dict; where the key occurs twice, the last value, as in
 * Python. NULL where it does not occur, or the node is not a dict. */
struct pickle_node *torch_find_key(const struct pickle_node *dict, const char *key);
/* Fails for a tensor of a dtype that is known as a value alone. */
bool torch_refuse_dtype(const struct pickle_node *dtype, struct tc_error *error);

/* Adds all tensors and metadata that a pickle's result holds. */
bool torch_walk(struct torch *torch, struct pickle_node *root, struct tc_error *error);
/* Adds only its tensors, as NAME.KEY. */
bool torch_walk_under(struct torch *torch, struct tc_text name, struct pickle_node *root,
                      struct tc_error *error);
/* Adds its tensors and metadata, as NAME or NAME.KEY. */
bool torch_walk_named(struct torch *torch, struct tc_text name, struct pickle_node *root,
                      struct tc_error *error);
/* Adds the constant tensors of TorchScript's code, as CONSTANTS.c0 and so on. */
bool torch_walk_constants(struct torch *torch, struct pickle_node *root, struct tc_error *error);
/* The shape of one of numpy's arrays or scalars. False with the error filled where it
 * is damaged; *other says what it is where no tensor can hold it, else NULL. */
bool torch_numpy(struct torch *torch, const struct pickle_node *node, struct torch_shape *shape,
                 const char **other, struct tc_error *error);
/* The bytes of one element of any numpy dtype; *objects: the elements are Python
 * objects, which have no bytes in the array. */
bool torch_numpy_item(const struct pickle_node *dtype, uint64_t *nbytes, bool *objects);
/* Reads the non-negative integers of a tuple or list; false where it is anything
 * else. */
bool torch_sizes(const struct pickle_node *node, uint64_t *sizes, unsigned *rank);
/* Whether the strides are those of C order. */
bool torch_is_dense(const struct torch_shape *shape);
/* Sets the strides to those of C order. */
void torch_dense(struct torch_shape *shape);

/* Frees what reading holds: for torch_release. */
void torch_release_reading(struct torch *torch);
bool torch_read(struct torch *torch, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
                size_t length, struct tc_error *error);
bool torch_extent(struct torch *torch, const struct tc_tensor *tensor, struct tc_extent *extent);
bool torch_strided(struct torch *torch, const struct tc_tensor *tensor, struct tc_strided *strided);
bool torch_verify(struct torch *torch, const bool *wanted, struct tc_error *error);
/* The same for backends whose state is a struct torch, or begins with one. */
bool torch_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                       void *buffer, size_t length, struct tc_error *error);
bool torch_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                         struct tc_extent *extent);
bool torch_reader_strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                          struct tc_strided *strided);
bool torch_reader_check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error);
void torch_reader_close(struct tc_reader *reader);

#endif
