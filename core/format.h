/*
 * The backend contract: what a file format is to the rest of the program.
 *
 * A backend is one `const struct tc_backend` with designated initialisers,
 * last in its file, and one line in formats/registry.def. The core allocates
 * its zeroed state (reader_size, writer_size).
 *
 * Reading: probe → open → read/extent/verify … → close. open parses headers
 * and fills reader->table; it reads no tensor data. close runs once state
 * exists, also after a failed open.
 *
 * Writing: check → begin → put for each item that has data of its own →
 * finish, or abort. The whole part is known at begin, so headers go first.
 * Exactly one of finish and abort runs. Only with TC_CAN_TIE are there items
 * that share another's data (tc_item.tied, core/ties.h).
 */
#ifndef TCONV_CORE_FORMAT_H
#define TCONV_CORE_FORMAT_H

#include "core/findings.h"
#include "core/flow.h"
#include "core/notes.h"
#include "core/outfile.h"
#include "core/table.h"

struct tc_backend;
struct tc_item;
struct tc_plan;
struct tc_part;
struct tc_select;
struct tc_source;

enum tc_caps {
    TC_CAN_WRITE = 1 << 0,
    TC_CAN_HOLD_MANY = 1 << 1, /* more than one tensor */
    TC_CAN_NAME = 1 << 2, /* tensors have names; else the file's stem, or, of many, 0, 1, … */
    TC_CAN_FILE_METADATA = 1 << 3,
    TC_CAN_TENSOR_METADATA = 1 << 4,
    TC_CAN_COMPRESS = 1 << 5,
    TC_CAN_CHECKSUM = 1 << 6,
    TC_CAN_LOAD_LAZILY = 1 << 7,  /* one tensor without reading the others */
    TC_NEEDS_SEEK = 1 << 8,       /* can't be written to a pipe */
    TC_WRITES_ANY_ORDER = 1 << 9, /* put may come in any order on a seekable output */
    TC_CAN_TIE = 1 << 10,         /* tensors may share their data */
    TC_HAS_NO_END = 1 << 11,      /* cut at some places a file is a whole one of less */
};

/* Everything a user may say about a format; each backend takes what it knows. */
struct tc_format_options {
    struct tc_limits limits;
    enum tc_dtype npy_void; /* what an ambiguous npy void dtype is; TC_NONE: unknown */
    /* Where damage is noted and passed over, so that all of it is found; NULL: it
     * is an error. */
    struct tc_findings *findings;
    int pickle_inert;               /* unknown classes in a pickle are passed over, not refused */
    int strings_bytes;              /* text in numpy's arrays is kept, as bytes; else left out */
    const struct tc_select *select; /* which tensors the user wants; NULL: all */
    /* What is read is this output, which has its names not yet; NULL: files. */
    const struct tc_publish *unpublished;
};

struct tc_reader {
    const struct tc_backend *backend;
    struct tc_input *input;
    const struct tc_format_options *options;
    struct tc_arena arena;
    struct tc_table table;
    struct tc_text stem; /* the name for tensors that have none in the file */
    void *state;
    bool checksum;
    bool compressed;
    /* Of a sharded model: the format of its shards and their file names. */
    const struct tc_backend *shard_backend;
    const char *const *shards;
    struct tc_input **shard_inputs;
    size_t shard_count;
    /* Other files that hold tensors' data; not shards. */
    struct tc_input **companions;
    size_t companion_count;
    struct tc_input *sidecar; /* that metadata came from; NULL: none */
    uint64_t size;            /* bytes of all files */
    uint64_t made;            /* bytes its tensors have that the files do not; --max-size */
    /* What it holds that a file of its tensors and metadata would not, such as
     * code; NULL: nothing. Such a file is not written anew in its place. */
    const char *beyond;
    /* What is to be told of the file: warnings, and as losses what it has but
     * its tables can't keep. */
    struct tc_notes notes;
    bool untold;         /* there was no memory for a note */
    bool skipped_pickle; /* a member that was left out is a pickle */
};

/* Where a tensor's C-order little-endian bytes lie as they are. */
struct tc_extent {
    struct tc_input *input;
    uint64_t offset;
};

/* What a probe sees: the first bytes and the file itself for a few more. */
struct tc_probe {
    struct tc_input *input;
    unsigned char head[512];
    size_t length;
};

struct tc_write_options {
    int compress; /* 0: no; else the level, or TC_COMPRESS_DEFAULT */
    bool checksum;
    bool onnx_external; /* ONNX: data beside the model, whatever its size */
};
#define TC_COMPRESS_DEFAULT (-1)

struct tc_writer {
    const struct tc_backend *backend;
    const struct tc_plan *plan;
    const struct tc_part *part;
    struct tc_outfile *out;
    struct tc_outfile *companion; /* where the part has one */
    struct tc_arena arena;
    void *state;
    /* Set by begin: the writer must see every byte (to hash or compress it),
     * so that the core may not copy from file to file. */
    bool sees_bytes;
};

/* Conventions of a format for models in several files. */
struct tc_sharding {
    /* Shards are STEM-00001-of-COUNT and the extension the user gave, their
     * index is STEM, that extension and this ending. */
    int count_digits;
    const char *index_ending;
    /* Adds what a shard's own metadata says of it; may be NULL. */
    bool (*shard_metadata)(struct tc_plan *plan, struct tc_part *part, size_t index,
                           struct tc_error *error);
    /* As put, but with room (tc_outfile_skip) in place of the item's data. */
    bool (*leave_room)(struct tc_writer *writer, size_t item, struct tc_error *error);
    bool (*write_index)(const struct tc_plan *plan, struct tc_outfile *out, struct tc_error *error);
    /* Under which name the index lists each item of a part; one without bytes
     * is not listed. NULL: each under its own. */
    bool (*listed)(const struct tc_plan *plan, const struct tc_part *part, struct tc_arena *arena,
                   struct tc_text *names, struct tc_error *error);
    /* The index has a place for plan->index_metadata. */
    bool index_metadata;
    /* A model that fits one shard is written without an index, unless the
     * user named the index. */
    bool single;
};

struct tc_backend {
    const char *name;
    const char *summary;
    const char *const *extensions; /* with their dot, NULL at the end; the first is canonical */
    const char *mime;
    const char *framework; /* whose tensors these are, as Hugging Face names it; NULL: anybody's */
    unsigned caps;
    tc_dtype_set dtypes; /* stored as they are; others by tc_dtype_promote */
    unsigned max_rank;
    size_t max_name;          /* bytes */
    bool empty_name;          /* "" is a name */
    int max_level;            /* of compression; levels start at 1 */
    uint64_t compress_memory; /* what that takes beside the stream; 0: next to nothing */

    /* 0 to 100, from content alone. */
    int (*probe)(const struct tc_probe *probe);

    size_t reader_size;
    bool (*open)(struct tc_reader *reader, struct tc_error *error);
    /* Bytes [offset, offset + length) of the tensor's C-order little-endian
     * stream. Safe from several threads, but for a tensor that is sequential:
     * that one from one thread at a time, and best with ascending offsets. */
    bool (*read)(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                 void *buffer, size_t length, struct tc_error *error);
    /* False where the bytes do not lie raw in a file. May be NULL. */
    bool (*extent)(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent);
    /* Checks the checksums that cover the wanted tensors (by table position;
     * NULL: all) and are not checked by reading them; a failure that
     * tc_reader_forgive takes does not end it. Runs beside read, in another
     * thread. May be NULL. */
    bool (*verify)(struct tc_reader *reader, const bool *wanted, struct tc_error *error);
    void (*close)(struct tc_reader *reader);

    size_t writer_size;
    /* The order in which items are written, unless the user names one; NULL:
     * as they come. */
    int (*compare)(const struct tc_item *a, const struct tc_item *b);
    /* What this target can't hold beyond what the fields above say; may add
     * to the ledger and say under which name an item comes back
     * (tc_item.written), and touches nothing else. May be NULL. */
    bool (*check)(struct tc_plan *plan, struct tc_error *error);
    /* Whether the format says by itself what an item's metadata says, so that
     * none is lost though it holds none. May be NULL: never. */
    bool (*holds_metadata)(const struct tc_item *item);
    /* Whether a part needs a second file for its data, its name with ".data"
     * behind. May be NULL: never. */
    bool (*companion)(const struct tc_plan *plan, const struct tc_part *part);
    bool (*begin)(struct tc_writer *writer, struct tc_error *error);
    bool (*put)(struct tc_writer *writer, size_t item, struct tc_source *source,
                struct tc_error *error);
    bool (*finish)(struct tc_writer *writer, struct tc_error *error);
    void (*abort)(struct tc_writer *writer);
    const struct tc_sharding *sharding; /* NULL: none */
};

/* Whether its tensors are called 0, 1, … for want of names. */
static inline bool tc_backend_numbers(const struct tc_backend *backend) {
    return backend->caps & TC_CAN_HOLD_MANY && !(backend->caps & TC_CAN_NAME);
}

/* Opens `input` with a given backend; takes the input over, also on failure.
 * tc_reader_close frees the reader and its input. */
struct tc_reader *tc_reader_open(const struct tc_backend *backend, struct tc_input *input,
                                 const struct tc_format_options *options, struct tc_error *error);
void tc_reader_close(struct tc_reader *reader);
/* A file that belongs to the reader's own, such as a shard. */
struct tc_input *tc_reader_open_beside(const struct tc_reader *reader, const char *path,
                                       struct tc_input_pool *pool, struct tc_error *error);
bool tc_reader_has_beside(const struct tc_reader *reader, const char *path);
bool tc_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                    void *buffer, size_t length, struct tc_error *error);
bool tc_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                      struct tc_extent *extent);
/* Fails with TC_IO where one of its files is not what it was when it was opened. */
bool tc_reader_unchanged(struct tc_reader *reader, struct tc_error *error);
/* Every file it reads, one after the other: its own, shards that are there,
 * companions, the sidecar. *at starts with 0; NULL behind the last. */
struct tc_input *tc_reader_next_file(const struct tc_reader *reader, size_t *at);
/* tc_publish_check against each of them, and tc_publish_limit. */
bool tc_reader_check_target(const struct tc_reader *reader, struct tc_publish *publish,
                            const char *name, struct tc_error *error);
/* Runs the readers' verify, one after the other, in a thread of its own;
 * tc_verify_join waits for the verdict. `wanted` has a list a reader, or is
 * NULL: everything. */
struct tc_verify;
struct tc_verify *tc_verify_start(struct tc_reader *const *readers, bool *const *wanted,
                                  size_t count, struct tc_error *error);
bool tc_verify_join(struct tc_verify *verify, struct tc_error *error);

/* Where findings are collected: whether the error was damage, and is now one of
 * them; the error is then as if nothing had happened. */
bool tc_reader_forgive(struct tc_reader *reader, struct tc_error *error);

/* Tells something of the file, in the ledger of any conversion where it is a
 * change or a loss. A name is that of what it concerns; its bytes may be NULL.
 * Texts without names in them make one line of many notes. */
bool tc_reader_note(struct tc_reader *reader, enum tc_severity severity, enum tc_kind kind,
                    struct tc_text name, struct tc_error *error, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* A warning without a name. Where there is no memory for it, opening fails. */
void tc_reader_warn(struct tc_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* As a warning, and a loss in the ledger of any conversion. */
void tc_reader_lose(struct tc_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Leaves out a member of the file that is no tensor tconv can hold (text, dates,
 * objects): it is told by name and reason as a loss `skipped`, unless the user
 * did not want it anyway. `name` is what the tensor would be called. */
enum tc_skip { TC_SKIP_VALUE, TC_SKIP_PICKLE /* what was left out is a pickle */ };
bool tc_reader_skip(struct tc_reader *reader, struct tc_text name, enum tc_skip what,
                    struct tc_error *error, const char *reason, ...)
    __attribute__((format(printf, 5, 6)));
/* Fails as a file does of which nothing is left: its tensors were all left out. */
bool tc_reader_refuse_rest(const struct tc_reader *reader, struct tc_error *error);
/* Whether --include and --exclude let a tensor of this name through. A backend
 * asks before one tensor makes it refuse the file. */
bool tc_reader_wants(const struct tc_reader *reader, struct tc_text name);
/* What --max-size allows for files of this size in all. */
uint64_t tc_made_limit(uint64_t limit, uint64_t size);
uint64_t tc_reader_made_limit(const struct tc_reader *reader);
/* Counts bytes that its tensors have but its files do not: one value or one
 * stretch of data shown many times. A sharded model counts those of its shards. */
bool tc_reader_charge_made(struct tc_reader *reader, uint64_t bytes, struct tc_error *error);
/* Refuses a file whose data, once decompressed, would be made from nothing. */
bool tc_reader_check_expansion(struct tc_reader *reader, uint64_t expanded, struct tc_error *error);
/* A header's bytes from malloc, within the memory the user allows. */
void *tc_reader_load(struct tc_reader *reader, uint64_t offset, uint64_t length,
                     struct tc_error *error);
/* The header's own limit, or the user's. */
uint64_t tc_reader_header_limit(const struct tc_reader *reader, uint64_t standard);
/* Refuses what is longer than that; `what` says what it is: "header". */
bool tc_reader_check_header(const struct tc_reader *reader, const char *what, uint64_t length,
                            uint64_t standard, struct tc_error *error);

#endif
