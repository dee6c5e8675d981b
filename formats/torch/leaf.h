/*
 * Plain values of a pickle as text for metadata: words (text, names of dtypes) as
 * they are, anything else as JSON. Numbers that are not finite are the strings
 * "NaN" and so on.
 */
#ifndef TCONV_FORMATS_TORCH_LEAF_H
#define TCONV_FORMATS_TORCH_LEAF_H

#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"

/* Whether it is a value without items. */
bool torch_leaf_is_scalar(const struct pickle_node *node);
/* Whether such a value is a word rather than a number. */
bool torch_leaf_is_word(const struct pickle_node *node);

void torch_leaf_word(struct tc_buffer *text, const struct pickle_node *node);
/* Write the node as the next value of the JSON text. The second writes an integer or
 * a float, and null for anything else. */
void torch_leaf_json(struct tc_json_writer *json, const struct pickle_node *node);
void torch_leaf_number(struct tc_json_writer *json, const struct pickle_node *node);

#endif
