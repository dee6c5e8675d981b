/*
 * The table of tensors: what a reader found in a file, and nothing of the
 * data. Order is the file's own (by data offset; zip: central directory).
 *
 * A reader fills it with tc_table_add, which refuses a name that is there
 * already, and may bring it into data order with tc_table_sort.
 */
#ifndef TCONV_CORE_TENSOR_TABLE_H
#define TCONV_CORE_TENSOR_TABLE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/tensor/metadata.h"

struct tc_tensor {
    struct tc_text name; /* first, for struct tc_name_index */
    const uint64_t *shape;
    struct tc_metadata *metadata; /* NULL where it has none */
    uint64_t nbytes;              /* of its C-order stream */
    uint64_t offset;              /* in the backend's own terms; the order in the file */
    uint32_t cookie;              /* the backend's own */
    uint32_t tie;     /* 1 + the table position of the first tensor of its group, which has it too;
                       * 0: shares its data with none */
    uint32_t storage; /* 1 + the number of a storage of which other tensors show other parts or
                       * orders; 0: none */
    uint8_t dtype;
    uint8_t rank;
    bool sequential; /* its stream can't be entered in the middle */
};

struct tc_table {
    struct tc_arena *arena;
    struct tc_tensor *tensors;
    size_t count;
    size_t capacity;
    uint64_t max_tensors;
    struct tc_metadata metadata;
    struct tc_name_index names; /* by position */
};

void tc_table_init(struct tc_table *table, struct tc_arena *arena, uint64_t max_tensors);
void tc_table_release(struct tc_table *table);

/* A name that any format could hold: short enough, UTF-8, without NUL. */
bool tc_name_check(struct tc_text name, struct tc_error *error);
/* Adds a name to a map of tensors' names, of which there may be `most`; all is
 * checked as tc_table_add checks it. */
bool tc_name_add(struct tc_name_map *map, struct tc_text name, uint32_t number, uint64_t most,
                 struct tc_error *error);

/* Copies *tensor; its slices must outlive the table. Checks the number of
 * tensors, the name, and that it is new. */
bool tc_table_add(struct tc_table *table, const struct tc_tensor *tensor, struct tc_error *error);
/* New names, one a tensor, which must outlive the table; checked as tc_table_add
 * checks them. On failure the table is of no use. */
bool tc_table_rename(struct tc_table *table, const struct tc_text *names, struct tc_error *error);
/* NULL where there is none. */
struct tc_tensor *tc_table_find(const struct tc_table *table, struct tc_text name);
/* After an error about a name that is none of its: the nearest that is one. */
bool tc_table_hint(const struct tc_table *table, struct tc_text name, struct tc_error *error,
                   const char *otherwise);
/* By offset; equal offsets stay in the order they were added. */
bool tc_table_sort(struct tc_table *table, struct tc_error *error);

/* Tensors that share their data: the same bytes as dtype, shape and all. The
 * first comes before the other, which had no tie. Positions count, so this
 * comes after tc_table_sort. */
void tc_table_tie(struct tc_table *table, size_t first, size_t other);
/* The position of the first tensor that has its data: its own, where it shares
 * with none or is the first. */
size_t tc_table_source(const struct tc_table *table, size_t position);
/* Whether any must be read in sequence. */
bool tc_table_is_sequential(const struct tc_table *table);

#endif
