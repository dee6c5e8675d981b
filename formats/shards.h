/*
 * A model in several files: the shards' readers behind one table. Used by
 * every format that has an index.
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
    uint64_t nbytes;   /* of its tensors, as the index says */
    uint32_t position; /* in the order in which the index names the files */
    bool sized;        /* the index does say so */
};

struct shards {
    struct tc_input_pool pool;
    struct tc_reader **readers;
    const char **names;
    struct tc_input **inputs;
    size_t count;
    uint32_t storages; /* numbers given out: tc_tensor.storage */
    struct shard_file *files;
    size_t file_capacity;
    uint64_t most_tensors;     /* that the index may list */
    struct tc_name_map places; /* the files' names; the number is a position in `files`, before
                                * shards_open brings them into another order */
    struct tc_name_map listed; /* tensors the index names; the number is the shard's */
    bool ready;
};

void shards_init(struct shards *shards, struct tc_reader *reader);
/* Notes a shard by its file name, which must be a plain name in the index's
 * folder; *position is its place. A name noted before keeps its place. */
bool shards_add_file(struct shards *shards, struct tc_text file, uint32_t *position,
                     struct tc_error *error);
/* Notes that the index puts a tensor in a shard. */
bool shards_add_tensor(struct shards *shards, struct tc_text name, uint32_t shard,
                       struct tc_error *error);
/* Notes how many bytes of tensors the index says a shard has. */
void shards_add_size(struct shards *shards, uint32_t shard, uint64_t bytes);
/* Opens the shards, by name or as they were noted, and fills the reader's
 * table with all their tensors. What the index lists must be there; what it
 * does not list is taken, with a warning. Where findings are collected, a shard
 * that is missing or damaged is one of them, and left out: its reader is NULL. */
bool shards_open(struct shards *shards, struct tc_reader *reader, bool by_name,
                 struct tc_error *error);

/* Whether a shard was left out. */
bool shards_incomplete(const struct shards *shards);

bool shards_read(struct shards *shards, const struct tc_tensor *tensor, uint64_t offset,
                 void *buffer, size_t length, struct tc_error *error);
bool shards_extent(struct shards *shards, const struct tc_tensor *tensor, struct tc_extent *extent);
bool shards_verify(struct shards *shards, const struct tc_reader *reader, const bool *wanted,
                   struct tc_error *error);
void shards_release(struct shards *shards);

/* NAME.index.json, as Hugging Face has it; for a backend's tc_sharding. */
bool shards_write_index(const struct tc_plan *plan, struct tc_outfile *out, struct tc_error *error);

#endif
