/*
 * A file that is open for reading: its table of tensors, the notes on it, and access to its data.
 * Its backend fills it when it is opened; everybody else only reads it. It owns its input, and all
 * that its table and notes point to. Several threads may read tensors, as tc_backend.read says;
 * the other functions are for one thread at a time.
 */
#ifndef TCONV_CORE_FORMAT_READER_H
#define TCONV_CORE_FORMAT_READER_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"

struct tc_reader {
    const struct tc_backend *backend;
    struct tc_input *input;
    const struct tc_format_options *options;
    struct tc_arena arena;
    struct tc_table table;
    /* The types of the table's metadata, by key, in the format's own words; text has none. They go
     * with the metadata into other formats (core/format/restore_metadata.h). */
    struct tc_metadata metadata_types;
    struct tc_text stem; /* the name for tensors that have none in the file */
    void *state;
    bool checksum;
    bool compressed;
    bool data_offsets; /* tensors' offsets count from the start of the file's data section */
    bool nested;       /* lists, dicts and objects in one another, of which names are made */
    bool plain;        /* nothing but names and tensors, so that there is no need of a tree */
    /* Tensors that are sequential may be read at the same time, each by one thread. */
    bool streams;
    bool leaves;           /* keys of the metadata are paths of values beside the tensors */
    const char *framework; /* the backend's, unless open knows better */
    /* Of a sharded model: the format of its shards and their file names. */
    const struct tc_backend *shard_backend;
    const char *const *shards;
    struct tc_input **shard_inputs;
    size_t shard_count;
    bool shards_differ; /* in their formats */
    /* Other files that hold tensors' data; not shards. */
    struct tc_input **companions;
    size_t companion_count;
    struct tc_input *sidecar; /* that metadata came from; NULL: none */
    uint64_t size;            /* bytes of all files */
    uint64_t behind;          /* bytes behind all that the format has, which are left out */
    uint64_t made;            /* bytes its tensors have that the files do not; --max-size */
    /* What the file holds besides tensors and metadata, such as code; NULL: nothing. A
     * file that holds such things is not changed in place. */
    const char *beyond;
    /* Warnings and, as losses, what the file has but its tables can't hold. */
    struct tc_notes notes;
    /* What is lost unless its tree is kept: values that only a tree holds. */
    struct tc_notes tree_notes;
    bool note_refused;   /* there was no memory for a note */
    bool skipped_pickle; /* a member that was left out is a pickle */
};

/* Opens `input` with a given backend; takes the input over, also on failure.
 * tc_reader_close frees the reader and its input. */
struct tc_reader *tc_reader_open(const struct tc_backend *backend, struct tc_input *input,
                                 const struct tc_format_options *options, struct tc_error *error);
void tc_reader_close(struct tc_reader *reader);
/* Opens a file by its path, or by its address where the options have a way to it. */
struct tc_input *tc_reader_input(const struct tc_format_options *options, const char *path,
                                 struct tc_input_pool *pool, struct tc_error *error);
/* Opens a file that belongs to the reader's own, such as a shard, also where it is
 * part of an output that is not published yet; and whether there is such a file (it fails
 * where that can't be found out). */
struct tc_input *tc_reader_open_beside(const struct tc_reader *reader, const char *path,
                                       struct tc_input_pool *pool, struct tc_error *error);
bool tc_reader_has_beside(const struct tc_reader *reader, const char *path, bool *has,
                          struct tc_error *error);
bool tc_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                    void *buffer, size_t length, struct tc_error *error);
bool tc_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                      struct tc_extent *extent);
bool tc_reader_strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                       struct tc_strided *strided);
/* Fails with TC_IO where one of its files is not what it was when it was opened. */
bool tc_reader_unchanged(struct tc_reader *reader, struct tc_error *error);
/* Every file it reads, one after the other: its own, shards that are there,
 * companions, the sidecar. *at starts with 0; NULL behind the last. */
struct tc_input *tc_reader_next_file(const struct tc_reader *reader, size_t *at);
/* Calls tc_publish_check and tc_publish_limit for each of these files. */
bool tc_reader_check_target(const struct tc_reader *reader, struct tc_publish *publish,
                            const char *name, struct tc_error *error);
/* check_sums of the backend, where it has one. */
bool tc_reader_check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error);
/* Whether data is best read by one thread, in order: another reads the same from the network for
 * its checksums, and what is kept of it is little. */
bool tc_reader_in_step(const struct tc_reader *reader);
/* Runs check_sums of the readers, one after the other, in a thread of its own;
 * tc_checksum_thread_join waits for the result. `wanted` has a list for each
 * reader; NULL: all tensors. */
struct tc_checksum_thread;
struct tc_checksum_thread *tc_checksum_thread_start(struct tc_reader *const *readers,
                                                    bool *const *wanted, size_t count,
                                                    struct tc_error *error);
bool tc_checksum_thread_join(struct tc_checksum_thread *thread, struct tc_error *error);

/* Where findings are collected and the error is damage to the file: moves it to the
 * findings, clears the error and returns true. Else returns false. */
bool tc_reader_forgive(struct tc_reader *reader, struct tc_error *error);

/* Adds a note; a change or a loss also appears in the ledger of any conversion of
 * the file. `name` is the tensor or member that it concerns; its bytes may be NULL.
 * Notes of the same text are grouped, so names should not be part of the text. */
bool tc_reader_note(struct tc_reader *reader, enum tc_severity severity, enum tc_kind kind,
                    struct tc_text name, struct tc_error *error, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* A warning without a name. Where there is no memory for it, opening fails. */
void tc_reader_warn(struct tc_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A loss without a name. Where there is no memory for it, opening fails. */
void tc_reader_lose(struct tc_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Leaves out a member of the file that is not a tensor tconv can hold (text, dates,
 * objects): adds a loss of kind `skipped` with its name and the reason, unless the
 * user's selection leaves it out anyway. `name` is what the tensor would be called. */
enum tc_skip { TC_SKIP_VALUE, TC_SKIP_PICKLE /* what was left out is a pickle */ };
bool tc_reader_skip(struct tc_reader *reader, struct tc_text name, enum tc_skip what,
                    struct tc_error *error, const char *reason, ...)
    __attribute__((format(printf, 5, 6)));
/* Fails because every member was skipped and no tensor is left. There must be at
 * least one note of kind `skipped`. */
bool tc_reader_refuse_rest(const struct tc_reader *reader, struct tc_error *error);
/* Whether --include and --exclude take a tensor of this name. A backend asks before
 * it refuses a file because of one tensor. */
bool tc_reader_wants(const struct tc_reader *reader, struct tc_text name);
/* How many bytes --max-size allows tensors to have that the files do not (see
 * core/base/limits.h), for files of this size together. */
uint64_t tc_made_limit(uint64_t limit, uint64_t size);
uint64_t tc_reader_made_limit(const struct tc_reader *reader);
/* Counts bytes that its tensors have but its files do not, as where one value or
 * range of data appears many times. A sharded model includes those of its shards. */
bool tc_reader_charge_made(struct tc_reader *reader, uint64_t bytes, struct tc_error *error);
/* Fails because the file has fewer than `expected` bytes (`at_least`: it may need
 * even more), and says how many are missing. */
bool tc_reader_cut_short(const struct tc_reader *reader, uint64_t expected, bool at_least,
                         struct tc_error *error);
/* Refuses a file whose data would be far larger when decompressed than the file. */
bool tc_reader_check_expansion(struct tc_reader *reader, uint64_t expanded, struct tc_error *error);
/* Reads bytes of a header into memory from malloc, which counts against the
 * reader's budget. */
void *tc_reader_load(struct tc_reader *reader, uint64_t offset, uint64_t length,
                     struct tc_error *error);
/* The user's limit for headers, or `standard` where the user set none. */
uint64_t tc_reader_header_limit(const struct tc_reader *reader, uint64_t standard);
/* Fails where a header is longer than that limit; `what` names it in the message,
 * as in "header". */
bool tc_reader_check_header(const struct tc_reader *reader, const char *what, uint64_t length,
                            uint64_t standard, struct tc_error *error);

#endif
