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
#ifndef TCONV_CORE_FORMAT_ALIASES_H
#define TCONV_CORE_FORMAT_ALIASES_H

#include "core/base/error.h"
#include "core/base/text.h"

struct tc_reader;

#define TC_ALIASES_KEY "tconv.aliases"

/* Turns the aliases in a reader's metadata into tensors of its table, behind
 * those it has. Nothing to do for a format that shares by itself. */
bool tc_aliases_restore(struct tc_reader *reader, struct tc_error *error);

/* Whether a key of the metadata may be an alias: a tensor's name, and no key with a meaning. */
bool tc_alias_key(struct tc_text key);
/* The rule where there is no list: names of parameters have dots, other keys seldom. */
bool tc_alias_looks_recorded(struct tc_text key);

#endif
