/*
 * The memo: a list for keys in sequence, a hash for the others. Python's own
 * machines count entries, not puts, which is what MEMOIZE numbers by.
 *
 * A machine keeps its memo from pickle to pickle, each entry with the number of
 * the pickle that put it there: most loaders start anew with each pickle, but
 * one that goes on with the same unpickler still finds the old entries.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/sodium.h"
#include "formats/pickle_machine.h"

#define MAX_MEMO (UINT64_C(16) << 20)
/* Keys below this go to the list however few there are. */
#define ALWAYS_DENSE 256u

struct entry {
    uint64_t key;
    struct pickle_node *node; /* NULL: free */
    uint64_t pickle;          /* that put it there */
};

struct pickle_memo {
    struct entry *dense;
    size_t dense_capacity;
    struct entry *slots;
    size_t slot_count;
    size_t used; /* slots, by entries of any pickle */
    uint64_t count;
    uint64_t pickle; /* the number of the one that runs */
    uint8_t hash_key[16];
};

void pickle_memo_release(struct pickle *pickle) {
    if (pickle->memo) {
        free(pickle->memo->dense);
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
        /* Without randomness at boot the address does: it only spreads keys. */
        if (getrandom(pickle->memo->hash_key, sizeof pickle->memo->hash_key, GRND_NONBLOCK) < 0)
            memcpy(pickle->memo->hash_key, &pickle->memo, sizeof(void *));
    }
    pickle->memo->pickle++;
    pickle->memo->count = 0;
    return true;
}

uint64_t pickle_memo_hash(const struct pickle *pickle, struct tc_text text) {
    return tc_shorthash(pickle->memo->hash_key, text.bytes, text.length);
}

/* The place of a key, or of the free slot where it would go. */
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
    if (!pickle_charge_memory(pickle, more * sizeof *memo->dense))
        return false;
    struct entry *dense = reallocarray(memo->dense, capacity, sizeof *dense);
    if (!dense)
        return tc_fail_memory(pickle->error);
    memset(dense + memo->dense_capacity, 0, more * sizeof *dense);
    memo->dense = dense;
    memo->dense_capacity = capacity;
    return true;
}

static bool is_current(const struct pickle_memo *memo, const struct entry *entry) {
    return entry && entry->node && entry->pickle == memo->pickle;
}

static struct entry *in_dense(const struct pickle_memo *memo, uint64_t key) {
    return key < memo->dense_capacity ? &memo->dense[key] : NULL;
}

static struct entry *in_slots(const struct pickle_memo *memo, uint64_t key) {
    return memo->slot_count ? find_slot(memo, key) : NULL;
}

bool pickle_memo_put(struct pickle *pickle, uint64_t key) {
    struct pickle_node *node = pickle_top(pickle);
    struct pickle_memo *memo = pickle->memo;
    if (!node)
        return false;
    if (memo->count >= MAX_MEMO)
        return pickle_over_limit(pickle, "memo entries");
    /* A list no more than half empty. */
    bool dense = key < ALWAYS_DENSE || key < 2 * memo->count;
    if (dense && key >= memo->dense_capacity && !grow_dense(pickle, key))
        return false;
    if (!dense && memo->used * 2 >= memo->slot_count && !grow_slots(pickle))
        return false;
    /* It may be in the hash from when it was far out of sequence. */
    memo->count += !is_current(memo, in_dense(memo, key)) && !is_current(memo, in_slots(memo, key));
    struct entry *entry = dense ? in_dense(memo, key) : in_slots(memo, key);
    memo->used += !dense && !entry->node;
    *entry = (struct entry){key, node, memo->pickle};
    return true;
}

bool pickle_memo_get(struct pickle *pickle, uint64_t key) {
    const struct pickle_memo *memo = pickle->memo;
    const struct entry *dense = in_dense(memo, key);
    const struct entry *slot = in_slots(memo, key);
    const struct entry *found = is_current(memo, dense)  ? dense
                                : is_current(memo, slot) ? slot
                                                         : NULL;
    if (!found && pickle->mode == PICKLE_SCAN) {
        /* The later of the two that an earlier pickle left. */
        bool later = slot && slot->node && (!dense || slot->pickle > dense->pickle);
        found = later ? slot : dense;
        if (found && found->node && !pickle_odd(pickle, "a memo entry of an earlier pickle"))
            return false;
    }
    if (!found || !found->node)
        return pickle_bad(pickle, "a memo entry that is not there");
    return pickle_push(pickle, found->node);
}

uint64_t pickle_memo_count(const struct pickle *pickle) {
    return pickle->memo->count;
}
