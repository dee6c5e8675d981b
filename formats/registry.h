/*
 * The list of formats (registry.def has a line for each), and how a file's format
 * is found: by name, by extension or by content. The list is constant, so that
 * any thread may use it.
 */
#ifndef TCONV_FORMATS_REGISTRY_H
#define TCONV_FORMATS_REGISTRY_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"

#define TC_FORMAT(name) extern const struct tc_backend tc_backend_##name;
#include "formats/registry.def"
#undef TC_FORMAT

/* All formats; NULL behind the last. */
extern const struct tc_backend *const tc_registry[];

/* The format that has exactly this name, or NULL. */
const struct tc_backend *tc_registry_named(const char *name);
/* The format that a user means by any usual name of it or of its library
 * ("torch", "numpy", "dt"), in upper or lower case, or NULL. Where a name stands
 * for several formats (numpy: npy and npz), the path's extension decides between
 * them, if it is that of one of them. */
const struct tc_backend *tc_registry_called(const char *name, const char *path);
/* Adds a hint to an error about an unknown name: the known name nearest to it,
 * or `otherwise` where none is near. Returns false. */
bool tc_registry_hint(const char *name, struct tc_error *error, const char *otherwise);
/* The format that has the path's extension, or NULL. The longest extension wins:
 * .index.json before .json. */
const struct tc_backend *tc_registry_for_path(const char *path);
/* The format of a file's content. Where no format recognises it: the format of
 * its extension if that is one of ours (its open then says what is wrong), else
 * NULL with an error that says what the file looks like. */
const struct tc_backend *tc_registry_probe(struct tc_input *input, struct tc_error *error);
/* The format that recognises a file's content, whatever its name; NULL: none does. Fails
 * where the file can't be read. */
bool tc_registry_recognise(struct tc_input *input, const struct tc_backend **backend,
                           struct tc_error *error);
/* Fills the error with what a file of no known format looks like; returns false. */
bool tc_registry_explain(struct tc_input *input, struct tc_error *error);
/* Whether the path is that of an index of shards. `indexed` is then the path
 * without the index's ending, whose extension is that of the shards:
 * model.safetensors for model.safetensors.index.json. */
bool tc_registry_indexed_path(const char *path, char *indexed, size_t size);
/* The name of a file without its folder and its format's extension, of an index without
 * both of its extensions; of a folder its name. */
struct tc_text tc_registry_stem(const char *path);
/* The format in which a single tensor is written where nothing names a format:
 * when tensors are written as the files of a folder, for instance. */
const struct tc_backend *tc_registry_for_one(void);
/* The format that a file of the Hub is converted to where nothing names one: that of most models
 * there, or, where the file has that format, another. */
const struct tc_backend *tc_registry_for_hub(const struct tc_backend *original);
/* The options that formats declare for that use, by position, counted from 0;
 * NULL behind the last. One that several formats declare comes once. */
const struct tc_format_option *tc_registry_option(enum tc_option_use use, size_t position);
/* Whether the format is that of an index of shards, not of a file of tensors. */
bool tc_registry_is_index(const struct tc_backend *backend);

/* Opens a file: as the format `backend`, or where that is NULL as the one that
 * its content shows. Metadata that a sidecar file (NAME.tconv.json) holds is
 * restored. The caller closes the reader; NULL with the error filled. */
struct tc_reader *tc_registry_open(const char *path, const struct tc_backend *backend,
                                   const struct tc_format_options *options, struct tc_error *error);
/* Does the same with an input that is open already. The reader owns the input
 * from then on; on failure it is closed. */
struct tc_reader *tc_registry_open_input(struct tc_input *input, const struct tc_backend *backend,
                                         const struct tc_format_options *options,
                                         struct tc_error *error);

#endif
