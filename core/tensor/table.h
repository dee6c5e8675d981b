/*
 * The table of tensors: what a reader found in a file, without the data. The order
 * is the file's own (by data offset; in a zip archive, that of its directory).
 *
 * A reader fills it with tc_table_add, which refuses a name that is there already,
 * and may sort it by offset with tc_table_sort. One thread at a time may change
 * it; afterwards several may read it.
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
    uint32_t cookie;              /* for the backend's own use */
    uint32_t tie;     /* for tensors that share their data: 1 + the table position of the first of
                       * them, which has this set too; 0: shares its data with none */
    uint32_t storage; /* 1 + the number of a storage of which other tensors are different views;
                       * 0: none */
    uint8_t dtype;
    uint8_t rank;
    bool sequential; /* its stream can only be read from the start, such as compressed data */
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

/* Fails unless the name could be a tensor's: not too long, valid UTF-8, without
 * NUL. */
bool tc_name_check(struct tc_text name, struct tc_error *error);
/* Adds a name to a map of tensors' names, with the same checks as tc_table_add;
 * there may be at most `most` of them. */
bool tc_name_add(struct tc_name_map *map, struct tc_text name, uint32_t number, uint64_t most,
                 struct tc_error *error);

/* A tensor of this name will be added soon (tc_name_index_expect). */
void tc_table_expect(const struct tc_table *table, struct tc_text name);
/* Copies *tensor; its slices must outlive the table. Checks the number of
 * tensors, the name, and that it is new. */
bool tc_table_add(struct tc_table *table, const struct tc_tensor *tensor, struct tc_error *error);
/* Renames all tensors; the names must outlive the table, and are checked as in
 * tc_table_add. After a failure the table must not be used. */
bool tc_table_rename(struct tc_table *table, const struct tc_text *names, struct tc_error *error);
/* NULL where there is none. */
struct tc_tensor *tc_table_find(const struct tc_table *table, struct tc_text name);
/* Adds a hint after an error about an unknown tensor: the most similar name, then
 * `otherwise`. */
bool tc_table_hint(const struct tc_table *table, struct tc_text name, struct tc_error *error,
                   const char *otherwise);
/* Sorts by offset; tensors of equal offsets stay in the order they were added. */
bool tc_table_sort(struct tc_table *table, struct tc_error *error);

/* Records that two tensors share their data, with the same dtype and shape. The
 * first comes before the other, which had no tie. Positions are recorded, so this
 * must come after tc_table_sort. */
void tc_table_tie(struct tc_table *table, size_t first, size_t other);
/* The position of the first of the tensors that share its data: its own, where it
 * shares with none. */
size_t tc_table_source(const struct tc_table *table, size_t position);
/* Whether any tensor is `sequential`. */
bool tc_table_is_sequential(const struct tc_table *table);

#endif
