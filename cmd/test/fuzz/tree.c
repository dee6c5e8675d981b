/*
 * The fuzz target of checkpoint trees. The input is a tree's text. Where it is one, its nodes must
 * make a whole, and it is matched with tensors of the names that it has.
 */
#include "core/format/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/test/fuzz/fuzz.h"
#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/dtype.h"
#include "core/tensor/table.h"

/* Each node ends behind its items, and they fill it. */
static void check_nodes(const struct tc_tree *tree) {
    FUZZ_CHECK(tree->count && tree->nodes[0].end == tree->count, "the root does not hold all");
    for (size_t i = 0; i < tree->count; i++) {
        const struct tc_tree_node *node = &tree->nodes[i];
        uint64_t items = (uint64_t)node->count + node->attributes;
        size_t at = i + 1;
        for (; items && at < node->end; items--)
            at = tree->nodes[at].end;
        FUZZ_CHECK(items == 0 && at == node->end, "node %zu does not hold its items", i);
        if (node->kind >= TC_TREE_TENSOR)
            FUZZ_CHECK(node->tensor && node->tensor->path.bytes, "a tensor without a path");
    }
}

/* Adds a tensor of the name and ending; a name that is there already is none to add. */
static void add(struct tc_table *table, struct tc_text name, const char *ending,
                enum tc_dtype dtype) {
    static const uint64_t shape[] = {2};
    struct tc_error ignored = {0};
    struct tc_buffer joined = {0};
    tc_buffer_add_text(&joined, name);
    tc_buffer_add_string(&joined, ending);
    char *copy = tc_buffer_ok(&joined, &ignored)
                     ? tc_arena_copy(table->arena, joined.bytes, joined.length, &ignored)
                     : NULL;
    struct tc_tensor tensor = {.name = {copy, joined.length},
                               .dtype = (uint8_t)dtype,
                               .shape = shape,
                               .rank = 1,
                               .nbytes = 2 * tc_dtype_bits(dtype) / 8};
    if (copy)
        tc_table_add(table, &tensor, &ignored);
    tc_buffer_release(&joined);
}

static void add_node(struct tc_table *table, const struct tc_tree_node *node) {
    const struct tc_tree_tensor *tensor = node->tensor;
    if (node->kind == TC_TREE_SPARSE) {
        for (unsigned i = 0; i < tensor->layout->parts; i++) {
            char ending[32];
            snprintf(ending, sizeof ending, ".%s", tensor->layout->roles[i]);
            add(table, tensor->name, ending, TC_I64);
        }
        return;
    }
    add(table, tensor->name, "", node->kind == TC_TREE_QUANTISED ? TC_I8 : TC_F32);
    if (node->kind == TC_TREE_QUANTISED && tensor->channels) {
        add(table, tensor->name, ".scales", TC_F64);
        add(table, tensor->name, ".zero_points", TC_I64);
    }
}

void fuzz_tree(const unsigned char *bytes, size_t length) {
    struct tc_error error = {0};
    struct tc_arena arena;
    struct tc_tree tree;
    struct tc_table table;
    char *copy = malloc(length + 1);
    FUZZ_CHECK(copy, "no memory");
    memcpy(copy, bytes, length);
    tc_arena_init(&arena, fuzz_options.limits.memory);
    tc_table_init(&table, &arena, 100000);
    bool parses = tc_tree_parse(&tree, (struct tc_text){copy, length}, &arena, &error);
    fuzz_check_outcome(parses, &error);
    if (parses) {
        check_nodes(&tree);
        for (size_t i = 0; i < tree.count; i++)
            if (tree.nodes[i].kind >= TC_TREE_TENSOR)
                add_node(&table, &tree.nodes[i]);
        bool matches = tc_tree_match(&tree, &table, NULL, &arena, &error);
        fuzz_check_outcome(matches, &error);
        for (size_t i = 0; matches && i < tree.count; i++)
            if (tree.nodes[i].kind >= TC_TREE_TENSOR)
                FUZZ_CHECK(tree.nodes[i].tensor->parts, "a tensor that is none of the table");
    }
    tc_table_release(&table);
    tc_arena_release(&arena);
    free(copy);
}
