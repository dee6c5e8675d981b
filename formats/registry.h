/* The list of formats: registry.def, one line each. */
#ifndef TCONV_FORMATS_REGISTRY_H
#define TCONV_FORMATS_REGISTRY_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/format/reader.h"
#include "core/io/input.h"

#define TC_FORMAT(name) extern const struct tc_backend tc_backend_##name;
#include "formats/registry.def"
#undef TC_FORMAT

/* NULL at the end. */
extern const struct tc_backend *const tc_registry[];

/* By its own name, or NULL. */
const struct tc_backend *tc_registry_named(const char *name);
/* By any usual name of a format or its library ("torch", "numpy", "dt"), in any
 * case, or NULL. Where a name stands for several formats (numpy: npy and npz),
 * the path's extension decides, if it is that of one of them. */
const struct tc_backend *tc_registry_called(const char *name, const char *path);
/* After an error about a name that is none: the nearest that is one. */
bool tc_registry_hint(const char *name, struct tc_error *error, const char *otherwise);
/* By a path's extension, or NULL; compound extensions before simple ones. */
const struct tc_backend *tc_registry_for_path(const char *path);
/* By content. Where nothing matches: the extension's format if it has one (its
 * open then says what is wrong), else NULL with an error that says what the
 * file looks like. */
const struct tc_backend *tc_registry_probe(struct tc_input *input, struct tc_error *error);
/* Fails with what a file looks like that is none of ours. */
bool tc_registry_explain(struct tc_input *input, struct tc_error *error);
/* Whether the path is that of an index of shards; then also the path that names
 * the format of the shards: model.safetensors of model.safetensors.index.json. */
bool tc_registry_indexed_path(const char *path, char *indexed, size_t size);
/* The format of a single tensor where nothing names one: of the files of a
 * folder, for instance. */
const struct tc_backend *tc_registry_for_one(void);
/* The options that formats declare for that use, each once: the first, the
 * second, …, NULL behind the last. */
const struct tc_format_option *tc_registry_option(enum tc_option_use use, size_t position);
/* Whether it is an index of shards, not a file of tensors. */
bool tc_registry_is_index(const struct tc_backend *backend);

/* Opens a path: probes (or takes `backend`) and restores a sidecar's metadata. */
struct tc_reader *tc_registry_open(const char *path, const struct tc_backend *backend,
                                   const struct tc_format_options *options, struct tc_error *error);
/* The same of an input, which it takes over, also on failure. */
struct tc_reader *tc_registry_open_input(struct tc_input *input, const struct tc_backend *backend,
                                         const struct tc_format_options *options,
                                         struct tc_error *error);

#endif
