/*
 * A tensor's bytes as they are to be written: the writer's side of a conversion. A backend's put
 * either calls tc_source_write, which moves them to the output's current position the fastest
 * way, or takes chunk after chunk with tc_source_next and gives each back with tc_chunk_release.
 */
#ifndef TCONV_CORE_FORMAT_SOURCE_H
#define TCONV_CORE_FORMAT_SOURCE_H

#include "core/base/error.h"
#include "core/io/chunk_pipe.h"

struct tc_outfile;

/* What a converter gives a writer; the functions below call its own. */
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
