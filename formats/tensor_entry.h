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

/* Reads one entry and adds it to the table: offset is its start in the data,
 * nbytes what shape and dtype make, which the offsets must agree with. */
bool tensor_entry_read(struct tc_json *json, struct tc_reader *reader, struct tc_text name,
                       tc_dtype_set dtypes, bool with_metadata);

#endif
