/*
 * Ties: tensors that share their data. Readers set tc_tensor.tie; the plan
 * keeps a tie where the target can share, and else writes a copy, or, where
 * the user wants one tensor kept, records the other's name.
 *
 * That record is a pair of the file's metadata, {alias: kept}, as Hugging
 * Face writes it beside `"format": "pt"`. Nothing marks such a pair, so it is
 * told by what it says: its value is the name of a tensor in the file; its key
 * is not, and has a dot, as parameters' names have.
 * Where this rule would be wrong about what is written, either way, a JSON list
 * under TC_ALIASES_KEY says which keys are aliases.
 */
#ifndef TCONV_CORE_TIES_H
#define TCONV_CORE_TIES_H

#include "core/plan.h"

#define TC_ALIASES_KEY "tconv.aliases"

/* Turns the aliases in a reader's metadata into tensors of its table, behind
 * those it has. Nothing to do for a format that shares by itself. */
bool tc_ties_restore(struct tc_reader *reader, struct tc_error *error);

/* Decides about each item that shares its data with one before it; items are
 * in source order, and the plan's metadata is collected. */
bool tc_ties_plan(struct tc_plan *plan, struct tc_error *error);
/* Once the parts are known and the items are in their last order: no sharing
 * across files. */
bool tc_ties_split(struct tc_plan *plan, struct tc_error *error);
/* The item whose data a tied one shares, in the same part; NULL where it has
 * data of its own. */
const struct tc_item *tc_ties_kept(const struct tc_plan *plan, const struct tc_item *item);

#endif
