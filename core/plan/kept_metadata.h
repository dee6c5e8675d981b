/*
 * The metadata that a plan writes, and where: into the output files, or into a sidecar, a second
 * file OUT.tconv.json next to an output whose format holds no metadata.
 */
#ifndef TCONV_CORE_PLAN_KEPT_METADATA_H
#define TCONV_CORE_PLAN_KEPT_METADATA_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"

/* Collects it from the readers and the user, and decides about tensors that share
 * their data (core/plan/ties.h). */
bool tc_plan_metadata(struct tc_plan *plan, const char *output, struct tc_error *error);
/* Lets the plan write a sidecar; fails for a folder or a pipe, which can't have one. */
bool tc_plan_sidecar(struct tc_plan *plan, struct tc_error *error);
/* Sets the metadata of an output file, in the form in which the target holds it. */
bool tc_plan_file_metadata(struct tc_plan *plan, struct tc_output_file *file,
                           struct tc_error *error);

/* Writes the items' metadata as the value of TC_TENSOR_METADATA_KEY; no text where
 * they have none. */
bool tc_tensor_metadata_encode(const struct tc_item *items, size_t count, struct tc_buffer *text,
                               struct tc_error *error);
/* Writes the text of a sidecar: all metadata and, with `names`, the names of the
 * tensors in a format that only numbers them. */
bool tc_sidecar_encode(const struct tc_metadata *metadata, const struct tc_item *items,
                       size_t count, bool names, struct tc_buffer *text, struct tc_error *error);

/* Writes the text of TC_NAMES_FILE. */
bool tc_names_encode(const struct tc_plan *plan, struct tc_buffer *text, struct tc_error *error);

#endif
