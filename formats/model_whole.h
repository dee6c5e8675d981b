/*
 * Folders that are one model together, though nothing in them says so as a config.json does: a
 * checkpoint of torch.distributed or of DeepSpeed, and the file a tensor that tconv writes. Told
 * from names alone.
 */
#ifndef TCONV_FORMATS_MODEL_WHOLE_H
#define TCONV_FORMATS_MODEL_WHOLE_H

#include <stdint.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/io/listing.h"

struct model_whole {
    bool found;
    uint64_t size; /* of the files that belong to it */
    /* Why it can't be converted; NULL: nothing. */
    const char *problem;
    enum tc_class class;
};

/* Looks through a sorted list. */
struct model_whole model_whole_find(const struct tc_listing *listing);
/* Whether a file of a folder of that kind belongs to it, and is no model of its own. */
bool model_whole_has(const struct tc_listing *listing, struct tc_text name);

#endif
