/* The values of a checkpoint's tree that hold no others, as JSON. */
#ifndef TCONV_FORMATS_TORCH_TREE_VALUES_H
#define TCONV_FORMATS_TORCH_TREE_VALUES_H

#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "core/io/input.h"
#include "formats/pickle/pickle.h"

/* Where a tree is written to. What returns false has filled in `error`, or `why`: no tree can hold
 * this. */
struct torch_tree_out {
    struct tc_json_writer json;
    struct tc_input *input; /* of bytes that the pickle machine left in the file */
    struct tc_error *error;
    const char *why;
};

/* Gives up: no tree can hold this. Returns false. */
bool torch_tree_none(struct torch_tree_out *out, const char *why);
/* The value of a number; 0 where it is none. */
double torch_tree_number(const struct pickle_node *node);
/* ["TAG", …] of values that hold no others: what comes between is up to the caller. */
void torch_tree_begin_tag(struct torch_tree_out *out, const char *tag);
void torch_tree_add_tagged(struct torch_tree_out *out, const char *tag, struct tc_text text);
void torch_tree_add_real(struct torch_tree_out *out, double value);
bool torch_tree_add_bytes(struct torch_tree_out *out, const struct pickle_node *node);
bool torch_tree_add_text(struct torch_tree_out *out, const struct pickle_node *node);
/* A dtype, device or layout. What the tree has no word for it can't hold. */
bool torch_tree_add_word(struct torch_tree_out *out, const char *tag, struct tc_text word,
                         bool (*known)(struct tc_text));
bool torch_tree_add_device(struct torch_tree_out *out, const struct pickle_node *node);
bool torch_tree_add_layout(struct torch_tree_out *out, const struct pickle_node *node);
void torch_tree_add_complex(struct torch_tree_out *out, const struct pickle_node *node);
bool torch_tree_add_size(struct torch_tree_out *out, const struct pickle_node *node);

#endif
