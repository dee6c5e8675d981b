/* Plain values of a checkpoint, as metadata has them. */

#include "formats/torch/leaf.h"

#include <math.h>
#include <string.h>

/* Bytes that may be metadata; the machine keeps no longer ones in memory. */
#define MAX_BYTES 4096u

/* A whole number shows that it is a float. */
static void add_real(struct tc_buffer *text, double value) {
    size_t start = text->length;
    tc_buffer_add_shortest(text, value);
    if (isfinite(value) && !text->failed &&
        !memchr(text->bytes + start, '.', text->length - start) &&
        !memchr(text->bytes + start, 'e', text->length - start))
        tc_buffer_add_string(text, ".0");
}

/* Names that are values: dtypes, schemes. Any other is a class or a function. */
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

void torch_leaf_number(struct tc_buffer *text, const struct pickle_node *node) {
    if (pickle_is(node, PICKLE_INT))
        tc_buffer_addf(text, "%lld", (long long)node->integer);
    else if (pickle_is(node, PICKLE_FLOAT))
        add_real(text, node->real);
    else
        tc_buffer_add_string(text, "null");
}

/* Bytes are text of the characters U+0000 to U+00FF. */
static void add_bytes(struct tc_buffer *text, const struct pickle_node *node) {
    tc_buffer_add_string(text, "\"");
    for (size_t i = 0; i < node->length; i++)
        tc_buffer_addf(text, "\\u%04x", (unsigned char)node->text[i]);
    tc_buffer_add_string(text, "\"");
}

/* What is a word rather than a number: as it stands. */
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

void torch_leaf_json(struct tc_buffer *text, const struct pickle_node *node) {
    if (torch_leaf_is_word(node)) {
        struct tc_buffer word = {0};
        torch_leaf_word(&word, node);
        tc_buffer_add_json(text, (struct tc_text){word.bytes, word.length}, TC_ESCAPE_SERDE);
        text->failed |= word.failed;
        tc_buffer_release(&word);
    } else if (node->kind == PICKLE_BOOL) {
        tc_buffer_add_string(text, node->value ? "true" : "false");
    } else if (node->kind == PICKLE_LONG) {
        tc_buffer_add_text(text, pickle_text(node));
    } else if (node->kind == PICKLE_BYTES) {
        add_bytes(text, node);
    } else if (node->kind == PICKLE_CALL) {
        tc_buffer_add_string(text, "[");
        torch_leaf_number(text, pickle_item(node->arguments, 0));
        tc_buffer_add_string(text, ",");
        torch_leaf_number(text, pickle_item(node->arguments, 1));
        tc_buffer_add_string(text, "]");
    } else {
        torch_leaf_number(text, node);
    }
}
