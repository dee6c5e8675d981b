/*
 * The nearest of many names to one that is not among them, for a hint such as
 * "did you mean …?". What it costs is bounded, however many names there are
 * and however long they are.
 */
#ifndef TCONV_CORE_BASE_NEAR_H
#define TCONV_CORE_BASE_NEAR_H

#include "core/base/error.h"
#include "core/base/text.h"

struct tc_near {
    struct tc_text wanted;
    struct tc_text best; /* bytes NULL: none is near enough */
    unsigned distance;   /* of the best */
    uint64_t steps;      /* that may still be taken */
};

void tc_near_init(struct tc_near *near, struct tc_text wanted);
/* The candidate must live as long as the best is asked for. */
void tc_near_try(struct tc_near *near, struct tc_text candidate);
/* A hint: the nearest, where there is one, and what else there is to say. */
bool tc_near_hint(const struct tc_near *near, struct tc_error *error, const char *otherwise);

/* Two names are the same but for case, '_' and '-'. */
bool tc_names_alike(struct tc_text a, struct tc_text b);

#endif
