/*
 * Opens the model of a folder, here or on the Hub, as one reader, whether it is one
 * file, an index with its shards, shards without an index, or a file a tensor.
 */
#ifndef TCONV_FORMATS_MODEL_OPEN_H
#define TCONV_FORMATS_MODEL_OPEN_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/listing.h"
#include "formats/model_folder.h"

/* Opens one of the models that model_folder_find found in the folder `path`; as the
 * format `format`, or where that is NULL as the one that its content shows. The
 * reader's input is the model's file or index; where there is neither, it is a list
 * of the files that is no file itself (tc_input.is_list), and has the folder's path. */
struct tc_reader *model_open(const char *path, const struct model *model,
                             const struct tc_backend *format,
                             const struct tc_format_options *options, struct tc_error *error);
/* Finds the models of a folder, on the file system or on the Hub: lists it, and looks at the first
 * bytes of files where names do not decide. Both results are to be released, also on failure. */
bool model_find(const char *path, const struct tc_backend *format, const char *variant,
                const struct tc_format_options *options, struct tc_listing *listing,
                struct model_folder *folder, struct tc_error *error);
/* Adds what a folder holds, here or on the Hub, and sorts it. */
bool model_list(struct tc_listing *listing, const char *path,
                const struct tc_format_options *options, struct tc_error *error);
/* Whether the path is a folder's, or the address of a repository or of a folder in one. */
bool model_is_folder(const char *path, const struct tc_format_options *options);

#endif
