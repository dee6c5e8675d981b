/* Writing the nested object of a checkpoint tree (core/format/tree.h) as torch.save would. */
#ifndef TCONV_FORMATS_TORCH_WRITE_TREE_H
#define TCONV_FORMATS_TORCH_WRITE_TREE_H

#include "core/base/error.h"
#include "core/format/backend.h"
#include "core/format/source.h"
#include "core/format/tree.h"
#include "core/plan/plan.h"
#include "formats/torch/pickler.h"
#include "formats/zip/write.h"

/* Says of each item of the file how plan->tree has it written: what shares a storage, what stands
 * in the pickle. *places is, by position in the input's table, 1 + the item. */
bool torch_write_tree_slots(struct tc_writer *writer, struct torch_slot *slots, size_t **places,
                            struct tc_error *error);
/* Writes the whole object. */
bool torch_write_tree(struct torch_pickler *pickler, const size_t *places, struct tc_error *error);
/* Writes an item's elements into the member that is begun, in the order of its strides. */
bool torch_write_strided(struct zip_writer *zip, const struct tc_item *item,
                         const struct tc_tree_tensor *strided, struct tc_source *source,
                         struct tc_error *error);

#endif
