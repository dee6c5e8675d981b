/* Slots: a key keeps its state until others need the room, and one thread at a time has it. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "core/base/error.h"
#include "core/io/cores.h"
#include "core/io/slots.h"
#include "core/io/thread_pool.h"

struct state {
    atomic_int users;
    size_t key;
    size_t uses;
};

static struct tc_slots slots;
static size_t emptied;
static char keys[3 * TC_SLOTS];

static void empty(void *state) {
    cr_assert_gt(((struct state *)state)->uses, 0);
    emptied++;
}

Test(slots, a_key_finds_its_state_again) {
    struct tc_error error = {0};
    emptied = 0;
    tc_slots_init(&slots, sizeof(struct state), empty);
    for (size_t round = 0; round < 3; round++)
        for (size_t i = 0; i < TC_SLOTS; i++) {
            struct state *state = tc_slots_take(&slots, &keys[i], &error);
            cr_assert_eq(state->uses++, round);
            tc_slots_give(&slots, state);
        }
    cr_assert_eq(emptied, 0);
    struct state *state = tc_slots_take(&slots, &keys[TC_SLOTS], &error);
    cr_assert_eq(state->uses++, 0);
    tc_slots_give(&slots, state);
    cr_assert_eq(emptied, 1);
    /* The one that was used longest ago made way. */
    state = tc_slots_take(&slots, &keys[1], &error);
    cr_assert_eq(state->uses, 3);
    tc_slots_give(&slots, state);
    tc_slots_release(&slots);
    cr_assert_eq(emptied, 1 + TC_SLOTS);
}

static bool next_use(void *context, void *job) {
    size_t *next = context;
    *(size_t *)job = *next;
    return ++*next <= 20000;
}

static bool use(void *context, struct tc_pool_worker *worker, const void *job,
                struct tc_error *error) {
    (void)context;
    (void)worker;
    size_t key = *(const size_t *)job % (TC_SLOTS + 4);
    struct state *state = tc_slots_take(&slots, &keys[key], error);
    bool alone = atomic_fetch_add(&state->users, 1) == 0;
    bool own = state->uses++ == 0 || state->key == key;
    state->key = key;
    atomic_fetch_sub(&state->users, 1);
    tc_slots_give(&slots, state);
    return (alone && own) || tc_fail(error, TC_INTERNAL, "test", "not alone");
}

Test(slots, one_thread_at_a_time_has_a_state, .timeout = 600) {
    struct tc_error error = {0};
    size_t next = 0;
    const struct tc_pool_work work = {
        .context = &next, .next = next_use, .job_size = sizeof(size_t), .run = use};
    tc_cores_set(TC_MOST_CORES);
    tc_slots_init(&slots, sizeof(struct state), empty);
    cr_assert(tc_pool_run(&work, TC_MOST_CORES, &error), "%s", error.message);
    tc_slots_release(&slots);
}
