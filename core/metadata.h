/* Metadata as JSON: in headers, and where a format has no place of its own. */
#ifndef TCONV_CORE_METADATA_H
#define TCONV_CORE_METADATA_H

#include "core/json.h"
#include "core/plan.h"

/* A compact object; "{}" for NULL. */
void tc_metadata_write(struct tc_buffer *text, const struct tc_metadata *metadata,
                       enum tc_escape how);
/* The same with a pair a line, two spaces further in than `indent`. */
void tc_metadata_write_pretty(struct tc_buffer *text, const struct tc_metadata *metadata,
                              int indent, enum tc_escape how);
/* An object of strings, as the next value; keys must differ. */
bool tc_metadata_read(struct tc_json *json, struct tc_metadata *metadata);

/*
 * Per-tensor metadata in a format that has only a file's: one key whose value
 * is compact JSON {name: {key: value}}, sorted. Reading restores it.
 */
#define TC_TENSOR_METADATA_KEY "tconv.tensor_metadata"
bool tc_tensor_metadata_encode(const struct tc_plan *plan, const struct tc_part *part,
                               struct tc_buffer *text, struct tc_error *error);
bool tc_tensor_metadata_restore(struct tc_reader *reader, struct tc_error *error);

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
/* Of a plan that does not take all tensors: without the number of parameters,
 * which is not theirs. */
bool tc_index_metadata_update(struct tc_plan *plan, struct tc_error *error);
/* Moves it from the plan's metadata to its index's, where there is one. */
bool tc_index_metadata_take(struct tc_plan *plan, struct tc_error *error);

/* The sidecar FILE.tconv.json: all metadata of a format that holds none, and
 * where it numbers its tensors (`names`) what they are called. */
bool tc_sidecar_encode(const struct tc_metadata *metadata, const struct tc_item *items,
                       size_t count, bool names, struct tc_buffer *text, struct tc_error *error);
/* Its text, into the reader's table; tensors may have metadata of their own
 * already, which counts first. The text must outlive the reader. */
bool tc_sidecar_read(struct tc_reader *reader, const char *text, size_t length,
                     struct tc_error *error);
/* Reads it, where there is one, into the reader's table. */
bool tc_sidecar_restore(struct tc_reader *reader, struct tc_error *error);

#endif
