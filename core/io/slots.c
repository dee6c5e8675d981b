#include "core/io/slots.h"

#include <stdlib.h>
#include <string.h>

void tc_slots_init(struct tc_slots *slots, size_t state_size, void (*empty)(void *state)) {
    *slots = (struct tc_slots){.most = TC_SLOTS, .state_size = state_size, .empty = empty};
    pthread_mutex_init(&slots->lock, NULL);
    pthread_cond_init(&slots->given, NULL);
}

void tc_slots_release(struct tc_slots *slots) {
    if (!slots->state_size)
        return;
    for (size_t i = 0; i < TC_SLOTS; i++) {
        if (slots->slots[i].key)
            slots->empty(slots->slots[i].state);
        free(slots->slots[i].state);
    }
    pthread_mutex_destroy(&slots->lock);
    pthread_cond_destroy(&slots->given);
    *slots = (struct tc_slots){0};
}

/* The slot of the key, or the one that is to become it; NULL: all are taken. */
static struct tc_slot *find(struct tc_slots *slots, const void *key) {
    struct tc_slot *oldest = NULL;
    for (size_t i = 0; i < slots->most; i++) {
        struct tc_slot *slot = &slots->slots[i];
        if (slot->key == key)
            return slot;
        if (!slot->taken && (!oldest || slot->used < oldest->used))
            oldest = slot;
    }
    return oldest;
}

void *tc_slots_take(struct tc_slots *slots, const void *key, struct tc_error *error) {
    pthread_mutex_lock(&slots->lock);
    struct tc_slot *slot;
    while (!(slot = find(slots, key)) || slot->taken)
        pthread_cond_wait(&slots->given, &slots->lock);
    if (slot->key && slot->key != key) {
        slots->empty(slot->state);
        memset(slot->state, 0, slots->state_size);
        slot->key = NULL;
    }
    if (!slot->state)
        slot->state = calloc(1, slots->state_size);
    if (slot->state) {
        slot->key = key;
        slot->taken = true;
    }
    void *state = slot->state;
    pthread_mutex_unlock(&slots->lock);
    if (!state)
        tc_fail_memory(error);
    return state;
}

void tc_slots_give(struct tc_slots *slots, const void *state) {
    pthread_mutex_lock(&slots->lock);
    for (size_t i = 0; i < TC_SLOTS; i++)
        if (slots->slots[i].state == state) {
            slots->slots[i].taken = false;
            slots->slots[i].used = ++slots->uses;
        }
    pthread_cond_broadcast(&slots->given);
    pthread_mutex_unlock(&slots->lock);
}
