/*
 * The JSON entry {"dtype", "shape", "data_offsets"[, "metadata"]} that
 * safetensors and deathtensors have in common.
 */
#ifndef TCONV_FORMATS_TENSOR_ENTRY_H
#define TCONV_FORMATS_TENSOR_ENTRY_H

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/tensor/dtype.h"

/* Reads one entry and adds its tensor to the reader's table, at the offset that
 * the entry has, relative to the start of the data. data_offsets must span as
 * many bytes as shape and dtype need. Only dtypes of the set are accepted; with
 * with_metadata the entry may have metadata of its own. */
bool tensor_entry_read(struct tc_json *json, struct tc_reader *reader, struct tc_text name,
                       tc_dtype_set dtypes, bool with_metadata);

#endif
