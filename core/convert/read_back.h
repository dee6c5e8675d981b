/*
 * Proof that an output is what was meant: the SHA-256 of every tensor's bytes
 * on their way to the writer, compared with what the output gives when it is
 * read again, before it is published.
 */
#ifndef TCONV_CORE_CONVERT_READ_BACK_H
#define TCONV_CORE_CONVERT_READ_BACK_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/io/progress.h"
#include "core/io/publish.h"
#include "core/io/sha256.h"
#include "core/plan/plan.h"

/* A tensor as the output gave it. */
struct tc_read_back_tensor {
    struct tc_text name;
    const uint64_t *shape;
    uint8_t dtype;
    uint8_t rank;
    unsigned char sum[TC_SHA256_BYTES];
};

struct tc_read_back {
    unsigned char (*sums)[TC_SHA256_BYTES]; /* by plan position: as it was meant */
    bool keep;                              /* wanted: the tensors below, and their digest */
    struct tc_read_back_tensor *tensors;    /* of all files, by name's bytes */
    size_t count;
    struct tc_arena arena;
};

/* Opens an input, which it takes over, by its content where `backend` is NULL. */
typedef struct tc_reader *tc_opener(struct tc_input *input, const struct tc_backend *backend,
                                    const struct tc_format_options *options,
                                    struct tc_error *error);

bool tc_read_back_init(struct tc_read_back *read_back, const struct tc_plan *plan, bool keep,
                       struct tc_error *error);
void tc_read_back_release(struct tc_read_back *read_back);
/* Reads the sealed files of an output; a difference is TC_IO, whatever a
 * reader would call the damage. */
bool tc_read_back_check(struct tc_read_back *read_back, const struct tc_plan *plan,
                        const struct tc_publish *publish, tc_opener *open,
                        const struct tc_watch *watch, struct tc_error *error);
/* What `tconv hash --digest` prints of the output, for those that keep. */
bool tc_read_back_digest(const struct tc_read_back *read_back, char hex[2 * TC_SHA256_BYTES + 1],
                         struct tc_error *error);

#endif
