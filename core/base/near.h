/*
 * Finds the name most similar to one that does not exist, for a hint such as
 * "did you mean …?". The cost is bounded, however many names there are and
 * however long they are.
 */
#ifndef TCONV_CORE_BASE_NEAR_H
#define TCONV_CORE_BASE_NEAR_H

#include "core/base/error.h"
#include "core/base/text.h"

struct tc_near {
    struct tc_text wanted;
    struct tc_text best; /* bytes NULL: none is near enough */
    unsigned distance;   /* of the best */
    uint64_t steps;      /* of comparison that are still allowed */
};

void tc_near_init(struct tc_near *near, struct tc_text wanted);
/* Compares a candidate, whose bytes must outlive the search. */
void tc_near_try(struct tc_near *near, struct tc_text candidate);
/* Adds a hint: the most similar name, where there is one, then `otherwise`. */
bool tc_near_hint(const struct tc_near *near, struct tc_error *error, const char *otherwise);

/* Whether two names are the same when case, '_' and '-' are ignored. */
bool tc_names_alike(struct tc_text a, struct tc_text b);

#endif
