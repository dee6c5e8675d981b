/*
 * What DCP's writer for Hugging Face leaves where it saves in pieces (save_distributed): files
 * shard-RANK-STEM-N-of-M.safetensors without an index, each with pieces of tensors. Where a piece
 * belongs is in the file's metadata; a tensor's size is in none of them, and follows from the
 * piece that lies furthest out. The reader's input is a list of the files' names
 * (tc_input.is_list).
 */
#ifndef TCONV_FORMATS_DCP_HF_H
#define TCONV_FORMATS_DCP_HF_H

#include "core/format/backend.h"

/* Keys of the metadata of a file by this writer, which describe the file and not the model. */
#define DCP_HF_SHARDING "DCP_SHARDING_INFO"
#define DCP_HF_VERSION "DCP_VERSION"

extern const struct tc_backend dcp_hf_backend;

#endif
