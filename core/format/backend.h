/*
 * The backend contract: what a file format is to the rest of the program.
 *
 * A backend is one `const struct tc_backend` with designated initialisers,
 * last in its file, and one line in formats/registry.def. The core allocates
 * its zeroed state (reader_size, writer_size).
 *
 * Reading: probe → open → read/extent/check_sums … → close. open parses headers
 * and fills reader->table; it reads no tensor data. close always runs, also after
 * a failed open.
 *
 * Writing: check → begin → put for each item that has data of its own →
 * finish, or abort. The whole file is known at begin, so headers go first.
 * Exactly one of finish and abort runs, where the backend has it. Items that share
 * another's data (tc_item.tied, core/plan/ties.h) exist only with TC_CAN_TIE.
 */
#ifndef TCONV_CORE_FORMAT_BACKEND_H
#define TCONV_CORE_FORMAT_BACKEND_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/findings.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/format_option.h"
#include "core/io/input.h"
#include "core/remote/client.h"
#include "core/tensor/dtype.h"
#include "core/tensor/strided_view.h"

struct tc_backend;
struct tc_item;
struct tc_outfile;
struct tc_output_file;
struct tc_plan;
struct tc_publish;
struct tc_reader;
struct tc_select;
struct tc_source;
struct tc_tensor;

/* What a format can do, and what it needs. */
enum tc_caps {
    TC_CAN_WRITE = 1 << 0,
    TC_CAN_HOLD_MANY = 1 << 1, /* a file may hold more than one tensor */
    /* Tensors have names. In a format without them a file's only tensor is called
     * as the file is, without its extension, and several are called 0, 1, … */
    TC_CAN_NAME = 1 << 2,
    TC_CAN_FILE_METADATA = 1 << 3,
    TC_CAN_TENSOR_METADATA = 1 << 4,
    TC_CAN_COMPRESS = 1 << 5,
    TC_CAN_CHECKSUM = 1 << 6,
    TC_CAN_LOAD_LAZILY = 1 << 7,  /* a tensor is read without reading the others */
    TC_NEEDS_SEEK = 1 << 8,       /* it can't be written to a pipe */
    TC_WRITES_ANY_ORDER = 1 << 9, /* put takes items in any order where the output can seek */
    TC_CAN_TIE = 1 << 10,         /* tensors may share their data */
    /* A file that is cut short at some places is a valid file, perhaps with fewer tensors. */
    TC_HAS_NO_END = 1 << 11,
    TC_CAN_TYPE_METADATA = 1 << 12, /* metadata has types (tc_reader.metadata_types) */
    TC_CAN_NEST = 1 << 13,          /* it writes tensors and values nested as plan->tree says */
    /* Where it holds one tensor, that may be a sparse one in COO layout: three items. */
    TC_CAN_HOLD_SPARSE = 1 << 14,
};

/* How a file is read: options for every format, and settings of those that only
 * some formats have. */
struct tc_format_options {
    struct tc_limits limits;
    struct tc_option_settings settings; /* of the options that formats declare for reading */
    /* Collects damage, so that reading goes on and finds all of it; NULL: the first
     * damage is an error. */
    struct tc_findings *findings;
    const struct tc_select *select; /* which tensors the user wants; NULL: all */
    /* The output that is read back before its files have their names; NULL: files
     * are opened by their names. */
    const struct tc_publish *unpublished;
    /* The file is one of several that make up a model, opened by the reader of the
     * whole: it stands for itself alone, whatever it says of the others. */
    bool part;
    /* Checksums are left unchecked but for those that reading itself checks, such as the CRC of a
     * member that is inflated. */
    bool unverified;
    /* Little of a file is wanted: a checksum of all of it is none to fetch a remote file for. */
    bool sparing;
    /* The tree of a checkpoint is wanted even where the file is one dict of tensors. */
    bool tree;
    struct tc_remote *remote; /* opens addresses; NULL: there are none */
};

/* Where a tensor's C-order little-endian bytes lie unchanged in a file. */
struct tc_extent {
    struct tc_input *input;
    uint64_t offset;
};

/* The same for a tensor whose elements lie there little-endian, but not in C order. */
struct tc_strided {
    struct tc_input *input;
    uint64_t offset;     /* of the storage in the file */
    struct tc_view view; /* of the storage */
};

/* What a probe sees: the first bytes, and the file itself to read a few more. */
struct tc_probe {
    struct tc_input *input;
    unsigned char head[512];
    size_t length;
};

struct tc_write_options {
    int compress; /* 0: no; else the level, or TC_COMPRESS_DEFAULT */
    bool checksum;
    bool companion; /* with a second file for the data, where the format has such files */
    /* What data starts at a multiple of; TC_ALIGN_SHARE: where it can share the input's blocks;
     * 0: as the format's own writers do. */
    uint64_t align;
    struct tc_option_settings settings; /* of the options that formats declare for writing */
};
#define TC_COMPRESS_DEFAULT (-1)
#define TC_ALIGN_SHARE UINT64_MAX
#define TC_MOST_ALIGNMENT (UINT64_C(1) << 16)

struct tc_writer {
    const struct tc_backend *backend;
    const struct tc_plan *plan;
    const struct tc_output_file *file;
    struct tc_outfile *out;
    struct tc_outfile *companion; /* the second file, for data; NULL: there is none */
    struct tc_arena arena;
    void *state;
    /* Set by begin: the writer must see every byte (to hash or compress it),
     * so that the core may not copy from file to file. */
    bool sees_bytes;
    /* Set by begin: chunks are to have the CRC-32 of their bytes; and are to be deflated at this
     * level, each a piece of the item's stream (core/io/deflate.h). 0: they are not. */
    bool wants_crc;
    int deflate_level;
};

/* Conventions of a format for models in several files. */
struct tc_sharding {
    /* Shards are called STEM-00001-of-COUNT with the extension that the user gave;
     * their index is STEM, that extension and index_ending. NULL: there is no index;
     * who opens the first shard opens them all. */
    int count_digits;
    const char *index_ending;
    /* Adds a shard's own metadata, such as its number; may be NULL. */
    bool (*shard_metadata)(struct tc_plan *plan, struct tc_output_file *file, size_t index,
                           struct tc_error *error);
    /* Like put, but skips the item's data (tc_outfile_skip): for measuring. */
    bool (*leave_room)(struct tc_writer *writer, size_t item, struct tc_error *error);
    /* NULL where there is no index. */
    bool (*write_index)(const struct tc_plan *plan, struct tc_outfile *out, struct tc_error *error);
    /* The name under which the index lists each item of a file; an item whose name
     * has no bytes (NULL) is not listed. NULL: each under its own name. */
    bool (*listed)(const struct tc_plan *plan, const struct tc_output_file *file,
                   struct tc_arena *arena, struct tc_text *names, struct tc_error *error);
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
    const char *many;      /* of a format for one tensor: which to use for several; NULL: none */
    const char *framework; /* the framework of its tensors, as Hugging Face names it; NULL: any */
    unsigned caps;
    tc_dtype_set dtypes; /* those it stores; others become what tc_dtype_promote says */
    unsigned max_rank;
    size_t max_name; /* bytes */
    bool empty_name; /* a tensor may be called "" */
    /* Options of its own, for reading and for writing, NULL at the end; NULL: none. */
    const struct tc_format_option *const *options;
    /* What --align can ask of the writer (core/plan/layout.h): the most that data can be aligned
     * to, and whether it can start where it shares blocks with an input. */
    uint64_t max_align;
    bool shares_blocks;
    const char *checksum;     /* what --no-checksum leaves out; NULL: nothing */
    const char *compression;  /* its name, for the help */
    int default_level;        /* of compression */
    int max_level;            /* of compression; levels start at 1 */
    uint64_t compress_memory; /* bytes that compressing takes besides the stream; 0: few */

    /* 0 to 100, from content alone. */
    int (*probe)(const struct tc_probe *probe);

    size_t reader_size;
    bool (*open)(struct tc_reader *reader, struct tc_error *error);
    /* Bytes [offset, offset + length) of the tensor's C-order little-endian
     * stream. Several threads may call it, but only one at a time for a tensor that
     * is sequential, and then best with ascending offsets; and only one at a time for all
     * such tensors, unless open sets reader->streams. */
    bool (*read)(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                 void *buffer, size_t length, struct tc_error *error);
    /* False where the bytes do not lie raw in a file. May be NULL. */
    bool (*extent)(struct tc_reader *reader, const struct tc_tensor *tensor,
                   struct tc_extent *extent);
    /* False where its elements do not lie so in a file. May be NULL. */
    bool (*strided)(struct tc_reader *reader, const struct tc_tensor *tensor,
                    struct tc_strided *strided);
    /* Checks those checksums of the wanted tensors (by table position; NULL: all)
     * that read does not check; goes on after a failure that tc_reader_forgive
     * accepts. Runs in a thread of its own while others call read. May be NULL. */
    bool (*check_sums)(struct tc_reader *reader, const bool *wanted, struct tc_error *error);
    void (*close)(struct tc_reader *reader);
    /* Writes the tree of a checkpoint (core/format/tree.h), which is NULL where the format has no
     * nesting. *why says in a few words why this file has none; else it is NULL. */
    bool (*tree)(struct tc_reader *reader, struct tc_buffer *text, const char **why,
                 struct tc_error *error);

    /* Another format that the settings ask to be written under this one's name
     * and extension; NULL: this one. May be NULL: always this one. */
    const struct tc_backend *(*written_instead)(const struct tc_option_settings *settings);
    size_t writer_size;
    /* The order in which items are written, unless the user names one; NULL: that
     * of the source. */
    int (*compare)(const struct tc_item *a, const struct tc_item *b);
    /* Refuses what this target can't hold for reasons that the fields above don't
     * say. It may add to the ledger and set tc_item.written, and changes nothing
     * else. May be NULL. */
    bool (*check)(struct tc_plan *plan, struct tc_error *error);
    /* Whether the format expresses an item's metadata in another way, so that it is
     * not lost though the format holds no metadata. May be NULL: never. */
    bool (*holds_metadata)(const struct tc_item *item);
    /* Whether a file needs a second one for its data, which has its name and
     * ".data". May be NULL: never. */
    bool (*companion)(const struct tc_plan *plan, const struct tc_output_file *file);
    bool (*begin)(struct tc_writer *writer, struct tc_error *error);
    /* May be NULL: the bytes go to writer->out as they are (tc_source_write). */
    bool (*put)(struct tc_writer *writer, size_t item, struct tc_source *source,
                struct tc_error *error);
    /* Where the item's bytes go in writer->out, as they are: then the core may write pieces of
     * several items by turns, without put. Of a format that has TC_WRITES_ANY_ORDER. May be NULL.
     */
    uint64_t (*place)(const struct tc_writer *writer, size_t item);
    /* Either may be NULL: there is nothing to write or to release. */
    bool (*finish)(struct tc_writer *writer, struct tc_error *error);
    void (*abort)(struct tc_writer *writer);
    const struct tc_sharding *sharding; /* NULL: none */
};

/* Whether an option is one of the format's own. */
static inline bool tc_backend_declares(const struct tc_backend *backend,
                                       const struct tc_format_option *option) {
    for (size_t i = 0; backend->options && backend->options[i]; i++)
        if (backend->options[i] == option)
            return true;
    return false;
}

/* Whether its tensors are called 0, 1, … since the format has no names. */
static inline bool tc_backend_numbers(const struct tc_backend *backend) {
    return backend->caps & TC_CAN_HOLD_MANY && !(backend->caps & TC_CAN_NAME);
}

#endif
