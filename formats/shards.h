/*
 * A model in several files (shards): one reader for each, behind one table. Used
 * by every format that has an index. A backend adds the files and tensors that
 * its index names, and then opens the shards:
 *
 *     shards_init → shards_add_file, shards_add_tensor, shards_add_size … →
 *     shards_open → shards_read, shards_extent, shards_verify … → shards_release
 *
 * A struct shards owns its readers and their inputs; names are the arena's of the
 * index's reader. shards_read is as safe from several threads as the shards'
 * own backends are.
 */
#ifndef TCONV_FORMATS_SHARDS_H
#define TCONV_FORMATS_SHARDS_H

#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"
#include "core/tensor/table.h"

struct shard_file {
    struct tc_text name;
    struct tc_text tensor; /* the name of its only tensor, where its format holds none */
    uint64_t nbytes;       /* of its tensors, as the index says */
    uint32_t position;     /* in the order in which the index names the files */
    bool sized;            /* the index has a size for it: nbytes */
};

struct shards {
    struct tc_input_pool pool;
    struct tc_reader **readers;
    const char **names;
    struct tc_input **inputs;
    size_t count;
    uint32_t storages; /* how many values of tc_tensor.storage are in use */
    struct shard_file *files;
    size_t file_capacity;
    uint64_t most_tensors;     /* how many the index may list */
    struct tc_name_map places; /* the files' names; the number is a position in `files`, before
                                * shards_open brings them into another order */
    struct tc_name_map listed; /* tensors the index names; the number is the shard's */
    bool without_index;        /* the tensors are those that the files hold: none is listed */
    bool ready;
    bool own; /* set by the backend: the file that names the shards is one of them */
    struct tc_format_options options; /* the index's, for a part of a model */
};

void shards_init(struct shards *shards, struct tc_reader *reader);
/* Adds a shard by its file name, which must be a plain name in the index's
 * folder. *position is its number; a name that was added before keeps its own. */
bool shards_add_file(struct shards *shards, struct tc_text file, uint32_t *position,
                     struct tc_error *error);
/* Records that the index places a tensor in this shard. */
bool shards_add_tensor(struct shards *shards, struct tc_text name, uint32_t shard,
                       struct tc_error *error);
/* Gives the only tensor of a shard a name, where its format has none. */
void shards_name_tensor(struct shards *shards, uint32_t shard, struct tc_text name);
/* Records how many bytes of tensors a shard has, as the index says. */
void shards_add_size(struct shards *shards, uint32_t shard, uint64_t bytes);
/* Opens the shards, in the order of their names or in that in which they were
 * added, and fills the reader's table with all their tensors. A tensor that the
 * index lists must be there; one that it does not list is read too, with a
 * warning. Where findings are collected, a shard that is missing or damaged
 * becomes a finding and is left out: its reader is NULL. */
bool shards_open(struct shards *shards, struct tc_reader *reader, bool by_name,
                 struct tc_error *error);

/* Whether some shard was left out. */
bool shards_incomplete(const struct shards *shards);

bool shards_read(struct shards *shards, const struct tc_tensor *tensor, uint64_t offset,
                 void *buffer, size_t length, struct tc_error *error);
bool shards_extent(struct shards *shards, const struct tc_tensor *tensor, struct tc_extent *extent);
bool shards_strided(struct shards *shards, const struct tc_tensor *tensor,
                    struct tc_strided *strided);
bool shards_verify(struct shards *shards, const struct tc_reader *reader, const bool *wanted,
                   struct tc_error *error);
void shards_release(struct shards *shards);
/* The same for backends whose state begins with a struct shards. */
bool shards_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                        void *buffer, size_t length, struct tc_error *error);
bool shards_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                          struct tc_extent *extent);
bool shards_reader_strided(struct tc_reader *reader, const struct tc_tensor *tensor,
                           struct tc_strided *strided);
bool shards_reader_check_sums(struct tc_reader *reader, const bool *wanted, struct tc_error *error);

/* Writes an index as Hugging Face has it (NAME.index.json): for the write_index
 * of a backend's tc_sharding. */
bool shards_write_index(const struct tc_plan *plan, struct tc_outfile *out, struct tc_error *error);

#endif
