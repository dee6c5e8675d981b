/*
 * The plan of a conversion, made from the readers' tables before any output exists.
 * It says what each tensor becomes (name, dtype, shape, metadata), in which file and
 * order, and has the ledger of everything that changes or is lost. The plan's arena
 * owns all that is not the readers'. One thread at a time may change a plan.
 */
#ifndef TCONV_CORE_PLAN_PLAN_H
#define TCONV_CORE_PLAN_PLAN_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/notes.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/tensor/cast_report.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"

struct tc_dequantise;
struct tc_tree;
struct tc_densify;
struct tc_policy;
struct tc_select;

struct tc_item {
    struct tc_reader *reader;
    const struct tc_tensor *tensor; /* of the reader's table, of `densify` or of `dequantise` */
    /* Where the data comes from; both NULL: the reader. */
    struct tc_densify *densify;
    struct tc_dequantise *dequantise;
    struct tc_text name;
    struct tc_text written; /* the name that reading the file gives, where it differs from `name`;
                             * bytes are NULL: it does not */
    const uint64_t *shape;
    uint64_t skip;   /* bytes of the tensor's stream before the first row taken */
    uint64_t taken;  /* bytes of the tensor's stream that are taken */
    uint64_t nbytes; /* bytes as written */
    const struct tc_metadata *metadata; /* NULL: none */
    size_t source;                      /* the reader's number */
    size_t place;                       /* in source order: counted over all readers' tables */
    size_t tied;   /* 1 + the place of the item of the same file whose data it shares in the output;
                    * 0: it has data of its own */
    uint8_t dtype; /* as written */
    uint8_t rank;
    bool lossy;                    /* the cast may lose values, as the user allowed */
    bool restored;                 /* narrowed back to its original dtype; must be exact */
    struct tc_cast_report *report; /* of a cast that is lossy or restores; else NULL */
};

/* One output file: items [first, first + count) of the plan. */
struct tc_output_file {
    const char *name;      /* in the output's folder */
    const char *companion; /* a second file for data, in the same folder; NULL: none */
    size_t first;
    size_t count;
    struct tc_metadata metadata;
    uint64_t nbytes;
};

enum tc_order { TC_ORDER_TARGET, TC_ORDER_SOURCE, TC_ORDER_NAME };
enum tc_keep { TC_KEEP_AUTO, TC_KEEP_SIDECAR, TC_KEEP_DROP };
/* What becomes of tensors that share their data. Auto: they share it in the output
 * where the target can, else each gets a copy. Keep: where the target can't share,
 * one is written and the names of the others are recorded as aliases. */
enum tc_tied { TC_TIED_AUTO, TC_TIED_KEEP, TC_TIED_COPY, TC_TIED_ERROR };
/* Whether the nesting of a checkpoint is kept (core/plan/nesting.h). Auto: unless it is nothing
 * but names and tensors. */
enum tc_trees { TC_TREES_AUTO, TC_TREES_ALWAYS, TC_TREES_NEVER };

/* Whether a model is divided into shards as its input is: not at all, with the same
 * tensors in each shard, or also with the same names of the files. */
enum tc_as_input { TC_SHARDS_OWN, TC_SHARDS_AS_INPUT, TC_SHARDS_NAMED_AS_INPUT };

struct tc_plan_options {
    enum tc_order order;
    enum tc_keep keep_metadata;
    enum tc_tied tied;
    enum tc_trees trees;
    uint64_t shard_size;       /* 0: one file, or the default where OUT is an index */
    enum tc_as_input as_input; /* where there is one input, in shards; without shard_size */
    const char *variant;       /* of Hugging Face, in the names of shards and index; NULL: none */
    bool folder;               /* one file per tensor, in a folder */
    bool densify;              /* sparse tensors become dense */
    bool dequantise;           /* weights that have scales of their own become plain tensors */
    bool replace;              /* of tensors of one name in several inputs the last is taken */
    const struct tc_metadata *extra_metadata;
    struct tc_select *select;       /* NULL: every tensor under its own name */
    const struct tc_policy *policy; /* NULL: promotion only */
    struct tc_write_options write;
};

struct tc_plan {
    const struct tc_backend *target;
    const struct tc_plan_options *options;
    struct tc_reader *const *readers;
    size_t reader_count;
    struct tc_arena arena;
    struct tc_item *items;
    size_t count;
    bool **taken;     /* by reader and table position: whether an item takes it */
    size_t *by_place; /* the items' positions by their place; NULL until tc_plan_list_places */
    struct tc_output_file *files;
    size_t file_count;
    bool in_shards;              /* the files are shards, with an index or without */
    const char *index_name;      /* NULL: no index file */
    const char *sidecar_name;    /* NULL: no sidecar (core/plan/kept_metadata.h) */
    const char *names_name;      /* TC_NAMES_FILE where the output has one; else NULL */
    bool sidecar_names;          /* the sidecar also has the tensors' names */
    const char *stale_name;      /* a sidecar of an earlier output, to be removed; NULL: none */
    uint64_t shard_size;         /* 0: shards are not filled up to a size */
    bool sharded;                /* shards were asked for; a small model may fit into one file */
    struct tc_metadata metadata; /* of the whole model */
    struct tc_tree *tree;        /* how the only input's tensors were nested; NULL: not kept */
    bool resumes;                /* the input has a tree that is to be kept, if it is true */
    bool nests;                  /* the output is nested so; else its metadata has the tree */
    const char *structure;       /* what the ledger says of the nesting; NULL: nothing */
    enum tc_severity structure_severity;
    const struct tc_error *tree_problem; /* why the input's tree is none; NULL: no such reason */
    /* For a target that has types: those of the metadata (core/plan/metadata_types.h). */
    struct tc_metadata metadata_types;
    /* Metadata that the index gets besides total_size; the values are JSON. */
    struct tc_metadata index_metadata;
    struct tc_notes notes; /* the ledger, and warnings; names are those in the output */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t made;           /* bytes that no input has: copies of shared data, zeros */
    bool dequantised;        /* some weight lost its scales, so that a config which tells of them is
                              * out of date */
    uint64_t densify_memory; /* bytes of memory for the largest sparse tensor that becomes dense */
    /* More reasons why tensors can't be written, besides that in the error; as warnings. */
    struct tc_notes problems;
};

void tc_plan_release(struct tc_plan *plan);

/* Copies a text to the plan's arena and releases the buffer. NULL on failure. */
const char *tc_plan_keep(struct tc_plan *plan, struct tc_buffer *text, struct tc_error *error);

/* Sorts items of the plan, or copies of some. */
void tc_plan_sort_items(const struct tc_plan *plan, struct tc_item *items, size_t count,
                        enum tc_order order);
/* Fills by_place for the present order of the items. */
bool tc_plan_list_places(struct tc_plan *plan, struct tc_error *error);

/* Counts bytes that the inputs do not have against --max-size. */
bool tc_plan_charge(struct tc_plan *plan, uint64_t bytes, struct tc_error *error);

/* Adds an entry to the ledger, or a warning. */
bool tc_plan_note(struct tc_plan *plan, enum tc_severity severity, enum tc_kind kind,
                  struct tc_text tensor, struct tc_error *error, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
