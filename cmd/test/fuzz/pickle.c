/*
 * The fuzz target of the pickle machine. A pickle is run from memory and from a file, which must
 * come to the same; and by all three modes: what the strict one accepts the others accept too, and
 * nothing in it has a name that the machine does not know.
 */

#include "formats/pickle/pickle.h"
#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "formats/pickle/run.h"

/* Pickles that follow one another in a file. */
#define MOST_PICKLES 8

struct outcome {
    unsigned pickles; /* run to their end */
    unsigned globals;
    unsigned unknown; /* globals that are not on the list */
    unsigned calls;
    uint64_t at; /* behind the last */
    enum tc_class class;
};

static bool on_global(void *context, const struct pickle_node *global, struct tc_error *error) {
    struct outcome *outcome = context;
    (void)error;
    outcome->globals++;
    outcome->unknown += global->global == PICKLE_UNKNOWN;
    return true;
}

static bool on_call(void *context, const struct pickle_node *callable,
                    const struct pickle_node *arguments, uint64_t at, struct tc_error *error) {
    struct outcome *outcome = context;
    (void)error;
    FUZZ_CHECK(callable && arguments, "a call of nothing at %llu", (unsigned long long)at);
    outcome->calls++;
    return true;
}

static bool on_misuse(void *context, const char *what, struct tc_text name, uint64_t at,
                      struct tc_error *error) {
    (void)context;
    (void)name;
    (void)at;
    (void)error;
    FUZZ_CHECK(what && what[0], "a misuse that does not say what it is");
    return true;
}

static bool persistent(void *context, const struct pickle_node *id, struct pickle_node **node,
                       struct tc_error *error) {
    (void)context;
    (void)error;
    FUZZ_CHECK(id, "a persistent id of nothing");
    (*node)->index = 0;
    return true;
}

/* Runs all pickles of the bytes; from the input, or where that is NULL from memory. */
static struct outcome run(const unsigned char *bytes, size_t length, struct tc_input *input,
                          enum pickle_mode mode, unsigned flags) {
    struct outcome outcome = {0};
    struct tc_error error = {0};
    struct tc_arena arena;
    struct pickle pickle;
    struct pickle_node *root;
    tc_arena_init(&arena, UINT64_C(128) << 20);
    pickle_init(&pickle, &arena, &fuzz_options.limits, &error);
    pickle.input = input;
    pickle.memory = input ? NULL : bytes;
    pickle.end = length;
    pickle.mode = mode;
    pickle.script = flags & 1;
    pickle.nested = flags & 2;
    pickle.keys = flags & 4;
    pickle.persistent = flags & 8 ? NULL : persistent;
    pickle.context = &outcome;
    pickle.on_global = on_global;
    pickle.on_call = on_call;
    pickle.on_misuse = mode == PICKLE_SCAN ? on_misuse : NULL;
    while (outcome.pickles < MOST_PICKLES && pickle.at < pickle.end &&
           pickle_load(&pickle, &root)) {
        FUZZ_CHECK(root && pickle.at > outcome.at && pickle.at <= pickle.end,
                   "a pickle that ends nowhere");
        outcome.at = pickle.at;
        outcome.pickles++;
    }
    fuzz_check_outcome(error.class == TC_OK, &error);
    outcome.class = error.class;
    pickle_release(&pickle);
    tc_arena_release(&arena);
    return outcome;
}

void fuzz_pickle(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    if (length == 0)
        return;
    unsigned flags = *bytes++;
    length--;
    struct tc_input *input = tc_input_open(fuzz_file(bytes, length), NULL, &error);
    fuzz_check_outcome(input != NULL, &error);
    struct outcome results[3];
    for (int mode = PICKLE_STRICT; mode <= PICKLE_SCAN; mode++) {
        struct outcome memory = run(bytes, length, NULL, (enum pickle_mode)mode, flags);
        struct outcome file = run(bytes, length, input, (enum pickle_mode)mode, flags);
        FUZZ_CHECK(memory.class == file.class && memory.pickles == file.pickles &&
                       memory.at == file.at && memory.globals == file.globals &&
                       memory.calls == file.calls,
                   "from memory and from a file a pickle does different things");
        results[mode] = memory;
    }
    tc_input_close(input);
    const struct outcome *strict = &results[PICKLE_STRICT];
    if (strict->class == TC_OK) {
        FUZZ_CHECK(strict->unknown == 0, "an unknown global is accepted");
        for (int mode = PICKLE_INERT; mode <= PICKLE_SCAN; mode++)
            FUZZ_CHECK(results[mode].class == TC_OK && results[mode].at == strict->at &&
                           results[mode].globals == strict->globals,
                       "mode %d reads a harmless pickle in another way", mode);
    }
}
