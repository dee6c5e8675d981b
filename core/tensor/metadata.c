#include "core/tensor/metadata.h"

#include <stdlib.h>
#include <string.h>

static bool pairs_grow(struct tc_metadata *metadata, struct tc_arena *arena,
                       struct tc_error *error) {
    if (metadata->count < metadata->capacity)
        return true;
    size_t capacity = metadata->capacity ? metadata->capacity * 2 : 4;
    struct tc_pair *pairs = tc_arena_array(arena, capacity, sizeof *pairs, error);
    if (!pairs)
        return false;
    if (metadata->count)
        memcpy(pairs, metadata->pairs, metadata->count * sizeof *pairs);
    metadata->pairs = pairs;
    metadata->capacity = capacity;
    return true;
}

bool tc_metadata_add(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error) {
    if (!pairs_grow(metadata, arena, error))
        return false;
    metadata->pairs[metadata->count++] = (struct tc_pair){key, value};
    return true;
}

static int pair_compare(const void *a, const void *b) {
    return tc_text_compare(((const struct tc_pair *)a)->key, ((const struct tc_pair *)b)->key);
}

bool tc_metadata_sort(struct tc_metadata *metadata, struct tc_error *error) {
    if (metadata->count < 2)
        return true;
    qsort(metadata->pairs, metadata->count, sizeof *metadata->pairs, pair_compare);
    for (size_t i = 1; i < metadata->count; i++)
        if (tc_text_equal(metadata->pairs[i - 1].key, metadata->pairs[i].key))
            return tc_fail(error, TC_INVALID, "duplicate-key", "metadata key \"%.*s\" occurs twice",
                           tc_text_shown(metadata->pairs[i].key, 200),
                           metadata->pairs[i].key.bytes);
    return true;
}

/* The first position whose key is not less than `key`. */
static size_t pair_place(const struct tc_metadata *metadata, struct tc_text key) {
    size_t low = 0;
    size_t high = metadata->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tc_text_compare(metadata->pairs[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool pair_is_at(const struct tc_metadata *metadata, size_t place, struct tc_text key) {
    return place < metadata->count && tc_text_equal(metadata->pairs[place].key, key);
}

const struct tc_text *tc_metadata_find(const struct tc_metadata *metadata, struct tc_text key) {
    if (!metadata)
        return NULL;
    size_t place = pair_place(metadata, key);
    return pair_is_at(metadata, place, key) ? &metadata->pairs[place].value : NULL;
}

bool tc_metadata_set(struct tc_metadata *metadata, struct tc_arena *arena, struct tc_text key,
                     struct tc_text value, struct tc_error *error) {
    size_t place = pair_place(metadata, key);
    if (!pair_is_at(metadata, place, key)) {
        if (!pairs_grow(metadata, arena, error))
            return false;
        memmove(metadata->pairs + place + 1, metadata->pairs + place,
                (metadata->count - place) * sizeof *metadata->pairs);
        metadata->count++;
        metadata->pairs[place].key = key;
    }
    metadata->pairs[place].value = value;
    return true;
}

struct tc_metadata *tc_metadata_copy(const struct tc_metadata *from, struct tc_arena *arena,
                                     struct tc_error *error) {
    size_t conflicts;
    struct tc_metadata *copy = tc_arena_alloc(arena, sizeof *copy, error);
    if (!copy || (from && !tc_metadata_merge(copy, from, arena, &conflicts, error)))
        return NULL;
    return copy;
}

bool tc_metadata_merge(struct tc_metadata *into, const struct tc_metadata *from,
                       struct tc_arena *arena, size_t *conflicts, struct tc_error *error) {
    *conflicts = 0;
    if (from->count == 0)
        return true;
    struct tc_metadata merged = {.capacity = into->count + from->count};
    merged.pairs = tc_arena_array(arena, merged.capacity, sizeof *merged.pairs, error);
    if (!merged.pairs)
        return false;
    size_t i = 0;
    size_t j = 0;
    while (i < into->count || j < from->count) {
        int order = i == into->count   ? 1
                    : j == from->count ? -1
                                       : tc_text_compare(into->pairs[i].key, from->pairs[j].key);
        if (order == 0)
            *conflicts += !tc_text_equal(into->pairs[i].value, from->pairs[j].value);
        merged.pairs[merged.count++] = order <= 0 ? into->pairs[i] : from->pairs[j];
        i += order <= 0;
        j += order >= 0;
    }
    *into = merged;
    return true;
}

struct joined {
    struct tc_pair pair;
    size_t source; /* 0: from `into`; else 1 + the index in `from` */
};

static int joined_compare(const void *a, const void *b) {
    const struct joined *x = a;
    const struct joined *y = b;
    int order = tc_text_compare(x->pair.key, y->pair.key);
    return order ? order : (x->source > y->source) - (x->source < y->source);
}

static void list_pairs(struct joined *list, size_t *used, const struct tc_metadata *metadata,
                       size_t source) {
    for (size_t i = 0; i < metadata->count; i++)
        list[(*used)++] = (struct joined){metadata->pairs[i], source};
}

/* Keeps the first of the sorted pairs of each key, and counts the conflicts. */
static void keep_first(struct tc_metadata *into, const struct joined *list, size_t count,
                       size_t *conflicts) {
    for (size_t i = 0; i < count; i++) {
        const struct tc_pair *last = into->count ? &into->pairs[into->count - 1] : NULL;
        if (!last || !tc_text_equal(last->key, list[i].pair.key))
            into->pairs[into->count++] = list[i].pair;
        else
            conflicts[list[i].source - 1] += !tc_text_equal(last->value, list[i].pair.value);
    }
}

bool tc_metadata_join(struct tc_metadata *into, const struct tc_metadata *const *from, size_t count,
                      struct tc_arena *arena, size_t *conflicts, struct tc_error *error) {
    struct tc_arena scratch; /* has the same budget as the arena */
    uint64_t total = into->count;
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        conflicts[i] = 0;
        total += from[i]->count;
    }
    if (total == into->count)
        return true;
    tc_arena_init(&scratch, arena->budget);
    struct joined *list = tc_arena_array(&scratch, total, sizeof *list, error);
    bool ok = list != NULL;
    if (ok) {
        list_pairs(list, &used, into, 0);
        for (size_t i = 0; i < count; i++)
            list_pairs(list, &used, from[i], i + 1);
        qsort(list, used, sizeof *list, joined_compare);
        size_t keys = 0;
        for (size_t i = 0; i < used; i++)
            keys += i == 0 || !tc_text_equal(list[i - 1].pair.key, list[i].pair.key);
        struct tc_metadata joined = {.capacity = keys};
        joined.pairs = tc_arena_array(arena, keys, sizeof *joined.pairs, error);
        ok = joined.pairs != NULL;
        if (ok) {
            keep_first(&joined, list, used, conflicts);
            *into = joined;
        }
    }
    tc_arena_release(&scratch);
    return ok;
}

void tc_metadata_remove(struct tc_metadata *metadata, struct tc_text key) {
    size_t place = pair_place(metadata, key);
    if (!pair_is_at(metadata, place, key))
        return;
    metadata->count--;
    memmove(metadata->pairs + place, metadata->pairs + place + 1,
            (metadata->count - place) * sizeof *metadata->pairs);
}

void tc_metadata_remove_prefix(struct tc_metadata *metadata, struct tc_text prefix) {
    size_t kept = 0;
    for (size_t i = 0; i < metadata->count; i++)
        if (!tc_text_starts(metadata->pairs[i].key, prefix))
            metadata->pairs[kept++] = metadata->pairs[i];
    metadata->count = kept;
}
