/* Metadata as JSON: an object whose values are strings. */
#ifndef TCONV_CORE_TENSOR_METADATA_JSON_H
#define TCONV_CORE_TENSOR_METADATA_JSON_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/tensor/metadata.h"

/* An object, empty for NULL. */
void tc_metadata_write(struct tc_json_writer *json, const char *key,
                       const struct tc_metadata *metadata);
/* An object of strings, as the next value; keys must differ. */
bool tc_metadata_read(struct tc_json *json, struct tc_metadata *metadata);

/*
 * What an index has in its own "metadata" beside total_size, which is counted
 * anew: one key of the model's metadata whose value is a JSON object, so that
 * numbers stay numbers. It goes back into an index that is written, and else
 * wherever the target keeps metadata.
 */
#define TC_INDEX_METADATA_KEY "tconv.index_metadata"
/* Sets the key to these pairs, whose values are JSON; without any it goes. */
bool tc_index_metadata_set(struct tc_metadata *metadata, const struct tc_metadata *pairs,
                           struct tc_arena *arena, struct tc_error *error);

#endif
