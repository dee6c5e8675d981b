/* Metadata of a file or a tensor: pairs of a key and a value, both text. */
#ifndef TCONV_CORE_TENSOR_METADATA_H
#define TCONV_CORE_TENSOR_METADATA_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"

/* A key of a tensor's metadata: the dtype it had before it was cast. */
#define TC_SOURCE_DTYPE_KEY "tconv.source_dtype"

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

#endif
