/* Files that are published together with an output: its receipt, and a depfile with
 * rules for make. */
#ifndef TCONV_CMD_SIDE_OUTPUTS_H
#define TCONV_CMD_SIDE_OUTPUTS_H

#include "core/base/error.h"
#include "core/base/sodium.h"
#include "core/base/text.h"
#include "core/convert/convert.h"
#include "core/io/publish.h"
#include "core/plan/plan.h"

struct side_outputs {
    const char *receipt; /* paths; NULL: not wanted */
    const char *key;     /* to sign the receipt with */
    const char *depfile;
    bool tensors; /* the receipt lists them */
    struct tc_text options;
    const char *const *also; /* other files that the output depends on: those of --map */
    size_t also_count;
    /* Set by side_outputs_begin. */
    struct tc_publish publishes[2];
    unsigned char secret[TC_KEY_BYTES];
    bool dated;
    int64_t date;
};

/* Checks the paths and reads the key, before anything is written. */
bool side_outputs_begin(struct side_outputs *side, const struct tc_plan *plan,
                        struct tc_publish_options options, struct tc_error *error);
/* Once the output is written; nothing has its name yet. */
bool side_outputs_write(struct side_outputs *side, struct tc_conversion *conversion,
                        const char *output, struct tc_error *error);
/* Publishes the output and these files: all or none. */
bool side_outputs_commit(struct side_outputs *side, struct tc_conversion *conversion,
                         struct tc_error *error);
/* Always, after begin. */
void side_outputs_end(struct side_outputs *side);

#endif
