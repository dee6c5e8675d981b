/* The metadata of what a plan writes, and where it goes: into the file or beside it. */
#ifndef TCONV_CORE_PLAN_KEPT_METADATA_H
#define TCONV_CORE_PLAN_KEPT_METADATA_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"

/* Collects it from the readers and the user. */
bool tc_plan_metadata(struct tc_plan *plan, const char *output, struct tc_error *error);
/* What the target has no place for goes beside it. */
bool tc_plan_sidecar(struct tc_plan *plan, struct tc_error *error);
/* An output file's own metadata, in the form the target holds it. */
bool tc_plan_file_metadata(struct tc_plan *plan, struct tc_output_file *file,
                           struct tc_error *error);

/* Per-tensor metadata as the value of TC_TENSOR_METADATA_KEY. */
bool tc_tensor_metadata_encode(const struct tc_plan *plan, const struct tc_output_file *file,
                               struct tc_buffer *text, struct tc_error *error);
/* The sidecar FILE.tconv.json: all metadata of a format that holds none, and
 * where it numbers its tensors (`names`) what they are called. */
bool tc_sidecar_encode(const struct tc_metadata *metadata, const struct tc_item *items,
                       size_t count, bool names, struct tc_buffer *text, struct tc_error *error);

#endif
