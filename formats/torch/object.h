/*
 * A file of torch's of which another backend takes what it wants, such as an item of a distributed
 * checkpoint:
 *
 *     torch_object_open → torch_object_root, torch_object_add … → torch_object_finish
 *     → tc_reader_read, torch_object_raw … → tc_reader_close
 *
 * Opening runs the pickle as data and adds nothing to the table.
 */
#ifndef TCONV_FORMATS_TORCH_OBJECT_H
#define TCONV_FORMATS_TORCH_OBJECT_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/table.h"
#include "formats/pickle/pickle.h"

/* Takes the input over, also on failure. The options must outlive the reader. */
struct tc_reader *torch_object_open(struct tc_input *input, const struct tc_format_options *options,
                                    struct tc_error *error);
/* What the pickle built. */
struct pickle_node *torch_object_root(const struct tc_reader *reader);
/* Adds the tensor that a value is; fails with TC_INVALID where it is no dense one. The name must
 * outlive the reader. */
bool torch_object_add(struct tc_reader *reader, struct tc_text name, struct pickle_node *node,
                      struct tc_error *error);
/* Adds everything that a value holds: tensors, and as metadata what is none. */
bool torch_object_walk(struct tc_reader *reader, struct tc_text name, struct pickle_node *node,
                       struct tc_error *error);
bool torch_object_finish(struct tc_reader *reader, struct tc_error *error);

/* Where a tensor's bytes lie raw in the whole file of which the input may be a part, and the
 * CRC-32 of the stored bytes around them. */
struct torch_raw {
    uint64_t data;   /* where the tensor's bytes begin, */
    uint64_t start;  /* and those that the CRC is of, */
    uint64_t length; /* with their number */
    uint32_t crc;
};
/* False where they do not lie raw. */
bool torch_object_raw(struct tc_reader *reader, const struct tc_tensor *tensor,
                      struct torch_raw *raw);

#endif
