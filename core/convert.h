/*
 * Carrying out a plan: the data goes from the readers to a writer in one
 * stream of bounded memory, and the output appears when all of it is right.
 */
#ifndef TCONV_CORE_CONVERT_H
#define TCONV_CORE_CONVERT_H

#include "core/proof.h"

/* Called from the converting thread with bytes done so far, every few MiB. */
typedef void tc_progress(void *context, uint64_t done, uint64_t total);

struct tc_convert_options {
    struct tc_publish_options publish;
    tc_progress *progress; /* NULL: none */
    void *context;
    bool in_place; /* the output may be the first reader's own file */
    /* Reads the output again before it is published and compares every
     * tensor; `keep` then keeps what it gave. */
    bool verify;
    bool keep;
    tc_opener *open; /* needed to verify */
    /* Called with the sealed files before they are read again: for tests. */
    void (*disturb)(const struct tc_publish *publish);
};

bool tc_convert(struct tc_plan *plan, const char *output, const struct tc_convert_options *options,
                struct tc_error *error);

/*
 * The same in steps, for a caller that publishes something beside: after
 * tc_conversion_write all is right and nothing has its name yet. End always.
 */
struct tc_conversion {
    struct tc_plan *plan;
    const struct tc_convert_options *options;
    struct tc_publish publish;
    struct tc_input **inputs; /* all files that were read */
    size_t input_count;
    size_t own_count; /* of them those of the first reader */
    struct tc_proof proof;
};
bool tc_conversion_write(struct tc_conversion *conversion, struct tc_plan *plan, const char *output,
                         const struct tc_convert_options *options, struct tc_error *error);
bool tc_conversion_commit(struct tc_conversion *conversion, struct tc_error *error);
void tc_conversion_end(struct tc_conversion *conversion);

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
