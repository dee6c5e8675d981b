#include "core/format/tree_parse.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/limits.h"

/* What is being read. Each has an array or object of the text open. */
enum frame_kind {
    ITEMS,      /* of a list, tuple or set */
    MEMBERS,    /* {"k":NODE,…} of any kind of dict */
    PAIRS,      /* ["d",K,V,…] of any kind of dict */
    WRAPPER,    /* ["O",MAP,{attr}], ["C",MAP], ["D",FACTORY,MAP] */
    ATTRIBUTES, /* {attr} of an OrderedDict or a tensor */
    TENSOR,     /* ["t",NAME,OPT] */
    OPTIONS,    /* OPT */
};

struct tree_frame {
    uint8_t kind;
    bool named;    /* of the path */
    bool hashable; /* it is, or is part of, a key or a member of a set */
    bool value;    /* of PAIRS: the next is a value; of others: the part that may come once came */
    uint32_t node; /* that it fills */
    uint32_t next; /* index of the next item */
    uint32_t level;
    uint32_t key;  /* of PAIRS: the key's node */
    size_t path;   /* how long the path is up to and including its own name */
    uint64_t seen; /* of OPTIONS: a bit for each that came */
};

bool tree_bad(struct tree_parser *parser, const char *what) {
    if (parser->error->class != TC_OK)
        return false;
    parser->json.failed = true;
    return tc_fail(parser->error, TC_INVALID, "tree", "%s, at byte %zu of it", what,
                   parser->json.at);
}

static bool over(struct tc_error *error, const char *what, uint64_t limit) {
    tc_fail(error, TC_UNSAFE, "tree-limit", "the checkpoint tree (" TC_TREE_KEY ") %s (limit %llu)",
            what, (unsigned long long)limit);
    return tc_error_hint(error, TC_FIXED_LIMIT "; --tree=never converts without the tree");
}

/* Nodes and frames */

static bool grow(struct tree_parser *parser, void **list, size_t *capacity, size_t size) {
    size_t larger = *capacity ? *capacity * 2 : 64;
    void *grown = NULL;
    if (!tc_arena_charge(parser->arena, (larger - *capacity) * size, parser->error))
        return false;
    if (!(grown = reallocarray(*list, larger, size)))
        return tc_fail_memory(parser->error);
    *list = grown;
    *capacity = larger;
    return true;
}

struct tc_tree_node *tree_add(struct tree_parser *parser, enum tc_tree_kind kind) {
    struct tc_tree *tree = parser->tree;
    if (tree->count == TC_TREE_MAX_NODES) {
        over(parser->error, "has too many values", TC_TREE_MAX_NODES);
        return NULL;
    }
    if (tree->count == parser->node_capacity &&
        !grow(parser, (void **)&tree->nodes, &parser->node_capacity, sizeof *tree->nodes))
        return NULL;
    struct tc_tree_node *node = &tree->nodes[tree->count++];
    *node = (struct tc_tree_node){.kind = (uint8_t)kind, .end = (uint32_t)tree->count};
    return node;
}

/* Opens a frame for the array or object that was entered; its values belong to `node`. */
static bool push(struct tree_parser *parser, enum frame_kind kind, uint32_t node, bool deeper) {
    static const struct tree_frame outermost = {.kind = ITEMS};
    const struct tree_frame *outer =
        parser->depth ? &parser->frames[parser->depth - 1] : &outermost;
    struct tree_frame frame = {.kind = (uint8_t)kind,
                               .node = node,
                               .named = parser->named,
                               .path = parser->path.length,
                               .level = outer->level + (deeper ? 1 : 0),
                               .hashable = outer->hashable};
    /* What stands in a key can be a key itself, and so can the members of a set. */
    if (outer->kind == PAIRS && !outer->value)
        frame.hashable = true;
    if (kind == ITEMS && parser->tree->nodes[node].kind == TC_TREE_SET)
        frame.hashable = true;
    if (frame.level > TC_TREE_MAX_DEPTH)
        return over(parser->error, "is nested too deep", TC_TREE_MAX_DEPTH);
    if (parser->depth == parser->capacity &&
        !grow(parser, (void **)&parser->frames, &parser->capacity, sizeof *parser->frames))
        return false;
    parser->frames[parser->depth++] = frame;
    return true;
}

/* The scanner knows one level: the innermost array or object. The frames know the others. */
static bool enter(struct tree_parser *parser, enum tc_json_kind kind) {
    parser->json.depth = 0;
    return tc_json_begin(&parser->json, kind);
}

static void resume(struct tree_parser *parser) {
    const struct tree_frame *frame = &parser->frames[parser->depth - 1];
    bool object = frame->kind == MEMBERS || frame->kind == ATTRIBUTES || frame->kind == OPTIONS;
    parser->json.depth = 1;
    parser->json.stack[0] = object ? TC_JSON_OBJECT : TC_JSON_ARRAY;
    parser->json.first = false;
}

static void pop(struct tree_parser *parser) {
    struct tc_tree *tree = parser->tree;
    tree->nodes[parser->frames[parser->depth - 1].node].end = (uint32_t)tree->count;
    if (--parser->depth)
        resume(parser);
}

/* Values */

/* Opens {…} or ["d",…] as the items of a dict of any kind. */
static bool open_map(struct tree_parser *parser, uint32_t node) {
    struct tc_json *json = &parser->json;
    struct tc_text tag;
    if (tc_json_peek(json) == TC_JSON_OBJECT)
        return enter(parser, TC_JSON_OBJECT) && push(parser, MEMBERS, node, true);
    if (tc_json_peek(json) != TC_JSON_ARRAY || !enter(parser, TC_JSON_ARRAY) ||
        !tc_json_element(json) || tc_json_peek(json) != TC_JSON_STRING ||
        !tc_json_string(json, &tag) || !tc_text_equal(tag, TC_TEXT("d")))
        return tree_bad(parser, "no dict where one must be");
    return push(parser, PAIRS, node, true);
}

static bool open_tensor(struct tree_parser *parser, enum tc_tree_kind kind) {
    struct tc_tree_tensor *tensor = tree_add_tensor(parser, kind);
    bool more;
    if (!tensor || !tree_read_name(parser, tensor, &more))
        return false;
    if (!more)
        return true;
    uint32_t node = (uint32_t)(parser->tree->count - 1);
    if (tc_json_peek(&parser->json) != TC_JSON_OBJECT)
        return tree_bad(parser, "a tensor's options are no object");
    return push(parser, TENSOR, node, false) && enter(parser, TC_JSON_OBJECT) &&
           push(parser, OPTIONS, node, false);
}

/* The class that a defaultdict makes: null or a name. */
static bool read_factory(struct tree_parser *parser, uint32_t node) {
    struct tc_json *json = &parser->json;
    struct tc_text name = {"", 0};
    if (!tc_json_element(json))
        return tree_bad(parser, "a defaultdict without its class");
    if (tc_json_peek(json) == TC_JSON_STRING) {
        if (!tc_json_string(json, &name))
            return false;
        if (!tc_tree_is_factory(name))
            return tree_bad(parser, "a defaultdict of no class that it may have");
    } else if (!tc_json_null(json))
        return tree_bad(parser, "a defaultdict of no class that it may have");
    parser->tree->nodes[node].text = name.bytes;
    parser->tree->nodes[node].length = name.length;
    return true;
}

static bool open_wrapper(struct tree_parser *parser, enum tc_tree_kind kind) {
    uint32_t node = (uint32_t)parser->tree->count;
    if (!tree_add(parser, kind) || (kind == TC_TREE_DEFAULT_DICT && !read_factory(parser, node)) ||
        !push(parser, WRAPPER, node, false))
        return false;
    if (!tc_json_element(&parser->json))
        return tree_bad(parser, "no dict where one must be");
    return open_map(parser, node);
}

static bool open_items(struct tree_parser *parser, enum tc_tree_kind kind, enum frame_kind frame) {
    uint32_t node = (uint32_t)parser->tree->count;
    return tree_add(parser, kind) && push(parser, frame, node, true);
}

/* Whether a value of this tag can be a dict's key or a set's member: a tuple, or something that
 * holds no other values. */
static bool is_hashable(struct tc_text tag) {
    static const char *const tags[] = {"u", "i", "f", "c", "b", "x", "dt", "dv", "ly", "z"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (tc_text_equal(tag, tc_text_of(tags[i])))
            return true;
    return false;
}

static bool read_array(struct tree_parser *parser, bool hashable) {
    static const struct {
        const char *tag;
        bool (*open)(struct tree_parser *parser, enum tc_tree_kind kind);
        enum tc_tree_kind kind;
        enum frame_kind frame;
    } tags[] = {{"t", open_tensor, TC_TREE_TENSOR, TENSOR},
                {"p", open_tensor, TC_TREE_PARAMETER, TENSOR},
                {"O", open_wrapper, TC_TREE_ORDERED_DICT, WRAPPER},
                {"C", open_wrapper, TC_TREE_COUNTER, WRAPPER},
                {"D", open_wrapper, TC_TREE_DEFAULT_DICT, WRAPPER},
                {"l", NULL, TC_TREE_LIST, ITEMS},
                {"u", NULL, TC_TREE_TUPLE, ITEMS},
                {"S", NULL, TC_TREE_SET, ITEMS},
                {"d", NULL, TC_TREE_DICT, PAIRS}};
    struct tc_json *json = &parser->json;
    struct tc_text tag;
    bool known;
    if (!enter(parser, TC_JSON_ARRAY))
        return false;
    if (!tc_json_element(json))
        return !json->failed && (hashable ? tree_bad(parser, "a tensor as a key")
                                          : tree_add_tensor(parser, TC_TREE_TENSOR) != NULL);
    if (tc_json_peek(json) != TC_JSON_STRING || !tc_json_string(json, &tag))
        return tree_bad(parser, "an array without a tag");
    if (hashable && !is_hashable(tag))
        return tree_bad(parser, "something that can't be a key is one");
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (tc_text_equal(tag, tc_text_of(tags[i].tag)))
            return tags[i].open ? tags[i].open(parser, tags[i].kind)
                                : open_items(parser, tags[i].kind, tags[i].frame);
    return tree_read_tagged(parser, tag, &known) && (known || tree_bad(parser, "an unknown tag"));
}

/* Reads a value, or its beginning where it holds others. */
static bool read_value(struct tree_parser *parser, bool hashable) {
    switch (tc_json_peek(&parser->json)) {
    case TC_JSON_OBJECT:
        if (hashable)
            return tree_bad(parser, "something that can't be a key is one");
        if (!tree_add(parser, TC_TREE_DICT))
            return false;
        return enter(parser, TC_JSON_OBJECT) &&
               push(parser, MEMBERS, (uint32_t)(parser->tree->count - 1), true);
    case TC_JSON_ARRAY: {
        size_t depth = parser->depth;
        if (!read_array(parser, hashable))
            return false;
        if (parser->depth == depth && depth)
            resume(parser);
        return true;
    }
    default:
        return tree_read_scalar(parser);
    }
}

/* The names of values */

static void begin_name(struct tree_parser *parser, const struct tree_frame *frame) {
    parser->path.length = frame->path;
    if (frame->named)
        tc_buffer_add_string(&parser->path, ".");
    parser->named = true;
}

/* Text as it stands in a name: with a question mark for each lone surrogate. */
static void add_halves(struct tc_buffer *path, struct tc_text text) {
    for (size_t at = 0; at < text.length;) {
        uint32_t c;
        size_t length = tc_utf8_length(text.bytes + at, text.length - at, &c);
        tc_buffer_add(path, length ? text.bytes + at : "?", length ? length : 1);
        at += length ? length : 3;
    }
}

static void name_by_key(struct tree_parser *parser, const struct tree_frame *frame) {
    const struct tc_tree_node *key = &parser->tree->nodes[frame->key];
    begin_name(parser, frame);
    if (key->kind == TC_TREE_TEXT || key->kind == TC_TREE_LONG)
        tc_buffer_add_text(&parser->path, tc_tree_text(key));
    else if (key->kind == TC_TREE_HALVES)
        add_halves(&parser->path, tc_tree_text(key));
    else if (key->kind == TC_TREE_INT)
        tc_buffer_addf(&parser->path, "%lld", (long long)key->integer);
    else
        tc_buffer_addf(&parser->path, "?%u", frame->next);
}

/* The steps of each kind of frame: the next value, or the end. A frame's place may change when
 * another is pushed, so that nothing of it is touched behind read_value. */

static bool check_container(struct tree_parser *parser, uint32_t index) {
    const struct tc_tree *tree = parser->tree;
    const struct tc_tree_node *node = &tree->nodes[index];
    size_t first = index + 1;
    if (node->kind == TC_TREE_COUNTER) {
        for (size_t i = 0, at = first; i < node->count; i++) {
            unsigned kind = tree->nodes[at].kind;
            if (i % 2 && kind != TC_TREE_INT && kind != TC_TREE_LONG)
                return tree_bad(parser, "a Counter with a count that is no integer");
            at = tree->nodes[at].end;
        }
    }
    return true;
}

static bool step_items(struct tree_parser *parser, struct tree_frame *frame) {
    struct tc_tree_node *node = &parser->tree->nodes[frame->node];
    if (!tc_json_element(&parser->json)) {
        bool set = node->kind == TC_TREE_SET;
        uint32_t first = frame->node + 1;
        uint32_t count = node->count;
        pop(parser);
        return !parser->json.failed && (!set || tree_check_unique(parser, first, count, 1));
    }
    begin_name(parser, frame);
    tc_buffer_add_number(&parser->path, frame->next++);
    node->count++;
    return read_value(parser, frame->hashable);
}

/* The end of a dict's items. */
static bool end_map(struct tree_parser *parser, uint32_t node) {
    uint32_t count = parser->tree->nodes[node].count;
    pop(parser);
    return !parser->json.failed && tree_check_unique(parser, node + 1, count, 2) &&
           check_container(parser, node);
}

static bool add_key(struct tree_parser *parser, struct tc_text key) {
    struct tc_tree_node *node = tree_add(parser, TC_TREE_TEXT);
    if (node) {
        node->text = key.bytes;
        node->length = key.length;
    }
    return node != NULL;
}

static bool step_members(struct tree_parser *parser, struct tree_frame *frame) {
    struct tc_text key;
    if (!tc_json_key(&parser->json, &key))
        return end_map(parser, frame->node);
    parser->tree->nodes[frame->node].count += 2;
    begin_name(parser, frame);
    tc_buffer_add_text(&parser->path, key);
    return add_key(parser, key) && read_value(parser, false);
}

static bool step_pairs(struct tree_parser *parser, struct tree_frame *frame) {
    struct tc_tree_node *node = &parser->tree->nodes[frame->node];
    if (!tc_json_element(&parser->json)) {
        bool odd = frame->value;
        return end_map(parser, frame->node) && (!odd || tree_bad(parser, "a key without a value"));
    }
    node->count++;
    /* While a value is read the frame says so, since what stands in a key must be hashable. */
    size_t at = (size_t)(frame - parser->frames);
    bool key = !frame->value;
    if (key)
        frame->key = (uint32_t)parser->tree->count;
    else
        name_by_key(parser, frame);
    frame->next += !key;
    bool ok = read_value(parser, key);
    parser->frames[at].value = key;
    return ok;
}

static bool step_wrapper(struct tree_parser *parser, struct tree_frame *frame) {
    const struct tc_tree_node *node = &parser->tree->nodes[frame->node];
    parser->path.length = frame->path;
    parser->named = frame->named;
    if (!tc_json_element(&parser->json)) {
        pop(parser);
        return !parser->json.failed;
    }
    if (node->kind != TC_TREE_ORDERED_DICT || frame->value ||
        tc_json_peek(&parser->json) != TC_JSON_OBJECT)
        return tree_bad(parser, "something behind a dict's items");
    frame->value = true;
    uint32_t index = frame->node;
    return enter(parser, TC_JSON_OBJECT) && push(parser, ATTRIBUTES, index, true);
}

static bool step_attributes(struct tree_parser *parser, struct tree_frame *frame) {
    struct tc_tree_node *node = &parser->tree->nodes[frame->node];
    struct tc_text key;
    if (!tc_json_key(&parser->json, &key)) {
        size_t first = frame->node + 1;
        uint32_t count = node->count;
        if (node->kind == TC_TREE_ORDERED_DICT) {
            for (uint32_t i = 0; i < node->count; i++)
                first = parser->tree->nodes[first].end;
            count = node->attributes;
        }
        pop(parser);
        return !parser->json.failed && tree_check_unique(parser, first, count, 2);
    }
    if (!tc_tree_is_attribute(key))
        return tree_bad(parser, "a name that no attribute may have");
    *(node->kind == TC_TREE_ORDERED_DICT ? &node->attributes : &node->count) += 2;
    begin_name(parser, frame);
    tc_buffer_add_text(&parser->path, key);
    return add_key(parser, key) && read_value(parser, false);
}

static bool step_tensor(struct tree_parser *parser) {
    if (tc_json_element(&parser->json) || parser->json.failed)
        return tree_bad(parser, "something behind a tensor's options");
    pop(parser);
    return true;
}

static bool step_options(struct tree_parser *parser, struct tree_frame *frame) {
    struct tc_text key;
    uint32_t node = frame->node;
    if (!tc_json_key(&parser->json, &key)) {
        pop(parser);
        return !parser->json.failed;
    }
    uint64_t bit = key.length == 1 ? UINT64_C(1) << (key.bytes[0] & 31) : 0;
    if (frame->seen & bit)
        return tree_bad(parser, "an option that occurs twice");
    frame->seen |= bit;
    if (!tc_text_equal(key, TC_TEXT("a")))
        return tree_read_option(parser, parser->tree->nodes[node].tensor, key);
    parser->path.length = frame->path;
    parser->named = frame->named;
    if (tc_json_peek(&parser->json) != TC_JSON_OBJECT)
        return tree_bad(parser, "a tensor's attributes are no object");
    return enter(parser, TC_JSON_OBJECT) && push(parser, ATTRIBUTES, node, true);
}

static bool step(struct tree_parser *parser) {
    struct tree_frame *frame = &parser->frames[parser->depth - 1];
    switch ((enum frame_kind)frame->kind) {
    case ITEMS:
        return step_items(parser, frame);
    case MEMBERS:
        return step_members(parser, frame);
    case PAIRS:
        return step_pairs(parser, frame);
    case WRAPPER:
        return step_wrapper(parser, frame);
    case ATTRIBUTES:
        return step_attributes(parser, frame);
    case TENSOR:
        return step_tensor(parser);
    case OPTIONS:
        return step_options(parser, frame);
    }
    return false;
}

/* Reads the value "root", whatever it is. */
static bool read_root(struct tree_parser *parser) {
    if (!read_value(parser, false))
        return false;
    while (parser->depth) {
        if (!step(parser) || parser->json.failed || !tc_buffer_ok(&parser->path, parser->error))
            return false;
    }
    return true;
}

/* {"v":1,"root":NODE}, in either order. */
static bool read_document(struct tree_parser *parser) {
    struct tc_json *json = &parser->json;
    struct tc_text key;
    struct tc_text version;
    bool seen[2] = {false};
    tc_json_begin(json, TC_JSON_OBJECT);
    while (tc_json_key(json, &key)) {
        bool root = tc_text_equal(key, TC_TEXT("root"));
        if ((!root && !tc_text_equal(key, TC_TEXT("v"))) || seen[root])
            return tree_bad(parser, "a member that it may not have");
        seen[root] = true;
        if (root && !read_root(parser))
            return false;
        if (!root && (tc_json_peek(json) != TC_JSON_NUMBER || !tc_json_skip(json, &version) ||
                      !tc_text_equal(version, TC_TEXT("1"))))
            return tree_bad(parser, "a version other than 1");
        json->depth = 1;
        json->stack[0] = TC_JSON_OBJECT;
        json->first = false;
    }
    if (!json->failed && (!seen[0] || !seen[1]))
        return tree_bad(parser, "no version or no root");
    return tc_json_end(json);
}

/* Bounds the depth and the number of values before anything is taken for them. */
static bool check_limits(struct tc_text text, struct tc_error *error) {
    const uint64_t deepest = 2 * (uint64_t)TC_TREE_MAX_DEPTH + 4;
    const uint64_t most = 4 * (uint64_t)TC_TREE_MAX_NODES;
    uint64_t depth = 0;
    uint64_t count = 0;
    if (text.length > TC_TREE_MAX_TEXT)
        return over(error, "is too long", TC_TREE_MAX_TEXT);
    for (size_t i = 0; i < text.length; i++) {
        char c = text.bytes[i];
        if (c == '"') {
            for (i++; i < text.length && text.bytes[i] != '"'; i++)
                i += text.bytes[i] == '\\';
            count++;
        } else if (c == '[' || c == '{') {
            count++;
            if (++depth > deepest)
                return over(error, "is nested too deep", TC_TREE_MAX_DEPTH);
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else
            count += c == ',';
        if (count > most)
            return over(error, "has too many values", TC_TREE_MAX_NODES);
    }
    return true;
}

bool tc_tree_parse(struct tc_tree *tree, struct tc_text text, struct tc_arena *arena,
                   struct tc_error *error) {
    struct tree_parser parser = {.tree = tree, .arena = arena, .error = error};
    *tree = (struct tc_tree){.text = text};
    if (!check_limits(text, error))
        return false;
    tc_json_init(&parser.json, text.bytes, text.length, 0, arena, error);
    tc_name_map_init(&parser.paths, arena);
    tc_name_map_init(&parser.number, arena);
    bool ok = read_document(&parser) && tc_buffer_ok(&parser.path, error);
    if (!ok && error->class == TC_INVALID) {
        error->code = "tree";
        error->has_offset = false; /* it counts in this text, not in the file */
    }
    struct tc_tree_node *nodes =
        ok ? tc_arena_array(arena, tree->count, sizeof *nodes, error) : NULL;
    if (nodes)
        memcpy(nodes, tree->nodes, tree->count * sizeof *nodes);
    free(tree->nodes);
    tree->nodes = nodes;
    free(parser.frames);
    tc_buffer_release(&parser.path);
    tc_name_map_release(&parser.paths);
    tc_name_map_release(&parser.number);
    return nodes != NULL;
}
