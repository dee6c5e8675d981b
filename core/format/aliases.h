/*
 * Aliases: names of tensors that share the data of another tensor ("ties") in a
 * format that cannot share. Readers set tc_tensor.tie for tensors that share their
 * data; a plan lets them share in the output where the target can, and otherwise
 * writes a copy or, with --tied=keep, records the name of the other as an alias.
 *
 * An alias is a pair of the file's metadata, {alias: kept}, as Hugging Face
 * writes it next to `"format": "pt"`. Nothing marks such a pair, so it is
 * recognised by a rule: its value is the name of a tensor in the file; its key is
 * not, and has a dot, as names of parameters have. Where this rule would give the
 * wrong aliases for an output, a JSON list under TC_ALIASES_KEY says which keys
 * are aliases.
 */
#ifndef TCONV_CORE_FORMAT_ALIASES_H
#define TCONV_CORE_FORMAT_ALIASES_H

#include "core/base/error.h"
#include "core/base/text.h"

struct tc_reader;

#define TC_ALIASES_KEY "tconv.aliases"

/* Turns the aliases in a reader's metadata into tensors at the end of its table.
 * Does nothing for a format that can share data itself. */
bool tc_aliases_restore(struct tc_reader *reader, struct tc_error *error);

/* Whether a metadata key may be an alias: it could be a tensor's name, and is no key with a
 * meaning of its own. */
bool tc_alias_key(struct tc_text key);
/* Whether a key is taken for an alias where there is no list: names of parameters have dots, other
 * keys seldom do. */
bool tc_alias_looks_recorded(struct tc_text key);

#endif
