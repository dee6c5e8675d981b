/*
 * The files of a model's folder that are no weights (its configuration, tokenizer,
 * licence, folders below), which are copied as they are beside weights that are
 * written in another format:
 *
 *     model_copy_list(&copy, path, …, plan)   decides, and adds notes to the plan
 *     model_copy_write(&copy, &publish)       copies into a whole folder that is written
 *     model_copy_check(&copy, &publish)       reads the copies again, before they are published
 *     model_copy_release(&copy)
 *
 * Links are followed where they lead to something in the folder, or among the blobs of
 * the Hugging Face cache that the folder is a snapshot of; anything else is refused,
 * since a folder from a stranger may have links to the user's own files. A repository on
 * the Hub has no links.
 */
#ifndef TCONV_FORMATS_MODEL_COPY_H
#define TCONV_FORMATS_MODEL_COPY_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "core/plan/plan.h"
#include "formats/cache_blobs.h"
#include "formats/model_folder.h"

struct model_copy_entry {
    const char *name; /* its path in the folder */
    bool is_folder;
    bool tells_scales; /* a config, which is copied without what it says of quantised weights */
    unsigned char sum[TC_SHA256_BYTES]; /* of what was written, with `sums` */
    uint64_t size;                      /* of what was written; of a folder nothing */
    mode_t mode;                        /* of a folder that was made: its most permissions */
};

struct model_copy {
    struct tc_arena arena;
    const char *path;
    const struct tc_format_options *options;
    char *root; /* the folder's path without links; from malloc; NULL: it is on the Hub */
    struct cache_blobs blobs;
    struct model_copy_entry *entries; /* a folder before what is in it */
    size_t count;
    size_t capacity;
    size_t seen; /* entries that were looked at; TC_MAX_FOLDER_ENTRIES */
    bool sums;   /* set by the caller before model_copy_write: model_copy_check will follow */
};

/* `model` is the one that `reader` reads, of the folder `path`, here or on the Hub; path and
 * reader must outlive *copy. With only_weights nothing is copied. To be released also on failure.
 */
bool model_copy_list(struct model_copy *copy, const char *path, const struct model *model,
                     const struct tc_reader *reader, bool only_weights, struct tc_plan *plan,
                     struct tc_error *error);
/* Whether a file that a link in the folder `root` leads to, once all links are resolved, may be
 * taken for one of the folder, or of the cache. */
bool model_copy_may_take(const char *real, const char *root, const struct cache_blobs *blobs,
                         struct tc_error *error);
bool model_copy_write(struct model_copy *copy, struct tc_publish *publish, struct tc_error *error);
/* Reads every copy as it lies on the disk, and compares it with what was read from the folder; a
 * difference is TC_IO, "verification". Needs copy->sums. */
bool model_copy_check(const struct model_copy *copy, const struct tc_publish *publish,
                      struct tc_error *error);
void model_copy_release(struct model_copy *copy);

#endif
