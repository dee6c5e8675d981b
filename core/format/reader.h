/*
 * A file that is open for reading: its table of tensors, what is to be told of it, and the ways
 * to its data. A backend fills it; everything else only asks.
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
#include "core/tensor/table.h"

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
    bool data_offsets;     /* its tensors' offsets count from where the file's data starts */
    const char *framework; /* the backend's, unless open knows better */
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
/* Runs the readers' check_sums, one after the other, in a thread of its own;
 * tc_checksum_thread_join waits for the verdict. `wanted` has a list a reader, or is
 * NULL: everything. */
struct tc_checksum_thread;
struct tc_checksum_thread *tc_checksum_thread_start(struct tc_reader *const *readers,
                                                    bool *const *wanted, size_t count,
                                                    struct tc_error *error);
bool tc_checksum_thread_join(struct tc_checksum_thread *thread, struct tc_error *error);

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
/* Refuses a file that should have `expected` bytes, or at least as many, and has
 * fewer: says how many are missing. */
bool tc_reader_cut_short(const struct tc_reader *reader, uint64_t expected, bool at_least,
                         struct tc_error *error);
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
