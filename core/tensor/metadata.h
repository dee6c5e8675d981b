/*
 * Metadata of a file or a tensor: pairs of a key and a value, both text. The pairs
 * are in an arena; their texts are not copied and must outlive the metadata. One
 * thread at a time may change it.
 */
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

/* Adds a pair at the end, whether or not the key is there already. */
bool tc_metadata_add(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error);
/* Sorts, then refuses a key that occurs twice. */
bool tc_metadata_sort(struct tc_metadata *metadata, struct tc_error *error);
/* NULL where the key is not there. For sorted metadata. */
const struct tc_text *tc_metadata_find(const struct tc_metadata *metadata, struct tc_text key);
/* Adds or replaces; keeps the order. */
bool tc_metadata_set(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error);
/* A copy of sorted metadata that may be changed; empty where `from` is NULL. NULL
 * on failure. */
struct tc_metadata *tc_metadata_copy(const struct tc_metadata *from, struct tc_arena *arena,
                                     struct tc_error *error);
/* Adds those pairs of other sorted metadata whose keys are new, in linear time; a
 * key that is there keeps its value. *conflicts counts keys whose values differ. */
bool tc_metadata_merge(struct tc_metadata *into, const struct tc_metadata *from,
                       struct tc_arena *arena, size_t *conflicts, struct tc_error *error);
/* Merges many at once, since merging one by one would take quadratic time. Where
 * several have a key, the first one's value is kept; conflicts[i] counts the keys
 * of from[i] that have another value. */
bool tc_metadata_join(struct tc_metadata *into, const struct tc_metadata *const *from, size_t count,
                      struct tc_arena *arena, size_t *conflicts, struct tc_error *error);
void tc_metadata_remove(struct tc_metadata *metadata, struct tc_text key);
/* Removes every key that starts with the prefix. */
void tc_metadata_remove_prefix(struct tc_metadata *metadata, struct tc_text prefix);

#endif
