/*
 * Joining the parts that jobs have written (cmd/cmd_index.c): one model and its records, and what
 * is special where the model is a folder with other files (cmd/index/folder.c).
 */
#ifndef TCONV_CMD_INDEX_PARTS_H
#define TCONV_CMD_INDEX_PARTS_H

#include "cmd/common.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/convert/shard_part.h"
#include "core/format/reader.h"
#include "core/io/listing.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"

struct join {
    struct common common;
    const char *receipt;
    bool receipts; /* one beside each model */
    bool verify;
    bool no_sync;
    bool replace;
};

/* One model: its folder, its index and the records of its shards. */
struct joined {
    const char *folder;
    struct tc_text index;
    struct tc_part_record *records; /* by the shards' numbers, from 0 on; no name: missing */
    size_t count;
    struct tc_part_record *files; /* of a model folder; NULL: it is none, or missing */
    bool is_folder;               /* the parts of a model folder */
    uint64_t size;
    size_t tensors;
    char digest[2 * TC_SHA256_BYTES + 1]; /* empty: not known */
};

/* A path in the model's folder; from malloc, NULL without memory. */
char *index_path_of(const struct joined *model, struct tc_text name, const char *ending);
/* Adds the path to the error; false. */
bool index_fail_in(const struct joined *model, struct tc_text name, const char *ending,
                   struct tc_error *error);

/* The digest of the model: from the hashes of the jobs, where they verified their shards; else from
 * the data. */
bool index_make_digest(struct joined *model, struct tc_reader *reader, struct tc_error *error);
/* Adds the receipt to what is published, where there shall be one: beside `path`, which is the
 * output, or where the user says. */
bool index_add_receipt(const struct join *join, const struct joined *model, const char *path,
                       struct tc_publish *publish, struct tc_error *error);

/* The folder that the parts of a model folder become, without a slash at its end; from malloc, NULL
 * with the error filled where `parts` is no name of a folder of parts. */
char *index_folder_target(const char *parts, struct tc_error *error);
/* What is copied besides the weights is as its record says; and nothing else lies there, since the
 * folder of parts will go. */
bool index_folder_check(const struct join *join, const struct joined *model,
                        const struct tc_listing *listing, struct tc_error *error);
/* Whether what has the place of `target` may go: nothing, a model of the format, or what the user
 * says. */
bool index_folder_check_target(const struct join *join, const struct joined *model,
                               const char *target, struct tc_error *error);
/* Puts all parts into a new folder that is to be published as `target`. */
bool index_folder_gather(const struct joined *model, const struct tc_listing *listing,
                         struct tc_publish *publish, struct tc_error *error);
/* Removes the folder of parts, once the model is in place; false where some of it is left. */
bool index_folder_remove(const char *parts);

/* Removes what runs that were killed, or could not, have left of such folders in this one. */
void index_folder_clean(const char *folder);

struct index_folders {
    char **paths; /* each once, in the order of their names */
    size_t count;
    bool shards; /* some file below is called as shards are */
};
/* The folders at `top` and below that hold parts. To be released also on failure. */
bool index_find_folders(struct index_folders *folders, const char *top, struct tc_error *error);
void index_folders_release(struct index_folders *folders);

#endif
