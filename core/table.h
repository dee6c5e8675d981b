/*
 * The table of tensors: what a reader found in a file, and nothing of the
 * data. Order is the file's own (by data offset; zip: central directory).
 *
 * A reader fills it with tc_table_add, which refuses a name that is there
 * already, and may bring it into data order with tc_table_sort.
 */
#ifndef TCONV_CORE_TABLE_H
#define TCONV_CORE_TABLE_H

#include "core/arena.h"
#include "core/dtype.h"
#include "core/limits.h"
#include "core/text.h"

/* String to string, sorted by key's bytes once tc_metadata_sort has run. */
struct tc_pair {
    struct tc_text key;
    struct tc_text value;
};

struct tc_metadata {
    struct tc_pair *pairs;
    size_t count;
    size_t capacity;
};

/* Keeps the slices, which must outlive it; the pairs are the arena's. */
bool tc_metadata_add(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error);
/* Sorts, then refuses a key that occurs twice. */
bool tc_metadata_sort(struct tc_metadata *metadata, struct tc_error *error);
/* NULL where the key is not there. For sorted metadata. */
const struct tc_text *tc_metadata_find(const struct tc_metadata *metadata, struct tc_text key);
/* Adds or replaces; keeps the order. */
bool tc_metadata_set(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error);
/* A copy of a sorted map, or of none (NULL), to change. NULL on failure. */
struct tc_metadata *tc_metadata_copy(const struct tc_metadata *from, struct tc_arena *arena,
                                     struct tc_error *error);
/* Adds the pairs of another sorted map whose keys are new, in linear time;
 * keys that are there keep their value. Counts those whose values differ. */
bool tc_metadata_merge(struct tc_metadata *into, const struct tc_metadata *from,
                       struct tc_arena *arena, size_t *conflicts, struct tc_error *error);
/* The same for many maps at once, which one by one would be quadratic: where
 * several have a key the first counts. conflicts[i]: keys of from[i] whose value
 * is not that of the first. */
bool tc_metadata_join(struct tc_metadata *into, const struct tc_metadata *const *from, size_t count,
                      struct tc_arena *arena, size_t *conflicts, struct tc_error *error);
void tc_metadata_remove(struct tc_metadata *metadata, struct tc_text key);
/* Every key that starts so. */
void tc_metadata_remove_prefix(struct tc_metadata *metadata, struct tc_text prefix);

struct tc_tensor {
    struct tc_text name;
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
    uint32_t *slots; /* the hash index: position + 1, or 0 */
    size_t slot_count;
    uint8_t hash_key[16];
};

void tc_table_init(struct tc_table *table, struct tc_arena *arena, uint64_t max_tensors);
void tc_table_release(struct tc_table *table);

/* A name that any format could hold: short enough, UTF-8, without NUL. */
bool tc_name_check(struct tc_text name, struct tc_error *error);

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

/* Number of elements, and bytes, of a shape whose dimensions a file gave.
 * Overflow is refused whatever the order of the dimensions: a zero among
 * them does not hide that the others overflow. */
bool tc_shape_measure(enum tc_dtype dtype, const uint64_t *shape, unsigned rank, uint64_t *count,
                      uint64_t *nbytes, struct tc_error *error);
bool tc_shape_equal(const uint64_t *a, unsigned a_rank, const uint64_t *b, unsigned b_rank);
/* "[2,3]" */
void tc_shape_print(struct tc_buffer *buffer, const uint64_t *shape, unsigned rank);

/* The parts of a sparse tensor: each is called PARENT.ROLE; the shape is last. */
struct tc_sparse_layout {
    const char *name;
    const char *roles[4];
    unsigned parts;
};
/* coo, csr, csc, bsr, bsc; NULL for any other. */
const struct tc_sparse_layout *tc_sparse_layout(struct tc_text name);

/* A tensor that is part of a sparse one, told by its role metadata. */
struct tc_sparse {
    struct tc_text parent;
    struct tc_text role;
    struct tc_text layout;
};
/* Its parts in the layout's order; NULL behind the last. */
const struct tc_tensor *tc_sparse_part(const struct tc_table *table, const struct tc_sparse *sparse,
                                       unsigned index);
/* The metadata that makes a tensor a part of one; NULL on failure. The texts
 * must outlive it. */
struct tc_metadata *tc_sparse_metadata(struct tc_arena *arena, const char *layout,
                                       struct tc_text parent, const char *role,
                                       struct tc_error *error);
/* False where the tensor is no part of a complete group in this table. */
bool tc_sparse_of(const struct tc_table *table, const struct tc_tensor *tensor,
                  struct tc_sparse *sparse);

#endif
