/*
 * One shard of a model, written by a job of its own.
 *
 * Every job makes the whole plan, from headers alone, and writes one shard of it and a
 * record beside it, SHARD.part.json; the job of the first shard also writes the index,
 * as INDEX.part. What belongs together shows in the digest of the plan, which is over
 * everything that all jobs must agree on: the format, the options, the inputs' names,
 * sizes and times, the index, and every tensor's name, dtype, shape and shard.
 * `tconv index` joins shards whose records have one digest (cmd/cmd_index.c).
 *
 *     {"tconv_part":1,"tconv":VERSION,"plan":HEX,"format","index","shard","shards",
 *      "folder":1?,"name","size","sha256"?,"options":[…],"inputs":[{"path","size"}],
 *      "tensors":[{"name","dtype","shape","sha256"?}],
 *      "mode"?,"files"?:[{"name","size","sha256"?}|{"name","mode"}]}
 *
 * It is one line of compact JSON with its keys in this order. The hashes are there where
 * the job read its shard again (--verify).
 *
 * A model folder is written in a folder of parts, FOLDER.parts, and `folder` is 1. It has one
 * job more, shard 0, which copies what is no weights into FOLDER.parts/files; its record is
 * INDEX.files.part.json, without tensors, with what it copied (files by their sizes, folders by
 * their permissions) and the permissions of the folder itself. A name that is no UTF-8 stands
 * there as `hex`, in hexadecimal digits.
 */
#ifndef TCONV_CORE_CONVERT_SHARD_PART_H
#define TCONV_CORE_CONVERT_SHARD_PART_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/io/input.h"
#include "core/io/sha256.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"

#define TC_PART_ENDING ".part.json"
#define TC_PART_INDEX_ENDING ".part"
/* The folder of a model folder's parts; what is copied, in it; and the name of its record. */
#define TC_PARTS_ENDING ".parts"
#define TC_PARTS_FILES "files"
#define TC_PARTS_FILES_ENDING ".files"
/* The most bytes of a record: a shard of a million tensors has half of that. */
#define TC_PART_LIMIT (UINT64_C(256) << 20)
#define TC_PLAN_DIGEST (2 * TC_SHA256_BYTES)

/* Which shard of how many, as the user asks for it. */
struct tc_shard_choice {
    uint64_t number;  /* counted from 1; 0: what a model folder has besides */
    uint64_t count;   /* 0: there is no choice, all of them are written */
    bool folder;      /* of a model folder */
    const char *plan; /* the digest that the plan must have; NULL: any */
};

struct tc_shard_part {
    char digest[TC_PLAN_DIGEST + 1];
    const char *index_name; /* in the plan's arena */
    struct tc_input *index; /* the index, in a temporary file */
    struct tc_shard_choice choice;
    struct tc_text options;
};

/* The digest of a plan that has an index. `options` are as a receipt lists them. */
bool tc_plan_digest(const struct tc_plan *plan, struct tc_text options,
                    char digest[TC_PLAN_DIGEST + 1], struct tc_error *error);

/* Leaves only the chosen shard in the plan. To be ended in any case. */
bool tc_shard_part_take(struct tc_shard_part *part, struct tc_plan *plan,
                        const struct tc_shard_choice *choice, struct tc_text options,
                        struct tc_error *error);
/* Adds the record, and with the first shard the index, to what is published. */
bool tc_shard_part_write(const struct tc_shard_part *part, struct tc_conversion *conversion,
                         struct tc_error *error);
void tc_shard_part_end(struct tc_shard_part *part);

/* What was copied: a file, or a folder. */
struct tc_part_file {
    struct tc_text name; /* its path in the model's folder */
    bool is_folder;
    uint64_t size;
    uint64_t mode; /* of a folder */
    bool has_sum;
    char sum[2 * TC_SHA256_BYTES + 1];
};

/* The record of what was copied, with the folder's permissions. */
bool tc_shard_part_print_files(struct tc_buffer *text, const struct tc_shard_part *part,
                               const struct tc_plan *plan, const struct tc_part_file *files,
                               size_t count, uint64_t mode, struct tc_error *error);

struct tc_part_tensor {
    struct tc_text name;
    enum tc_dtype dtype;
    uint64_t *shape;
    unsigned rank;
    bool has_sum;
    unsigned char sum[TC_SHA256_BYTES];
};

struct tc_part_input {
    struct tc_text path;
    uint64_t size;
};

/* A record that was read; everything is in the arena or in the text. */
struct tc_part_record {
    struct tc_text plan;
    struct tc_text format;
    struct tc_text index; /* plain file names */
    struct tc_text name;
    struct tc_text options; /* JSON as it stands */
    uint64_t shard;
    uint64_t shards;
    uint64_t size;
    bool has_sum;
    char sum[2 * TC_SHA256_BYTES + 1];
    struct tc_part_tensor *tensors;
    size_t tensor_count;
    struct tc_part_input *inputs;
    size_t input_count;
    bool folder;
    uint64_t mode;
    struct tc_part_file *files; /* NULL: it is that of a shard */
    size_t file_count;
};
bool tc_part_record_read(struct tc_part_record *record, struct tc_text text, struct tc_arena *arena,
                         struct tc_error *error);

#endif
