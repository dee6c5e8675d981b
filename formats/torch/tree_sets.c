/* The order of a set's members in a tree: that of what Python's repr makes of them. */
#include <stdlib.h>

#include "core/base/arena.h"
#include "core/base/digits.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/text.h"
#include "formats/pickle/pickle.h"
#include "formats/torch/leaf.h"
#include "formats/torch/tree.h"

/* Tuples in tuples that are looked into. What is deeper does not count for the order. */
#define MAX_DEPTH 8u

struct member {
    struct pickle_node *node;
    struct tc_text text;
};

static void add_quoted(struct tc_buffer *text, const struct pickle_node *node) {
    bool single = false;
    bool twin = false;
    for (size_t i = 0; i < node->length; i++) {
        single |= node->text[i] == '\'';
        twin |= node->text[i] == '"';
    }
    char quote = single && !twin ? '"' : '\'';
    tc_buffer_add(text, &quote, 1);
    for (size_t i = 0; i < node->length; i++) {
        unsigned char c = (unsigned char)node->text[i];
        if (c == (unsigned char)quote || c == '\\')
            tc_buffer_addf(text, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            tc_buffer_add_string(text, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (c < 0x20 || c == 0x7F || (node->kind == PICKLE_BYTES && c > 0x7F))
            tc_buffer_addf(text, "\\x%02x", c);
        else
            tc_buffer_add(text, node->text + i, 1);
    }
    tc_buffer_add(text, &quote, 1);
}

static void add_plain(struct tc_buffer *text, const struct pickle_node *node) {
    struct tc_json_writer json = {.out = text, .escape = TC_ESCAPE_SERDE};
    if (node->kind == PICKLE_NONE)
        tc_buffer_add_string(text, "None");
    else if (node->kind == PICKLE_BOOL)
        tc_buffer_add_string(text, node->value ? "True" : "False");
    else if (node->kind == PICKLE_FLOAT)
        tc_buffer_add_repr(text, node->real, TC_PRECISION_F64);
    else if (node->kind == PICKLE_TEXT || (node->kind == PICKLE_BYTES && node->text)) {
        tc_buffer_add_string(text, node->kind == PICKLE_BYTES ? "b" : "");
        add_quoted(text, node);
    } else if (node->kind == PICKLE_INT || node->kind == PICKLE_LONG)
        torch_leaf_json(&json, node);
    else if (torch_leaf_is_scalar(node) && torch_leaf_is_word(node))
        torch_leaf_word(text, node);
}

/* Appends what repr gives, without recursion: `levels` has the tuples that are open. */
static void add_repr(struct tc_buffer *text, const struct pickle_node *node) {
    struct {
        const struct pickle_node *tuple;
        uint32_t next;
    } levels[MAX_DEPTH];
    unsigned depth = 0;
    for (;;) {
        if (node && node->kind == PICKLE_TUPLE && depth < MAX_DEPTH) {
            levels[depth].tuple = node;
            levels[depth++].next = 0;
            tc_buffer_add_string(text, "(");
        } else if (node)
            add_plain(text, node);
        if (depth == 0)
            return;
        const struct pickle_node *tuple = levels[depth - 1].tuple;
        uint32_t next = levels[depth - 1].next++;
        if (next < tuple->count) {
            tc_buffer_add_string(text, next ? ", " : "");
            node = tuple->items[next];
            continue;
        }
        tc_buffer_add_string(text, tuple->count == 1 ? ",)" : ")");
        depth--;
        node = NULL;
    }
}

static int compare(const void *a, const void *b) {
    const struct member *x = a;
    const struct member *y = b;
    return tc_text_compare(x->text, y->text);
}

struct pickle_node **torch_tree_sorted(const struct pickle_node *set, struct tc_arena *arena,
                                       struct tc_error *error) {
    struct member *members = tc_arena_array(arena, set->count, sizeof *members, error);
    struct pickle_node **sorted =
        tc_arena_array(arena, (uint64_t)set->count + 1, sizeof(struct pickle_node *), error);
    if (!members || !sorted)
        return NULL;
    for (size_t i = 0; i < set->count; i++) {
        struct tc_buffer text = {0};
        add_repr(&text, set->items[i]);
        char *copy = tc_buffer_ok(&text, error)
                         ? tc_arena_copy(arena, text.length ? text.bytes : "", text.length, error)
                         : NULL;
        members[i] = (struct member){set->items[i], {copy, text.length}};
        tc_buffer_release(&text);
        if (!copy)
            return NULL;
    }
    qsort(members, set->count, sizeof *members, compare);
    for (size_t i = 0; i < set->count; i++)
        sorted[i] = members[i].node;
    return sorted;
}
