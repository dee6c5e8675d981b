/*
 * The states of streams that several threads read at the same time, such as those of packed members
 * of an archive: one for each key that was used lately. A thread takes the state of a key, alone,
 * and gives it back; until then others that want it wait. A state that has not been used for long
 * makes way for another key.
 */
#ifndef TCONV_CORE_IO_SLOTS_H
#define TCONV_CORE_IO_SLOTS_H

#include <pthread.h>

#include "core/base/error.h"

#define TC_SLOTS 16u

struct tc_slot {
    const void *key; /* NULL: the state is zeroed */
    void *state;     /* NULL: not used yet */
    uint64_t used;   /* when it was given back, counted by uses */
    bool taken;
};

struct tc_slots {
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct tc_slot slots[TC_SLOTS];
    size_t most; /* how many of them are used: fewer where states take much memory */
    size_t state_size;
    void (*empty)(void *state); /* releases what a state holds */
    uint64_t uses;
};

void tc_slots_init(struct tc_slots *slots, size_t state_size, void (*empty)(void *state));
/* No state may be taken. */
void tc_slots_release(struct tc_slots *slots);
/* The state of a key, zeroed where the key is new; NULL without memory. */
void *tc_slots_take(struct tc_slots *slots, const void *key, struct tc_error *error);
void tc_slots_give(struct tc_slots *slots, const void *state);

#endif
