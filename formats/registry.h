/* The list of formats: registry.def, one line each. */
#ifndef TCONV_FORMATS_REGISTRY_H
#define TCONV_FORMATS_REGISTRY_H

#include "core/base/error.h"
#include "core/format/backend.h"
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
