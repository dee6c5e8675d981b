#include "formats/torch/tree_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/base/limits.h"
#include "core/format/tree.h"
#include "formats/torch/leaf.h"

bool torch_tree_none(struct torch_tree_out *out, const char *why) {
    out->why = why;
    return false;
}

/* ["TAG", …] of values that hold no others: what comes between is up to the caller. */
void torch_tree_begin_tag(struct torch_tree_out *out, const char *tag) {
    tc_json_open_array(&out->json, NULL);
    tc_json_add_string(&out->json, NULL, tag);
}

void torch_tree_add_tagged(struct torch_tree_out *out, const char *tag, struct tc_text text) {
    torch_tree_begin_tag(out, tag);
    tc_json_add_text(&out->json, NULL, text);
    tc_json_close(&out->json);
}

void torch_tree_add_real(struct torch_tree_out *out, double value) {
    struct tc_buffer word = {0};
    uint64_t bits;
    if (isfinite(value)) {
        tc_json_add_real(&out->json, NULL, value);
        return;
    }
    memcpy(&bits, &value, sizeof bits);
    if (isinf(value))
        tc_buffer_add_string(&word, value > 0 ? "inf" : "-inf");
    else if (bits == UINT64_C(0x7ff8000000000000))
        tc_buffer_add_string(&word, "nan");
    else
        tc_buffer_addf(&word, "nan:%016llx", (unsigned long long)bits);
    torch_tree_add_tagged(out, "f", (struct tc_text){word.bytes, word.length});
    out->json.out->failed |= word.failed;
    tc_buffer_release(&word);
}

static void add_base64(struct torch_tree_out *out, const char *tag, struct tc_text bytes) {
    struct tc_buffer text = {0};
    tc_buffer_add_base64(&text, bytes.bytes, bytes.length);
    torch_tree_add_tagged(out, tag, (struct tc_text){text.length ? text.bytes : "", text.length});
    out->json.out->failed |= text.failed;
    tc_buffer_release(&text);
}

/* Bytes that the pickle machine left in the file are read from there. */
bool torch_tree_add_bytes(struct torch_tree_out *out, const struct pickle_node *node) {
    const char *tag = node->array ? "B" : "b";
    if (node->length > TC_TREE_MAX_TEXT)
        return torch_tree_none(out, "it holds too many bytes");
    if (node->text || node->length == 0) {
        add_base64(out, tag, (struct tc_text){node->text, node->length});
        return true;
    }
    char *bytes = malloc(node->length);
    bool ok = bytes ? tc_input_read(out->input, node->offset, bytes, node->length, out->error)
                    : tc_fail_memory(out->error);
    if (ok)
        add_base64(out, tag, (struct tc_text){bytes, node->length});
    free(bytes);
    return ok;
}

static int hex(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The lone surrogate that is escaped at this place; 0: none. */
static uint32_t half_at(struct tc_text text) {
    uint32_t c = 0;
    if (text.length < 6 || memcmp(text.bytes, "\\ud", 3) != 0)
        return 0;
    for (size_t i = 2; i < 6; i++) {
        if (hex(text.bytes[i]) < 0)
            return 0;
        c = c << 4 | (uint32_t)hex(text.bytes[i]);
    }
    return c >= 0xD800 ? c : 0;
}

/* Text with lone surrogates, which the pickle machine has escaped. Where the text also has such
 * escapes of its own, the two can't be told apart. */
static bool add_halves(struct torch_tree_out *out, const struct pickle_node *node) {
    struct tc_buffer bytes = {0};
    uint64_t found = 0;
    for (size_t at = 0; at < node->length;) {
        uint32_t c = half_at((struct tc_text){node->text + at, node->length - at});
        char half[3] = {(char)0xED, (char)(0x80 | (c >> 6 & 0x3F)), (char)(0x80 | (c & 0x3F))};
        tc_buffer_add(&bytes, c ? half : node->text + at, c ? 3 : 1);
        found += c != 0;
        at += c ? 6 : 1;
    }
    bool ok = tc_buffer_ok(&bytes, out->error);
    if (ok && found == node->count)
        add_base64(out, "x", (struct tc_text){bytes.bytes, bytes.length});
    tc_buffer_release(&bytes);
    return ok &&
           (found == node->count ||
            torch_tree_none(out, "it has text with half a character that is not known for sure"));
}

bool torch_tree_add_text(struct torch_tree_out *out, const struct pickle_node *node) {
    if (node->value)
        return torch_tree_none(out, "it has a path, or text of a class of its own");
    if (node->surrogates)
        return add_halves(out, node);
    tc_json_add_text(&out->json, NULL, pickle_text(node));
    return true;
}

double torch_tree_number(const struct pickle_node *node) {
    return pickle_is(node, PICKLE_FLOAT) ? node->real
           : pickle_is(node, PICKLE_INT) ? (double)node->integer
                                         : 0;
}

/* A dtype, device or layout. What the tree has no word for it can't hold. */
bool torch_tree_add_word(struct torch_tree_out *out, const char *tag, struct tc_text word,
                         bool (*known)(struct tc_text)) {
    if (tc_text_starts(word, TC_TEXT("torch."))) {
        word.bytes += 6;
        word.length -= 6;
    }
    if (!known(word))
        return torch_tree_none(out, "it has a dtype, a device or a layout that is not known");
    torch_tree_add_tagged(out, tag, word);
    return true;
}

bool torch_tree_add_device(struct torch_tree_out *out, const struct pickle_node *node) {
    struct tc_buffer word = {0};
    torch_leaf_word(&word, node);
    bool ok =
        tc_buffer_ok(&word, out->error) &&
        torch_tree_add_word(out, "dv", (struct tc_text){word.length ? word.bytes : "", word.length},
                            tc_tree_is_device);
    tc_buffer_release(&word);
    return ok;
}

bool torch_tree_add_layout(struct torch_tree_out *out, const struct pickle_node *node) {
    const struct pickle_node *word = pickle_item(node->arguments, 0);
    return pickle_is(word, PICKLE_TEXT)
               ? torch_tree_add_word(out, "ly", pickle_text(word), tc_tree_is_layout)
               : torch_tree_none(out, "it has a layout that is none");
}

void torch_tree_add_complex(struct torch_tree_out *out, const struct pickle_node *node) {
    torch_tree_begin_tag(out, "c");
    torch_tree_add_real(out, torch_tree_number(pickle_item(node->arguments, 0)));
    torch_tree_add_real(out, torch_tree_number(pickle_item(node->arguments, 1)));
    tc_json_close(&out->json);
}

bool torch_tree_add_size(struct torch_tree_out *out, const struct pickle_node *node) {
    torch_tree_begin_tag(out, "z");
    for (size_t i = 0; i < node->count; i++) {
        if (node->items[i]->kind != PICKLE_INT || node->items[i]->integer < 0 ||
            node->count > TC_MAX_RANK)
            return torch_tree_none(out, "it has a Size that none can be");
        tc_json_addf(&out->json, NULL, "%lld", (long long)node->items[i]->integer);
    }
    tc_json_close(&out->json);
    return true;
}
