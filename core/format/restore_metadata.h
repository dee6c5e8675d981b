/*
 * Metadata that a file could not hold in its own way, put back where it belongs when the file is
 * read: that of tensors, from a key of the file's metadata; all of it, from a sidecar.
 */
#ifndef TCONV_CORE_FORMAT_RESTORE_METADATA_H
#define TCONV_CORE_FORMAT_RESTORE_METADATA_H

#include "core/base/error.h"

struct tc_reader;

/*
 * Per-tensor metadata in a format that has only a file's: one key whose value
 * is compact JSON {name: {key: value}}, sorted. Reading restores it.
 */
#define TC_TENSOR_METADATA_KEY "tconv.tensor_metadata"
bool tc_tensor_metadata_restore(struct tc_reader *reader, struct tc_error *error);

/* The text of a sidecar, FILE.tconv.json, into the reader's table; tensors may have metadata of
 * their own already, which counts first. The text must outlive the reader. */
bool tc_sidecar_read(struct tc_reader *reader, const char *text, size_t length,
                     struct tc_error *error);
/* Reads it, where there is one, into the reader's table. */
bool tc_sidecar_restore(struct tc_reader *reader, struct tc_error *error);

#endif
