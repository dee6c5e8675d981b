/*
 * The plan: decided from tables alone, before any output exists. It says what
 * each tensor becomes (name, dtype, shape, metadata), in which file and order,
 * and keeps the ledger of everything that changes or is lost on the way.
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

struct tc_densify;
struct tc_policy;
struct tc_select;

struct tc_item {
    struct tc_reader *reader;
    const struct tc_tensor *tensor; /* of the reader's table, or of `densify` */
    struct tc_densify *densify;     /* where the data comes from; NULL: the reader */
    struct tc_text name;
    struct tc_text written; /* the name as it comes back from the file, where that is another;
                             * bytes are NULL: as `name` */
    const uint64_t *shape;
    uint64_t skip;   /* bytes of the tensor's stream before the first one taken */
    uint64_t taken;  /* bytes of the tensor's stream */
    uint64_t nbytes; /* bytes as written */
    const struct tc_metadata *metadata; /* NULL: none */
    size_t source;                      /* the reader's number */
    size_t place;                       /* in source order: over all readers, by table position */
    size_t tied;   /* 1 + the place of the item whose data it shares in the output, which is in the
                    * same file; 0: data of its own */
    uint8_t dtype; /* as written */
    uint8_t rank;
    bool lossy;                    /* the cast may lose values, and was allowed to */
    bool restored;                 /* narrowed back to a dtype it had before; must be exact */
    struct tc_cast_report *report; /* of a cast that is either; NULL: no need */
};

/* One output file: items [first, first + count) of the plan. */
struct tc_output_file {
    const char *name;      /* in the output's folder */
    const char *companion; /* likewise: a second file for data; NULL: none */
    size_t first;
    size_t count;
    struct tc_metadata metadata;
    uint64_t nbytes;
};

enum tc_order { TC_ORDER_TARGET, TC_ORDER_SOURCE, TC_ORDER_NAME };
enum tc_keep { TC_KEEP_AUTO, TC_KEEP_SIDECAR, TC_KEEP_DROP };
/* Tensors that share their data. Auto: shared where the target can, else
 * copied; keep: one is written, and the names of the others recorded. */
enum tc_tied { TC_TIED_AUTO, TC_TIED_KEEP, TC_TIED_COPY, TC_TIED_ERROR };

struct tc_plan_options {
    enum tc_order order;
    enum tc_keep keep_metadata;
    enum tc_tied tied;
    uint64_t shard_size; /* 0: one file, or the default where OUT is an index */
    bool folder;         /* one file a tensor, in a folder */
    bool densify;        /* sparse tensors become dense */
    bool replace;        /* of tensors of one name in several inputs the last is taken */
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
    size_t *by_place; /* positions of the items by their place; NULL where nobody asked */
    struct tc_output_file *files;
    size_t file_count;
    const char *index_name;      /* NULL: no index file */
    const char *sidecar_name;    /* NULL: none */
    bool sidecar_names;          /* it keeps the tensors' names */
    const char *stale_name;      /* a sidecar that would tell of the output's predecessor */
    uint64_t shard_size;         /* 0: one file */
    struct tc_metadata metadata; /* of the whole model */
    /* What a written index says of the model beside its size: JSON values. */
    struct tc_metadata index_metadata;
    struct tc_notes notes; /* the ledger, and warnings; names are those in the output */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t made;           /* bytes that no input has: copies of what was shared, zeros */
    uint64_t densify_memory; /* what the largest sparse tensor takes while it is made dense */
    /* Why tensors can't be written, beside the one in the error, as warnings. */
    struct tc_notes problems;
};

void tc_plan_release(struct tc_plan *plan);

/* A text for as long as the plan lives; empties the buffer. NULL on failure. */
const char *tc_plan_keep(struct tc_plan *plan, struct tc_buffer *text, struct tc_error *error);

/* Puts items of the plan, or copies of some, into an order. */
void tc_plan_sort_items(const struct tc_plan *plan, struct tc_item *items, size_t count,
                        enum tc_order order);
/* Fills by_place, for items as they are ordered now. */
bool tc_plan_list_places(struct tc_plan *plan, struct tc_error *error);

/* Counts bytes that the inputs do not have against --max-size. */
bool tc_plan_charge(struct tc_plan *plan, uint64_t bytes, struct tc_error *error);

/* Adds an entry to the ledger, or a warning. */
bool tc_plan_note(struct tc_plan *plan, enum tc_severity severity, enum tc_kind kind,
                  struct tc_text tensor, struct tc_error *error, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#endif
