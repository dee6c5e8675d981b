/*
 * Restores metadata that a format has no place for, when a file is read: metadata of tensors from a
 * key of the file's metadata, and all metadata from a sidecar, a second file FILE.tconv.json.
 */
#ifndef TCONV_CORE_FORMAT_RESTORE_METADATA_H
#define TCONV_CORE_FORMAT_RESTORE_METADATA_H

#include "core/base/error.h"

struct tc_reader;

/*
 * Per-tensor metadata in a format that has metadata only for the file: the value of
 * this key is compact JSON {name: {key: value}}, sorted.
 */
#define TC_TENSOR_METADATA_KEY "tconv.tensor_metadata"
bool tc_tensor_metadata_restore(struct tc_reader *reader, struct tc_error *error);

/* In a folder of single tensors, the file that has the names which the names of files do
 * not show: {"names": {file: name}}. */
#define TC_NAMES_FILE ".tconv-names.json"

/*
 * Types of metadata. Everywhere in the program the value of a key is text, but some formats
 * know whether it was an unsigned integer of 32 bits or a text (tc_reader.metadata_types). So that
 * it is written as the same again, also after a detour through a format that has no types, they
 * are the value of this key there, as sorted JSON {key: type}. They are an aid only: a value that
 * is none stays as it is, with a warning.
 */
#define TC_METADATA_TYPES_KEY "tconv.gguf_types"
bool tc_metadata_types_restore(struct tc_reader *reader, struct tc_error *error);

/* Reads the text of a sidecar into the reader's table; a key that a tensor has already keeps its
 * value. The text must outlive the reader. */
bool tc_sidecar_read(struct tc_reader *reader, const char *text, size_t length,
                     struct tc_error *error);
/* Opens the sidecar of the reader's file, where there is one, and reads it into the table. */
bool tc_sidecar_restore(struct tc_reader *reader, struct tc_error *error);

#endif
