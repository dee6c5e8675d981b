/* Plain values of a checkpoint as text for metadata. */

#include "formats/torch/leaf.h"

#include <math.h>
#include <string.h>

/* The most bytes that become metadata; the pickle machine keeps longer ones in the
 * file, not in memory. */
#define MAX_BYTES 4096u

/* Whether a global is a constant: a dtype or a quantization scheme. Any other is a
 * class or a function. */
static bool is_constant(const struct pickle_node *node) {
    return node->kind == PICKLE_GLOBAL &&
           (node->global == PICKLE_DTYPE || node->global == PICKLE_QSCHEME);
}

bool torch_leaf_is_scalar(const struct pickle_node *node) {
    return node->kind <= PICKLE_TEXT || is_constant(node) ||
           (node->kind == PICKLE_BYTES && node->length <= MAX_BYTES) ||
           pickle_calls(node, PICKLE_COMPLEX) || pickle_calls(node, PICKLE_DEVICE) ||
           pickle_calls(node, PICKLE_LAYOUT);
}

void torch_leaf_number(struct tc_json_writer *json, const struct pickle_node *node) {
    if (pickle_is(node, PICKLE_INT))
        tc_json_addf(json, NULL, "%lld", (long long)node->integer);
    else if (pickle_is(node, PICKLE_FLOAT))
        tc_json_add_real(json, NULL, node->real);
    else
        tc_json_add_null(json, NULL);
}

void torch_leaf_word(struct tc_buffer *text, const struct pickle_node *node) {
    if (node->kind == PICKLE_TEXT || node->kind == PICKLE_GLOBAL) {
        tc_buffer_add_text(text, pickle_text(node));
        return;
    }
    const struct pickle_node *word = pickle_item(node->arguments, 0);
    const struct pickle_node *index = pickle_item(node->arguments, 1);
    if (pickle_is(word, PICKLE_TEXT))
        tc_buffer_add_text(text, pickle_text(word));
    if (pickle_is(index, PICKLE_INT))
        tc_buffer_addf(text, ":%lld", (long long)index->integer);
}

bool torch_leaf_is_word(const struct pickle_node *node) {
    return node->kind == PICKLE_TEXT || node->kind == PICKLE_GLOBAL ||
           (node->kind == PICKLE_CALL && !pickle_calls(node, PICKLE_COMPLEX));
}

void torch_leaf_json(struct tc_json_writer *json, const struct pickle_node *node) {
    if (torch_leaf_is_word(node)) {
        struct tc_buffer word = {0};
        torch_leaf_word(&word, node);
        tc_json_add_text(json, NULL, (struct tc_text){word.bytes, word.length});
        json->out->failed |= word.failed;
        tc_buffer_release(&word);
    } else if (node->kind == PICKLE_BOOL) {
        tc_json_add_boolean(json, NULL, node->value);
    } else if (node->kind == PICKLE_LONG) {
        tc_json_add_raw(json, NULL, pickle_text(node));
    } else if (node->kind == PICKLE_BYTES) {
        tc_json_add_bytes(json, NULL, (struct tc_text){node->text, node->length});
    } else if (node->kind == PICKLE_CALL) {
        tc_json_open_array(json, NULL);
        torch_leaf_number(json, pickle_item(node->arguments, 0));
        torch_leaf_number(json, pickle_item(node->arguments, 1));
        tc_json_close(json);
    } else {
        torch_leaf_number(json, node);
    }
}
