/*
 * Carrying out a plan: the data goes from the readers to a writer in one
 * stream of bounded memory, and the output appears when all of it is right.
 */
#ifndef TCONV_CORE_CONVERT_H
#define TCONV_CORE_CONVERT_H

#include "core/plan.h"

/* Called from the converting thread with bytes done so far, every few MiB. */
typedef void tc_progress(void *context, uint64_t done, uint64_t total);

struct tc_convert_options {
    struct tc_publish_options publish;
    tc_progress *progress; /* NULL: none */
    void *context;
};

bool tc_convert(struct tc_plan *plan, const char *output, const struct tc_convert_options *options,
                struct tc_error *error);

/*
 * The writer's side: a tensor's bytes as they are to be written. put either
 * calls tc_source_write, which moves them to the output's current position
 * the fastest way, or takes chunk after chunk with tc_source_next and gives
 * each back with tc_chunk_release.
 */
struct tc_source;
bool tc_source_write(struct tc_source *source, struct tc_outfile *out, struct tc_error *error);
/* NULL at the tensor's end, or with the error filled. */
struct tc_chunk *tc_source_next(struct tc_source *source, struct tc_error *error);

#endif
