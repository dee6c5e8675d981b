/*
 * The parser of checkpoint trees, for the modules that make it: tree.c goes from value to value,
 * tree_value.c reads what holds no others, tree_keys.c sees which keys are equal. Each function
 * that fails has filled the error.
 */
#ifndef TCONV_CORE_FORMAT_TREE_PARSE_H
#define TCONV_CORE_FORMAT_TREE_PARSE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/tree.h"

struct tree_frame;

struct tree_parser {
    struct tc_tree *tree;
    struct tc_arena *arena;
    struct tc_error *error;
    struct tc_json json;
    struct tree_frame *frames;
    size_t depth;
    size_t capacity;
    size_t node_capacity;
    struct tc_buffer path;     /* of the value that is read */
    bool named;                /* the path is a name, even if it is empty */
    struct tc_name_map paths;  /* of all tensors so far */
    struct tc_name_map number; /* the last number that was tried for a path */
};

bool tree_bad(struct tree_parser *parser, const char *what);
/* A new node; NULL on failure. The pointer holds until the next one is added. */
struct tc_tree_node *tree_add(struct tree_parser *parser, enum tc_tree_kind kind);

/* tree_value.c */

/* A value that is no array or object. */
bool tree_read_scalar(struct tree_parser *parser);
/* An array with this tag that holds no other values, of which the tag was read: fills the node and
 * passes the array's end. *known is false where it is no such tag. */
bool tree_read_tagged(struct tree_parser *parser, struct tc_text tag, bool *known);
/* Starts a tensor of the current path: a node, and the name where the array still has one. */
struct tc_tree_tensor *tree_add_tensor(struct tree_parser *parser, enum tc_tree_kind kind);
bool tree_read_name(struct tree_parser *parser, struct tc_tree_tensor *tensor, bool *more);
/* One of a tensor's options, except its attributes. */
bool tree_read_option(struct tree_parser *parser, struct tc_tree_tensor *tensor,
                      struct tc_text key);

/* tree_keys.c */

/* Fails where two of a container's keys or members are equal as Python sees it: `step` is 2 for
 * keys and values. */
bool tree_check_unique(struct tree_parser *parser, size_t first, size_t count, unsigned step);

#endif
