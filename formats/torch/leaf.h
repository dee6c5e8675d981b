/*
 * Plain values of a pickle as text: a word stands as it is, anything else as
 * JSON. Numbers that are not finite are the strings "NaN" and so on.
 */
#ifndef TCONV_FORMATS_TORCH_LEAF_H
#define TCONV_FORMATS_TORCH_LEAF_H

#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"

/* A value that has no parts. */
bool torch_leaf_is_scalar(const struct pickle_node *node);
/* Of these, one that is a word rather than a number. */
bool torch_leaf_is_word(const struct pickle_node *node);

void torch_leaf_word(struct tc_buffer *text, const struct pickle_node *node);
/* As the next value, and so a number: an integer or a float; null for anything
 * else. */
void torch_leaf_json(struct tc_json_writer *json, const struct pickle_node *node);
void torch_leaf_number(struct tc_json_writer *json, const struct pickle_node *node);

#endif
