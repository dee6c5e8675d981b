/*
 * Which models a batch has, and where each goes.
 *
 * A source is a file, a pattern with * ? [ that no file is called, or a folder, which is
 * walked with all that lies below it. A folder with a config.json and weights is one
 * model, and so is one that formats/model_whole.h tells of; in other folders every file,
 * index or set of shards of a known format is one. Hidden files, files of a training and links to
 * folders are passed over. Below DST a model keeps its path from the source, and with another
 * extension its name.
 */
#ifndef TCONV_CMD_BATCH_LIST_H
#define TCONV_CMD_BATCH_LIST_H

#include <sys/stat.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"

/* The most entries of folders that are looked at, the most models, and how deep folders
 * may lie in each other. */
#define BATCH_MAX_ENTRIES 2000000u
#define BATCH_MAX_MODELS 200000u
#define BATCH_MAX_DEPTH 64u
/* The most bytes of a list of names. */
#define BATCH_MAX_LIST (UINT64_C(256) << 20)

struct batch_model {
    const char *input;
    const char *output;  /* with a slash at its end where it is a folder */
    uint64_t size;       /* of its files, as far as the walk knows them */
    bool folder;         /* input and output are model folders */
    bool shards;         /* it may be in shards, as its name or its format shows */
    const char *root;    /* of the tree that it was found in, without links; NULL: it was named */
    bool may_lead_out;   /* there are links in that tree */
    const char *problem; /* why it can't be converted; NULL: nothing */
    enum tc_class class; /* of that problem */
};

struct batch_list {
    struct tc_arena arena;
    struct batch_model *models; /* from malloc */
    size_t count;
    size_t capacity;
    size_t entries;
    size_t links; /* to folders, which are not followed */
    /* Set by the caller. */
    const char *destination; /* without a slash at its end */
    const struct tc_backend *target;
    bool per_tensor; /* every output is a folder */
    struct stat destination_status;
    bool destination_exists;
};

/* `destination` is DST as the user wrote it. */
bool batch_list_init(struct batch_list *list, const char *destination,
                     const struct tc_backend *target, struct tc_error *error);
void batch_list_release(struct batch_list *list);

/* Adds all models of a source. `listed`: the name comes from a list, and keeps its folders below
 * DST where it is a relative path. */
bool batch_list_add(struct batch_list *list, const char *source, bool listed,
                    struct tc_error *error);
/* Refuses models that would go to one place, and outputs that are also inputs. */
bool batch_list_check(const struct batch_list *list, struct tc_error *error);

/* The folder in which a pattern begins to be one: "a/b" of "a/b/x*.npz"; from malloc. */
char *batch_pattern_folder(const char *pattern);
/* Whether a name has characters of patterns. */
bool batch_is_pattern(const char *name);
/* The path of a model below DST; `relative` is its path below the source, its last part the
 * name of the file. In the arena. */
const char *batch_place(struct batch_list *list, struct tc_text relative, bool folder,
                        struct tc_error *error);

#endif
