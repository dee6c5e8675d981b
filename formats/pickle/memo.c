/*
 * The memo: an array for keys in sequence, a hash table for the others. The key of
 * MEMOIZE is the number of entries, not of puts, as in Python's machines.
 *
 * A machine keeps its memo from pickle to pickle, and knows which entries are from the
 * pickle that runs: most loaders use a new unpickler for each pickle, but one that uses
 * the same again finds the old entries.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "formats/pickle/machine.h"
#include "formats/pickle/pickle.h"

#define MAX_MEMO (UINT64_C(16) << 20)
/* Keys below this always go to the array. */
#define ALWAYS_DENSE 256u

struct entry {
    uint64_t key;
    struct pickle_node *node; /* NULL: the slot is free */
    uint64_t pickle;          /* the number of the pickle that put it there */
};

struct pickle_memo {
    struct pickle_node **dense;
    unsigned char *fresh; /* a bit for each entry of the array: this pickle put it there */
    size_t dense_capacity;
    size_t dense_used; /* this pickle's keys in the array are below it */
    struct entry *slots;
    size_t slot_count;
    size_t used; /* slots in use, by entries of any pickle */
    uint64_t count;
    uint64_t pickle; /* the number of the pickle that runs */
    uint8_t hash_key[16];
};

void pickle_memo_release(struct pickle *pickle) {
    if (pickle->memo) {
        free(pickle->memo->dense);
        free(pickle->memo->fresh);
        free(pickle->memo->slots);
    }
    free(pickle->memo);
    pickle->memo = NULL;
}

bool pickle_memo_new(struct pickle *pickle) {
    if (!pickle->memo) {
        pickle->memo = calloc(1, sizeof *pickle->memo);
        if (!pickle->memo)
            return tc_fail_memory(pickle->error);
        tc_random(pickle->memo->hash_key, sizeof pickle->memo->hash_key);
    }
    if (pickle->memo->dense_used)
        memset(pickle->memo->fresh, 0, (pickle->memo->dense_used + 7) / 8);
    pickle->memo->dense_used = 0;
    pickle->memo->pickle++;
    pickle->memo->count = 0;
    return true;
}

uint64_t pickle_memo_hash(const struct pickle *pickle, struct tc_text text) {
    return tc_shorthash(pickle->memo->hash_key, text.bytes, text.length);
}

/* The slot of a key, or the free slot where it would go. */
static struct entry *find_slot(const struct pickle_memo *memo, uint64_t key) {
    size_t mask = memo->slot_count - 1;
    size_t at = (size_t)tc_shorthash(memo->hash_key, &key, sizeof key) & mask;
    while (memo->slots[at].node && memo->slots[at].key != key)
        at = (at + 1) & mask;
    return &memo->slots[at];
}

static bool grow_slots(struct pickle *pickle) {
    struct pickle_memo *memo = pickle->memo;
    struct pickle_memo larger = *memo;
    larger.slot_count = memo->slot_count ? memo->slot_count * 2 : 64;
    size_t more = (larger.slot_count - memo->slot_count) * sizeof *larger.slots;
    if (!pickle_charge_memory(pickle, more))
        return false;
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return tc_fail_memory(pickle->error);
    for (size_t i = 0; i < memo->slot_count; i++)
        if (memo->slots[i].node)
            *find_slot(&larger, memo->slots[i].key) = memo->slots[i];
    free(memo->slots);
    *memo = larger;
    return true;
}

static bool grow_dense(struct pickle *pickle, uint64_t key) {
    struct pickle_memo *memo = pickle->memo;
    size_t capacity = memo->dense_capacity ? memo->dense_capacity : ALWAYS_DENSE;
    while (capacity <= key)
        capacity *= 2;
    size_t more = capacity - memo->dense_capacity;
    if (!pickle_charge_memory(pickle, more * sizeof *memo->dense + more / 8))
        return false;
    struct pickle_node **dense = reallocarray(memo->dense, capacity, sizeof *dense);
    memo->dense = dense ? dense : memo->dense;
    unsigned char *fresh = dense ? realloc(memo->fresh, capacity / 8) : NULL;
    if (!fresh)
        return tc_fail_memory(pickle->error);
    memset(dense + memo->dense_capacity, 0, more * sizeof *dense);
    memset(fresh + memo->dense_capacity / 8, 0, more / 8);
    memo->fresh = fresh;
    memo->dense_capacity = capacity;
    return true;
}

/* The node under a key; NULL where this pickle has put none there. */
static struct pickle_node *current(const struct pickle_memo *memo, uint64_t key) {
    if (key < memo->dense_used && memo->fresh[key / 8] >> key % 8 & 1)
        return memo->dense[key];
    const struct entry *entry = memo->slot_count ? find_slot(memo, key) : NULL;
    return entry && entry->node && entry->pickle == memo->pickle ? entry->node : NULL;
}

/* The node that any earlier pickle put under a key; NULL: none. */
static struct pickle_node *earlier(const struct pickle_memo *memo, uint64_t key) {
    const struct entry *entry = memo->slot_count ? find_slot(memo, key) : NULL;
    if (entry && entry->node)
        return entry->node;
    return key < memo->dense_capacity ? memo->dense[key] : NULL;
}

static bool put_dense(struct pickle *pickle, uint64_t key, struct pickle_node *node) {
    struct pickle_memo *memo = pickle->memo;
    if (key >= memo->dense_capacity && !grow_dense(pickle, key))
        return false;
    memo->dense[key] = node;
    memo->fresh[key / 8] |= (unsigned char)(1u << key % 8);
    if (key >= memo->dense_used)
        memo->dense_used = (size_t)key + 1;
    return true;
}

static bool put_slot(struct pickle *pickle, uint64_t key, struct pickle_node *node) {
    struct pickle_memo *memo = pickle->memo;
    if (memo->used * 2 >= memo->slot_count && !grow_slots(pickle))
        return false;
    struct entry *entry = find_slot(memo, key);
    memo->used += !entry->node;
    *entry = (struct entry){key, node, memo->pickle};
    return true;
}

bool pickle_memo_put(struct pickle *pickle, uint64_t key) {
    struct pickle_node *node = pickle_top(pickle);
    struct pickle_memo *memo = pickle->memo;
    if (!node)
        return false;
    if (memo->count >= MAX_MEMO)
        return pickle_over_limit(pickle, "memo entries");
    bool known = current(memo, key) != NULL;
    /* The array is used as long as at least half of it is filled. */
    bool ok = key < ALWAYS_DENSE || key < 2 * memo->count ? put_dense(pickle, key, node)
                                                          : put_slot(pickle, key, node);
    memo->count += ok && !known;
    return ok;
}

/* A text that stands for a missing entry, which might have been part of a name. */
static struct pickle_node *unknown_text(struct pickle *pickle) {
    struct pickle_node *node = pickle_node(pickle, PICKLE_TEXT);
    if (node) {
        node->text = "?";
        node->length = 1;
    }
    return node;
}

bool pickle_memo_get(struct pickle *pickle, uint64_t key) {
    struct pickle_node *node = current(pickle->memo, key);
    if (!node && pickle->mode == PICKLE_SCAN) {
        node = earlier(pickle->memo, key);
        /* Python's machines stop where there is no entry; a scan goes on, so that what
         * follows is reported too. */
        if (!pickle_tolerate(pickle, node ? "a memo entry of an earlier pickle"
                                          : "a memo entry that is not there"))
            return false;
        node = node ? node : unknown_text(pickle);
    }
    return node ? pickle_push(pickle, node) : pickle_bad(pickle, "a memo entry that is not there");
}

uint64_t pickle_memo_count(const struct pickle *pickle) {
    return pickle->memo->count;
}
