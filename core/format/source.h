/*
 * The bytes of a tensor as a writer gets them. A backend's put either calls tc_source_write, which
 * writes all of them at the output's current position in the fastest way, or takes chunk after
 * chunk with tc_source_next and gives each back with tc_chunk_release. Only the thread that called
 * put may use the source, and only until put returns.
 */
#ifndef TCONV_CORE_FORMAT_SOURCE_H
#define TCONV_CORE_FORMAT_SOURCE_H

#include "core/base/error.h"
#include "core/io/chunk_pipe.h"

struct tc_outfile;

/* The converter provides these; the functions below call them. */
struct tc_source {
    bool (*write)(struct tc_source *source, struct tc_outfile *out, struct tc_error *error);
    enum tc_next (*next)(struct tc_source *source, struct tc_chunk **chunk, struct tc_error *error);
};

static inline bool tc_source_write(struct tc_source *source, struct tc_outfile *out,
                                   struct tc_error *error) {
    return source->write(source, out, error);
}

/* The tensor's next bytes, until its end. */
static inline enum tc_next tc_source_next(struct tc_source *source, struct tc_chunk **chunk,
                                          struct tc_error *error) {
    return source->next(source, chunk, error);
}

#endif
