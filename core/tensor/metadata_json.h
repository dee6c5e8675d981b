/* Metadata as JSON: an object whose values are strings. */
#ifndef TCONV_CORE_TENSOR_METADATA_JSON_H
#define TCONV_CORE_TENSOR_METADATA_JSON_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/tensor/metadata.h"

/* A compact object; "{}" for NULL. */
void tc_metadata_write(struct tc_buffer *text, const struct tc_metadata *metadata,
                       enum tc_escape how);
/* The same with a pair a line, two spaces further in than `indent`. */
void tc_metadata_write_pretty(struct tc_buffer *text, const struct tc_metadata *metadata,
                              int indent, enum tc_escape how);
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
