/* Metadata as JSON: an object whose values are strings. */
#ifndef TCONV_CORE_TENSOR_METADATA_JSON_H
#define TCONV_CORE_TENSOR_METADATA_JSON_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_writer.h"
#include "core/tensor/metadata.h"

/* Writes an object, which is empty for NULL. */
void tc_metadata_write(struct tc_json_writer *json, const char *key,
                       const struct tc_metadata *metadata);
/* Reads an object of strings, which must be the next value; no key may occur
 * twice. */
bool tc_metadata_read(struct tc_json *json, struct tc_metadata *metadata);

/*
 * The "metadata" of an index, except total_size, which is computed anew, is kept
 * under this key of the model's metadata. The value is a JSON object, so that
 * numbers stay numbers. It is written into the index of a sharded output, and
 * otherwise as metadata of the output.
 */
#define TC_INDEX_METADATA_KEY "tconv.index_metadata"
/* Sets the key to these pairs, whose values are JSON; removes the key where there
 * are none. */
bool tc_index_metadata_set(struct tc_metadata *metadata, const struct tc_metadata *pairs,
                           struct tc_arena *arena, struct tc_error *error);

#endif
