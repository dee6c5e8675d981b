/*
 * Verifies an output by reading it again before it is published: the sum of every tensor's
 * bytes (core/io/crc_combine.h), taken on their way to the writer, must be that of the bytes which
 * reading the output gives. Names, dtypes, shapes and metadata are compared too.
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

/* A tensor as it was read from the output. */
struct tc_read_back_tensor {
    struct tc_text name;
    const uint64_t *shape;
    uint8_t dtype;
    uint8_t rank;
    unsigned char sum[TC_SHA256_BYTES];
};

struct tc_read_back {
    /* By position in the plan: the sum of the bytes as they were written (core/io/crc_combine.h).
     * Several threads add to it. */
    _Atomic uint64_t *sums;
    bool keep;                           /* whether to fill `tensors` */
    struct tc_read_back_tensor *tensors; /* of all files, sorted by name */
    size_t count;
    struct tc_arena arena;
};

/* Opens an input and takes it over; finds its format by content where `backend` is
 * NULL. */
typedef struct tc_reader *tc_opener(struct tc_input *input, const struct tc_backend *backend,
                                    const struct tc_format_options *options,
                                    struct tc_error *error);

bool tc_read_back_init(struct tc_read_back *read_back, const struct tc_plan *plan, bool keep,
                       struct tc_error *error);
void tc_read_back_release(struct tc_read_back *read_back);
/* Reads the sealed files of an output and compares them with the plan; any difference
 * or failure is TC_IO, "verification". */
bool tc_read_back_check(struct tc_read_back *read_back, const struct tc_plan *plan,
                        const struct tc_publish *publish, tc_opener *open,
                        const struct tc_watch *watch, struct tc_error *error);
/* The digest that `tconv hash --digest` prints for the output; needs `keep`. */
bool tc_read_back_digest(const struct tc_read_back *read_back, char hex[2 * TC_SHA256_BYTES + 1],
                         struct tc_error *error);

#endif
