/*
 * The values of a checkpoint tree as metadata: what reading the nested object gives, under the same
 * names. A list of plain values is one JSON array, and an empty dict {}.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json_writer.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/tree.h"
#include "core/plan/nesting.h"
#include "core/plan/plan.h"
#include "core/tensor/metadata.h"
#include "core/tensor/select.h"
#include "core/tensor/table.h"

/* The most bytes that become metadata when a checkpoint is read. */
#define MAX_BYTES 4096u

/* A container whose items are looked at. */
struct level {
    size_t path; /* how long the path is up to and including its name */
    size_t next; /* node */
    uint32_t left;
    uint32_t index;
    bool dict;
    bool named;
};

struct leaves {
    const struct tc_tree *tree;
    struct tc_arena *arena;
    struct tc_error *error;
    struct tc_buffer path;
    struct tc_metadata found;
    struct level levels[TC_TREE_MAX_DEPTH + 8];
    size_t depth;
};

static bool is_plain(const struct tc_tree_node *node) {
    return node->kind < TC_TREE_SIZE &&
           ((node->kind != TC_TREE_BYTES && node->kind != TC_TREE_BYTEARRAY) ||
            node->length <= MAX_BYTES);
}

static bool is_dict(const struct tc_tree_node *node) {
    return node->kind >= TC_TREE_DICT && node->kind <= TC_TREE_DEFAULT_DICT;
}

/* Text as the pickle machine has it: a lone surrogate is escaped. */
static void add_halves(struct tc_buffer *text, struct tc_text halves) {
    for (size_t at = 0; at < halves.length;) {
        const unsigned char *bytes = (const unsigned char *)halves.bytes + at;
        uint32_t c;
        size_t length = tc_utf8_length(halves.bytes + at, halves.length - at, &c);
        if (length)
            tc_buffer_add(text, halves.bytes + at, length);
        else
            tc_buffer_addf(text, "\\u%04x", 0xD000u | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu));
        at += length ? length : 3;
    }
}

static bool is_word(const struct tc_tree_node *node) {
    return node->kind == TC_TREE_TEXT || node->kind == TC_TREE_HALVES ||
           (node->kind >= TC_TREE_DTYPE && node->kind <= TC_TREE_LAYOUT);
}

static void add_word(struct tc_buffer *text, const struct tc_tree_node *node) {
    if (node->kind == TC_TREE_HALVES) {
        add_halves(text, tc_tree_text(node));
        return;
    }
    if (node->kind == TC_TREE_DTYPE || node->kind == TC_TREE_LAYOUT)
        tc_buffer_add_string(text, "torch.");
    tc_buffer_add_text(text, tc_tree_text(node));
}

static void add_json(struct tc_json_writer *json, const struct tc_tree_node *node) {
    struct tc_buffer word = {0};
    switch ((enum tc_tree_kind)node->kind) {
    case TC_TREE_NONE:
        tc_json_add_null(json, NULL);
        return;
    case TC_TREE_BOOL:
        tc_json_add_boolean(json, NULL, node->value);
        return;
    case TC_TREE_INT:
        tc_json_addf(json, NULL, "%lld", (long long)node->integer);
        return;
    case TC_TREE_LONG:
        tc_json_add_raw(json, NULL, tc_tree_text(node));
        return;
    case TC_TREE_FLOAT:
        tc_json_add_real(json, NULL, node->real);
        return;
    case TC_TREE_COMPLEX:
        tc_json_open_array(json, NULL);
        tc_json_add_real(json, NULL, node->real);
        tc_json_add_real(json, NULL, node->imaginary);
        tc_json_close(json);
        return;
    case TC_TREE_BYTES:
    case TC_TREE_BYTEARRAY:
        tc_json_add_bytes(json, NULL, tc_tree_text(node));
        return;
    default:
        add_word(&word, node);
        tc_json_add_text(json, NULL, (struct tc_text){word.length ? word.bytes : "", word.length});
        json->out->failed |= word.failed;
        tc_buffer_release(&word);
    }
}

/* Adds the value at this node under the current path. */
static bool add_leaf(struct leaves *leaves, size_t at) {
    const struct tc_tree_node *node = &leaves->tree->nodes[at];
    struct tc_buffer value = {0};
    struct tc_json_writer json = {.out = &value, .escape = TC_ESCAPE_SERDE};
    struct tc_text path = {leaves->path.length ? leaves->path.bytes : "", leaves->path.length};
    struct tc_error unfit = {0};
    if (!tc_name_check(path, &unfit))
        return true;
    if (is_dict(node))
        tc_buffer_add_string(&value, "{}");
    else if (is_word(node))
        add_word(&value, node);
    else if (node->kind < TC_TREE_SIZE)
        add_json(&json, node);
    else {
        tc_json_open_array(&json, NULL);
        for (size_t i = at + 1; i < node->end; i++)
            add_json(&json, &leaves->tree->nodes[i]);
        tc_json_close(&json);
    }
    char *text = tc_buffer_ok(&value, leaves->error)
                     ? tc_arena_copy(leaves->arena, value.length ? value.bytes : "", value.length,
                                     leaves->error)
                     : NULL;
    char *key = text ? tc_arena_copy(leaves->arena, path.bytes, path.length, leaves->error) : NULL;
    bool ok =
        key && tc_metadata_add(&leaves->found, leaves->arena, (struct tc_text){key, path.length},
                               (struct tc_text){text, value.length}, leaves->error);
    tc_buffer_release(&value);
    return ok;
}

/* Whether all that a list, tuple, set or Size holds is plain. */
static bool holds_plain(const struct leaves *leaves, size_t at) {
    const struct tc_tree_node *node = &leaves->tree->nodes[at];
    for (size_t i = at + 1; i < node->end; i++)
        if (!is_plain(&leaves->tree->nodes[i]))
            return false;
    return true;
}

static bool visit(struct leaves *leaves, size_t at, bool named) {
    const struct tc_tree_node *node = &leaves->tree->nodes[at];
    bool root = leaves->depth == 0;
    if (node->kind >= TC_TREE_TENSOR)
        return true;
    if (node->kind < TC_TREE_SIZE)
        return root || !is_plain(node) || add_leaf(leaves, at);
    if (!root && (is_dict(node) ? node->count == 0 : holds_plain(leaves, at)))
        return add_leaf(leaves, at);
    leaves->levels[leaves->depth++] = (struct level){.path = leaves->path.length,
                                                     .next = at + 1,
                                                     .left = node->count,
                                                     .dict = is_dict(node),
                                                     .named = named};
    return true;
}

/* Appends a key as it stands in names. */
static void add_key(struct leaves *leaves, const struct tc_tree_node *key, uint32_t index) {
    if (key->kind == TC_TREE_TEXT || key->kind == TC_TREE_LONG)
        tc_buffer_add_text(&leaves->path, tc_tree_text(key));
    else if (key->kind == TC_TREE_INT)
        tc_buffer_addf(&leaves->path, "%lld", (long long)key->integer);
    else if (key->kind == TC_TREE_HALVES) {
        for (size_t at = 0; at < key->length;) {
            uint32_t c;
            size_t length = tc_utf8_length(key->text + at, key->length - at, &c);
            tc_buffer_add(&leaves->path, length ? key->text + at : "?", length ? length : 1);
            at += length ? length : 3;
        }
    } else
        tc_buffer_addf(&leaves->path, "?%u", index);
}

static bool step(struct leaves *leaves) {
    struct level *level = &leaves->levels[leaves->depth - 1];
    const struct tc_tree_node *nodes = leaves->tree->nodes;
    if (level->left == 0) {
        leaves->depth--;
        return true;
    }
    size_t at = level->next;
    leaves->path.length = level->path;
    if (level->named)
        tc_buffer_add_string(&leaves->path, ".");
    if (level->dict) {
        add_key(leaves, &nodes[at], level->index);
        at = nodes[at].end;
        level->left--;
    } else
        tc_buffer_add_number(&leaves->path, level->index);
    level->index++;
    level->left--;
    level->next = nodes[at].end;
    return tc_buffer_ok(&leaves->path, leaves->error) && visit(leaves, at, true);
}

static int compare(const void *a, const void *b) {
    const struct tc_pair *x = a;
    const struct tc_pair *y = b;
    return tc_text_compare(x->key, y->key);
}

/* Removes those pairs that are among the values; both are sorted. Of values that have one name the
 * first counts: the others have numbers in the metadata, and stay there. */
static void remove_found(struct tc_metadata *metadata, const struct tc_metadata *found) {
    size_t kept = 0;
    size_t at = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        struct tc_pair pair = metadata->pairs[i];
        while (at < found->count && tc_text_compare(found->pairs[at].key, pair.key) < 0)
            at++;
        bool same = at < found->count && tc_text_equal(found->pairs[at].key, pair.key) &&
                    tc_text_equal(found->pairs[at].value, pair.value);
        if (!same)
            metadata->pairs[kept++] = pair;
    }
    metadata->count = kept;
}

/* Values of one name: in their order, the later ones get NAME~1 and so on. */
static bool number(struct leaves *leaves) {
    struct tc_name_map keys;
    struct tc_name_map numbers;
    bool ok = true;
    tc_name_map_init(&keys, leaves->arena);
    tc_name_map_init(&numbers, leaves->arena);
    for (size_t i = 0; i < leaves->found.count && ok; i++) {
        struct tc_pair *pair = &leaves->found.pairs[i];
        struct tc_text own = pair->key;
        while (ok && tc_name_map_find(&keys, pair->key)) {
            if (!tc_name_map_find(&numbers, own))
                ok = tc_name_map_add(&numbers, own, 0, leaves->error);
            uint32_t *last = tc_name_map_find(&numbers, own);
            struct tc_buffer name = {0};
            tc_buffer_add_text(&name, own);
            tc_buffer_addf(&name, "~%u", last ? ++*last : 0);
            char *copy = ok && tc_buffer_ok(&name, leaves->error)
                             ? tc_arena_copy(leaves->arena, name.bytes, name.length, leaves->error)
                             : NULL;
            pair->key = (struct tc_text){copy, name.length};
            ok = copy != NULL;
            tc_buffer_release(&name);
        }
        ok = ok && tc_name_map_add(&keys, pair->key, 0, leaves->error);
    }
    tc_name_map_release(&keys);
    tc_name_map_release(&numbers);
    return ok;
}

/* Collects the values in `leaves`, which the caller frees; its arena is the caller's. */
static struct leaves *collect(const struct tc_plan *plan, struct tc_arena *arena,
                              struct tc_error *error) {
    struct leaves *leaves = calloc(1, sizeof *leaves);
    if (!leaves) {
        tc_fail_memory(error);
        return NULL;
    }
    leaves->tree = plan->tree;
    leaves->arena = arena;
    leaves->error = error;
    bool ok = visit(leaves, 0, false);
    while (ok && leaves->depth)
        ok = step(leaves);
    ok = ok && number(leaves);
    tc_buffer_release(&leaves->path);
    if (ok)
        return leaves;
    free(leaves);
    return NULL;
}

bool tc_nesting_leave_out(const struct tc_plan *plan, struct tc_metadata *metadata,
                          struct tc_error *error) {
    struct tc_arena arena;
    tc_arena_init(&arena, plan->arena.budget);
    tc_metadata_remove(metadata, TC_TEXT(TC_TREE_KEY));
    struct leaves *leaves = collect(plan, &arena, error);
    if (leaves && leaves->found.count) {
        qsort(leaves->found.pairs, leaves->found.count, sizeof *leaves->found.pairs, compare);
        remove_found(metadata, &leaves->found);
    }
    bool ok = leaves != NULL;
    free(leaves);
    tc_arena_release(&arena);
    return ok;
}

bool tc_nesting_is_dropped(const struct tc_plan *plan, bool *dropped, struct tc_error *error) {
    const struct tc_select *select = plan->options->select;
    struct tc_arena arena;
    *dropped = false;
    if (!select || !select->dropped_count)
        return true;
    tc_arena_init(&arena, plan->arena.budget);
    struct leaves *leaves = collect(plan, &arena, error);
    bool ok = leaves != NULL;
    for (size_t i = 0; ok && i < leaves->found.count && !*dropped; i++)
        ok = tc_select_drops(select, leaves->found.pairs[i].key, dropped, error);
    free(leaves);
    tc_arena_release(&arena);
    return ok;
}
