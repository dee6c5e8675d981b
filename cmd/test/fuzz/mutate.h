/*
 * Changes bytes at random, without any engine: for runs that must be the same wherever they are
 * made. The same generator gives the same changes.
 */
#ifndef TCONV_CMD_TEST_FUZZ_MUTATE_H
#define TCONV_CMD_TEST_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/text.h"

struct generator {
    uint64_t state;
};

/* A number below `limit`, which is not 0. */
uint64_t generator_below(struct generator *generator, uint64_t limit);

/* What changes are made of besides chance: words of the target's dictionary, and another input. */
struct mutate_sources {
    const struct tc_text *words;
    size_t word_count;
    struct tc_text other;
};

/* Makes a few changes to the `length` bytes at `bytes`, which has room for `capacity`. Returns the
 * new length. */
size_t mutate(struct generator *generator, unsigned char *bytes, size_t length, size_t capacity,
              const struct mutate_sources *sources);

#endif
