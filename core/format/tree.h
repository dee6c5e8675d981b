/*
 * Checkpoint trees: how the tensors and values of a checkpoint were nested, as one text. Any format
 * that has metadata keeps it under TC_TREE_KEY, so that a checkpoint which went through that format
 * can be written as the same nested object again.
 *
 *     {"v":1,"root":NODE}    compact JSON; members of objects are in the dict's order
 *     null true false        None, bool
 *     12  0.1  "x"           int within 64 bits, float (has . or e), str
 *     {"k":NODE,…}           dict whose keys are all str
 *     []                     a tensor whose name is its path: keys and indices joined with dots
 *     ["t",NAME,OPT]         a tensor; NAME null: its path; OPT {"g":true} requires_grad,
 *                            {"v":[BASE,offset,[strides]]} shares BASE's storage, {"k":[strides]}
 *                            not in C order, {"a":{…}} attributes
 *     ["p",NAME,OPT]         nn.Parameter, which requires a gradient unless {"g":false}
 *     ["s",NAME,LAYOUT,C]    a sparse tensor: NAME.indices and so on; C: coalesced (coo alone)
 *     ["q",NAME,SCHEME,…]    quantised: scale, zero point, dtype; or axis, dtype, with the tensors
 *                            NAME.scales and NAME.zero_points
 *     ["n",NAME] ["N",NAME]  numpy's array and scalar
 *     ["l",…] ["u",…] ["S",…]               list, tuple, set
 *     ["d",K,V,K,V,…]                       dict with other keys
 *     ["O",MAP,{attr}] ["C",MAP] ["D",FACTORY,MAP]    OrderedDict, Counter, defaultdict
 *     ["i","digits"] ["f","inf|-inf|nan|nan:HEX16"] ["c",re,im] ["b",base64] ["B",base64]
 *     ["x",base64]           int past 64 bits, float, complex, bytes, bytearray, str with lone
 *                            surrogates
 *     ["dt","float16"] ["z",2,3] ["dv","cuda:0"] ["ly","strided"]   dtype, Size, device, layout
 *
 * A tree becomes an array of nodes in the order of the text: each container's items follow it. The
 * text is a stranger's: its length, the number of its nodes and their depth are bounded, and
 * nothing here recurses. The nodes are the arena's, and point into the text.
 */
#ifndef TCONV_CORE_FORMAT_TREE_H
#define TCONV_CORE_FORMAT_TREE_H

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/tensor/sparse_group.h"
#include "core/tensor/table.h"

#define TC_TREE_KEY "tconv.tree"

#define TC_TREE_MAX_NODES 4000000u
#define TC_TREE_MAX_DEPTH 1000u
#define TC_TREE_MAX_TEXT ((size_t)64 << 20)
/* Digits of an integer: torch reads no more than 255 bytes of one. */
#define TC_TREE_MAX_DIGITS 613u

enum tc_tree_kind {
    TC_TREE_NONE,
    TC_TREE_BOOL,
    TC_TREE_INT,
    TC_TREE_LONG, /* past 64 bits: its digits are text */
    TC_TREE_FLOAT,
    TC_TREE_COMPLEX,
    TC_TREE_TEXT,
    TC_TREE_HALVES, /* text with lone surrogates, encoded as if UTF-8 allowed them */
    TC_TREE_BYTES,
    TC_TREE_BYTEARRAY,
    TC_TREE_DTYPE,
    TC_TREE_DEVICE,
    TC_TREE_LAYOUT,
    TC_TREE_SIZE, /* its items are integers; the first of the containers */
    TC_TREE_TUPLE,
    TC_TREE_LIST,
    TC_TREE_SET,
    TC_TREE_DICT,
    TC_TREE_ORDERED_DICT,
    TC_TREE_COUNTER,
    TC_TREE_DEFAULT_DICT, /* its text is the factory, empty for None */
    TC_TREE_TENSOR,       /* the first of those that have a tensor */
    TC_TREE_PARAMETER,
    TC_TREE_SPARSE,
    TC_TREE_QUANTISED,
    TC_TREE_ARRAY,
    TC_TREE_SCALAR,
};

/* A tensor of the tree. */
struct tc_tree_tensor {
    struct tc_text name;                   /* in the file; of a group the part before ".ROLE" */
    struct tc_text path;                   /* its name where the nested object is read again */
    struct tc_text base;                   /* the tensor whose storage it shares; NULL: none */
    const struct tc_tree_tensor *shares;   /* that of `base`, once the tree matches a table */
    const struct tc_sparse_layout *layout; /* of a sparse one */
    struct tc_text scheme;                 /* of a quantised one */
    double scale;
    int64_t zero_point;     /* or the axis, where each channel has a scale */
    uint64_t offset;        /* elements from the start of `base` */
    const uint64_t *stride; /* elements; NULL: C order */
    size_t position[4];     /* in the table, of each of its tensors, in the order of their names */
    uint8_t rank;           /* of the strides */
    uint8_t parts;          /* how many tensors of the table it has */
    bool requires_grad;
    bool coalesced;
    bool channels; /* quantised with a scale for each channel */
    bool dense;    /* a tensor or parameter, once the tree matches a table */
};

struct tc_tree_node {
    uint8_t kind;
    bool value;          /* of a truth value */
    uint32_t count;      /* items that follow; keys and values count one each; of a tensor, its
                          * attributes */
    uint32_t attributes; /* of an OrderedDict: those that follow its items */
    uint32_t end;        /* position behind it and all that it holds */
    union {
        int64_t integer;
        double real;
        const char *text;
        struct tc_tree_tensor *tensor;
    };
    union {
        uint64_t length;
        double imaginary;
    };
};

struct tc_tree {
    struct tc_tree_node *nodes;
    size_t count;
    struct tc_text text;
    bool own; /* made from the file itself, so that what shares data is known to */
};

static inline struct tc_text tc_tree_text(const struct tc_tree_node *node) {
    return (struct tc_text){node->text, node->length};
}

/* Reads a tree, which the text must outlive. Fails with TC_INVALID, "tree", where it is none, and
 * with TC_UNSAFE where it is past one of the limits above. */
bool tc_tree_parse(struct tc_tree *tree, struct tc_text text, struct tc_arena *arena,
                   struct tc_error *error);
/* Finds the tensors of a tree. It fails with TC_UNSUPPORTED, "stale-tree", unless the tree has
 * every tensor of the table once, and each is what the tree takes it for. `dtypes` has, by position
 * in the table, what the tensors will be where they are not written as they are; NULL: they are. */
bool tc_tree_match(struct tc_tree *tree, const struct tc_table *table, const uint8_t *dtypes,
                   struct tc_arena *arena, struct tc_error *error);

/* Whether these are what torch calls dtypes, devices, layouts and classes that a defaultdict may
 * make: the only names in a tree that mean anything. */
bool tc_tree_is_dtype(struct tc_text name);
bool tc_tree_is_device(struct tc_text name);
bool tc_tree_is_layout(struct tc_text name);
bool tc_tree_is_factory(struct tc_text name);
/* Whether a name may be that of an attribute: no name that Python calls. */
bool tc_tree_is_attribute(struct tc_text name);
/* Whether strides in elements are worth keeping: no element is shared, and at most half of what
 * they span is empty. */
bool tc_tree_is_dense(const uint64_t *shape, const uint64_t *stride, unsigned rank);

#endif
