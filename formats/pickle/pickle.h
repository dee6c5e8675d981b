/*
 * A pickle machine for data alone. It knows every opcode of protocols 0 to 5,
 * builds what they say as a graph of nodes, and has no way to import or call
 * anything: a global is a name, looked up in a list of names (globals.c),
 * and a "call" is a node that notes what would have been called.
 *
 *     pickle_init(&pickle, arena, limits, error);
 *     pickle.input = …; pickle.at = …; pickle.end = …;
 *     pickle_load(&pickle, &node);       once for each pickle in a row (run.h)
 *     pickle_release(&pickle);
 *
 * Nodes live in the arena, which bounds their memory. Lists and dicts are
 * shared by reference, as Python shares them: a later change shows in every
 * place, and a list may come to hold itself. Nothing here recurses. A machine is
 * used by one thread; the caller owns its input and its arena.
 */
#ifndef TCONV_FORMATS_PICKLE_PICKLE_H
#define TCONV_FORMATS_PICKLE_PICKLE_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/io/input.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_LONG, /* beyond 64 bits: decimal digits in `text` */
    PICKLE_FLOAT,
    PICKLE_TEXT,
    PICKLE_BYTES, /* in `text`, or in the file where that is NULL */
    PICKLE_LIST,
    PICKLE_TUPLE,
    PICKLE_DICT, /* items are key, value, key, value, …; a key may occur twice */
    PICKLE_SET,
    PICKLE_GLOBAL,  /* `text` is "module.name" */
    PICKLE_CALL,    /* `callable` would be called with `arguments`; the caller interprets it */
    PICKLE_OBJECT,  /* an instance of `callable`, a class that is not known */
    PICKLE_STORAGE, /* `index` of a storage that a persistent id names */
};

/* What a global is known as (globals.c). */
enum pickle_global {
    PICKLE_UNKNOWN,
    PICKLE_KNOWN_UNSUPPORTED, /* makes a kind of tensor that can't be read; harmless */
    PICKLE_SCRIPT_CLASS,      /* a class of a TorchScript archive */
    PICKLE_SCRIPT_LIST,
    PICKLE_SCRIPT_TAG,
    PICKLE_ORDERED_DICT, /* or another dict; `value` is 1 for Counter */
    PICKLE_DEFAULT_DICT,
    PICKLE_SET_CLASS, /* `value` is 1 for frozenset */
    PICKLE_LIST_CLASS,
    PICKLE_BYTEARRAY, /* `value` is 0 for bytes */
    PICKLE_COMPLEX,
    PICKLE_TYPE_CLASS,     /* a class that is only named, as a value; `value` is 1 for object */
    PICKLE_ATTRIBUTE_DICT, /* a dict whose items are attributes too */
    PICKLE_DEQUE,
    PICKLE_NAMESPACE, /* argparse.Namespace and its like: an object of attributes alone */
    PICKLE_RECORD,    /* a class of torch or DeepSpeed whose objects are data alone; `value` is 1
                       * where their state is a tuple */
    PICKLE_ENUM,      /* stands for the number that it is called with */
    PICKLE_PATH,
    PICKLE_TEXT_CLASS,
    PICKLE_RECONSTRUCTOR,
    PICKLE_LOAD_FROM_BYTES, /* its argument is a torch file; known where pickle.nested is set */
    PICKLE_JOBLIB_ARRAY,    /* its bytes follow its state; known where pickle.joblib is set */
    PICKLE_ENCODE,
    PICKLE_SIZE,
    PICKLE_DEVICE,
    PICKLE_LAYOUT,
    PICKLE_DTYPE,         /* `value` is the tc_dtype; TC_NONE: only a value */
    PICKLE_STORAGE_CLASS, /* `value` is the tc_dtype; TC_NONE: untyped bytes */
    PICKLE_QSCHEME,       /* `value` is 1 where channels have scales of their own */
    PICKLE_TENSOR_CLASS,
    PICKLE_REBUILD,
    PICKLE_REBUILD_V2,
    PICKLE_REBUILD_V3,
    PICKLE_REBUILD_PARAMETER,
    PICKLE_REBUILD_SPARSE,
    PICKLE_REBUILD_QUANTIZED,
    PICKLE_REBUILD_FROM_TYPE,
    PICKLE_NUMPY_SCALAR,
    PICKLE_NUMPY_RECONSTRUCT,
    PICKLE_NUMPY_FROMBUFFER,
    PICKLE_NUMPY_DTYPE,
    PICKLE_NUMPY_ARRAY,
};

struct pickle_node {
    uint8_t kind;
    uint8_t global;      /* enum pickle_global */
    uint8_t value;       /* of a global: see there; of a bool: it; of a dict: see calls.h; 1 of
                          * a set to which nothing may be added, of a list that is a deque, of a
                          * tuple that is torch's Size, of text that a class was made of */
    bool open : 1;       /* the caller's walk is inside it, to see cycles */
    bool raw : 1;        /* text that the pickle has as a string of bytes (Python 2) */
    bool surrogates : 1; /* text that has lone surrogates, written as \\udXXX in `text` */
    bool array : 1;      /* bytes that are a bytearray in Python, which can change */
    bool frozen : 1;     /* it was given a state already */
    bool settled : 1;    /* of a dict or set: nothing occurs twice in it any more */
    bool unhashable : 1; /* of a tuple: something in it can't be a dict's key */
    bool seen : 1;       /* for the caller's use: its bytes were looked into */
    uint32_t count;      /* items; in a dict keys and values count one each; of text: how many
                          * lone surrogates are escaped */
    union {
        int64_t integer;
        double real;
        uint64_t index;
        const char *text;
        struct pickle_node **items;
        struct pickle_node *callable;
    };
    /* What follows is there only where the kind has it: see pickle_node_bytes. */
    union {
        uint64_t length;               /* of text, bytes, globals and storages */
        uint64_t capacity;             /* of items; a tuple has no more than its items */
        struct pickle_node *arguments; /* a tuple; of a call */
        struct pickle_node *named;     /* of a tuple: what it names as a persistent id */
    };
    union {
        uint64_t offset;           /* of bytes in the file, of a part in its storage */
        uint64_t at;               /* of a global: where its opcode is in the file */
        struct pickle_node *state; /* given by BUILD; of a defaultdict the class of its
                                    * values; NULL: none */
        uint64_t most;             /* of a list: it has fewer items than that; 0: any number */
    };
    struct pickle_node *content; /* of an object: the dict or list put into it; of bytes: the
                                  * storage that they are the file of; of a dict: its class; NULL:
                                  * none */
};

/* How many bytes a node of this kind has. A checkpoint may have a dozen nodes for each of a
 * million tensors, so no node has room for what its kind does not use: those that a kind lacks
 * must not be read, and a node is copied by pickle_become alone. */
static inline size_t pickle_node_bytes(enum pickle_kind kind) {
    switch (kind) {
    case PICKLE_NONE:
    case PICKLE_BOOL:
    case PICKLE_INT:
    case PICKLE_FLOAT:
        return offsetof(struct pickle_node, length);
    case PICKLE_LONG:
    case PICKLE_TEXT:
    case PICKLE_TUPLE:
    case PICKLE_SET:
        return offsetof(struct pickle_node, offset);
    case PICKLE_LIST:
    case PICKLE_GLOBAL:
    case PICKLE_CALL:
    case PICKLE_STORAGE:
        return offsetof(struct pickle_node, content);
    default:
        return sizeof(struct pickle_node);
    }
}

enum pickle_mode {
    PICKLE_STRICT, /* an unknown global refuses the file */
    PICKLE_INERT,  /* objects of an unknown global become PICKLE_OBJECT */
    PICKLE_SCAN,   /* as PICKLE_INERT, and anything wrong is reported and passed over */
};

struct pickle_memo;

/* The work done so far, which is limited. A caller that runs many machines gives
 * them one budget, so that the limits are for all of them. All zero at first. */
struct pickle_budget {
    uint64_t steps;  /* opcodes */
    uint64_t items;  /* put into lists, tuples, dicts and sets, copies of them too */
    uint64_t text;   /* bytes copied or built; those that stay in the file don't count */
    uint64_t nested; /* pickles inside the bytes of other pickles, counted by the caller */
};

/* Says what a persistent id stands for: fills *node, which is a storage's, or sets it to
 * another. */
typedef bool pickle_persistent(void *context, const struct pickle_node *id,
                               struct pickle_node **node, struct tc_error *error);

#define PICKLE_RECENT 64u

struct pickle {
    /* The caller's. */
    struct tc_input *input;      /* the file that has the pickle, */
    const unsigned char *memory; /* or its bytes, where the file has them compressed */
    uint64_t at;                 /* position of the next opcode, in the input or in memory */
    uint64_t end;                /* where the bytes that may be the pickle's end */
    enum pickle_mode mode;
    bool script;   /* classes of TorchScript are known */
    bool nested;   /* torch.storage._load_from_bytes is known: the caller reads its bytes */
    bool joblib;   /* joblib's arrays are known: objects whose content is their bytes */
    bool whole;    /* in a scan: the bytes are a file or member, not a part of its data */
    bool keys;     /* persistent ids are keys, numbers or text, as in torch's tar files */
    bool forgets;  /* `persistent` keeps nothing of an id: what only the id needs is freed */
    void *context; /* for the callbacks */
    /* The callbacks may each be NULL. on_global: the pickle names a global. on_call:
     * it would call something, at this offset. persistent: it has a persistent id. */
    bool (*on_global)(void *context, const struct pickle_node *global, struct tc_error *error);
    bool (*on_call)(void *context, const struct pickle_node *callable,
                    const struct pickle_node *arguments, uint64_t at, struct tc_error *error);
    pickle_persistent *persistent;
    /* A name, a call, a state or an item is used as no honest file does it: what is
     * wrong, and the name that is misused (empty: none). Only a scan calls it, and
     * goes on; any other mode refuses the file. */
    bool (*on_misuse)(void *context, const char *what, struct tc_text name, uint64_t at,
                      struct tc_error *error);
    /* joblib's wrapper of an array was given its state. The array's bytes follow at
     * pickle->at, which the function may move forward, up to pickle->end. */
    bool (*on_build)(struct pickle *pickle, struct pickle_node *object);
    struct pickle_budget *budget; /* NULL: the machine uses its own */

    /* Results, over all pickles that were run. */
    bool named; /* some pickle named a global that Python could import */
    /* In a scan: where the next pickle starts for loaders that skip the rest of a
     * frame in which STOP was reached; 0: at `at`, as for all others. */
    uint64_t also_at;

    /* The machine's own. */
    struct pickle_budget own_budget;
    struct tc_arena *arena;
    const struct tc_limits *limits;
    struct tc_error *error;
    unsigned char *window; /* of the input: [window_at, window_at + window_size) */
    uint64_t window_at;
    size_t window_size;
    uint64_t start;     /* of this pickle */
    uint64_t opcode_at; /* of the opcode that runs */
    uint64_t frame_end; /* 0: no frame */
    bool skips;         /* bytes that don't fit into the frame are read from behind it */
    bool forked;        /* such bytes came up, so that `skips` makes a difference */
    bool plain;         /* joblib's arrays are not passed over, as loaders but joblib do */
    bool arrays;        /* such an array came up, so that `plain` makes a difference */
    uint64_t steps;
    uint64_t names;       /* globals so far that could be imported */
    uint64_t array_names; /* those before joblib's first array */
    uint64_t first_step;  /* `steps` when this pickle began */
    uint64_t array_steps; /* `steps` at joblib's first array */
    uint64_t persistents; /* persistent ids so far */
    struct pickle_node **stack;
    size_t depth;
    size_t stack_capacity;
    size_t *marks;
    size_t mark_count;
    size_t mark_capacity;
    unsigned depth_of_arrays;         /* machines around this one, each inside an object array */
    uint64_t charged;                 /* memory from malloc that counts as the arena's */
    struct pickle_node *constants[3]; /* None, False, True */
    /* Numbers, and tuples of them, that occurred last: most shapes are like others. */
    struct pickle_node *integers[PICKLE_RECENT];
    struct pickle_node *sizes[PICKLE_RECENT];
    /* Whether the last opcodes made an id that nothing else refers to (run.c), and where the
     * arena was before them. */
    enum { PICKLE_NO_ID, PICKLE_ID_ITEMS, PICKLE_WHOLE_ID } making;
    struct tc_arena_place before_id;
    struct pickle_memo *memo;
    bool stopped;
    const char *tolerated; /* the first error that a scan passed over; NULL: none */
};

void pickle_init(struct pickle *pickle, struct tc_arena *arena, const struct tc_limits *limits,
                 struct tc_error *error);
void pickle_release(struct pickle *pickle);

/* For callbacks and the parts of the machine: a new node, NULL with the error
 * filled. */
struct pickle_node *pickle_node(struct pickle *pickle, enum pickle_kind kind);
/* Turns a node that has room for any kind (PICKLE_OBJECT) into a copy of another. */
void pickle_become(struct pickle_node *node, const struct pickle_node *other);
/* Adds to a list, tuple, set or dict. */
bool pickle_add(struct pickle *pickle, struct pickle_node *to, struct pickle_node *item);
bool pickle_add_all(struct pickle *pickle, struct pickle_node *to, struct pickle_node **items,
                    size_t count);
/* Fail, at the place of the opcode that runs: the pickle is damaged, has something
 * that is not supported, or would do something unsafe. */
bool pickle_bad(struct pickle *pickle, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool pickle_unsupported(struct pickle *pickle, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool pickle_unsafe(struct pickle *pickle, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* For scans alone: something that no honest file does is reported (on_misuse), and the
 * machine goes on. */
bool pickle_misuse(struct pickle *pickle, struct tc_text name, const char *what);

/* keys.c: removes what occurs twice in a dict or set, as Python does when it is added:
 * the first key stays, with the last value. */
bool pickle_settle(struct pickle_node *node, struct tc_arena *arena, struct tc_error *error);

/* globals.c: the node of a global; calls.c: what calling it gives. */
struct pickle_node *pickle_find_global(struct pickle *pickle, struct tc_text module,
                                       struct tc_text name);
struct pickle_node *pickle_call(struct pickle *pickle, struct pickle_node *callable,
                                struct pickle_node *arguments);

/* dangerous.c: whether a name ("module.name") is known to run code, load
 * code, or reach files, the network or the machine itself. */
bool pickle_is_dangerous(struct tc_text name);
/* Whether Python could import it: identifiers with dots between them. */
bool pickle_is_importable(struct tc_text name);

/* values.c: numbers and strings as protocol 0 writes them. */
struct pickle_node *pickle_integer(struct pickle *pickle, struct tc_text digits, bool booleans);
struct pickle_node *pickle_long(struct pickle *pickle, const unsigned char *bytes, size_t length);
struct pickle_node *pickle_real(struct pickle *pickle, struct tc_text digits);
struct pickle_node *pickle_quoted(struct pickle *pickle, struct tc_text line);
struct pickle_node *pickle_escaped(struct pickle *pickle, struct tc_text line);
/* A text node of UTF-8 bytes that are in the arena already; lone surrogates are
 * replaced by their escapes. */
struct pickle_node *pickle_unicode(struct pickle *pickle, struct tc_text bytes);
bool pickle_latin1(struct pickle *pickle, struct tc_text bytes, struct tc_text *text);
/* Reads a number as Python's int() does in this base (0: as the prefix says). With
 * `octal`, C's octal numbers are accepted too. *large: 63 bits can't hold it. */
bool pickle_read_integer(struct tc_text text, unsigned base, bool octal, bool *negative,
                         uint64_t *value, bool *large);

static inline struct tc_text pickle_text(const struct pickle_node *node) {
    return (struct tc_text){node->text, node->length};
}

static inline bool pickle_is(const struct pickle_node *node, enum pickle_kind kind) {
    return node && node->kind == kind;
}

/* The i-th item; NULL where the node is no tuple or list or is shorter. */
static inline struct pickle_node *pickle_item(const struct pickle_node *node, size_t i) {
    bool sequence = pickle_is(node, PICKLE_TUPLE) || pickle_is(node, PICKLE_LIST);
    return sequence && i < node->count ? node->items[i] : NULL;
}

/* What BUILD gave it; NULL where there is nothing, or where its kind has no state. */
static inline struct pickle_node *pickle_state(const struct pickle_node *node) {
    bool has = pickle_is(node, PICKLE_OBJECT) || pickle_is(node, PICKLE_CALL) ||
               pickle_is(node, PICKLE_DICT);
    return has ? node->state : NULL;
}

/* Whether the node is a call of this function. */
static inline bool pickle_calls(const struct pickle_node *node, enum pickle_global global) {
    return node && node->kind == PICKLE_CALL && node->callable->global == global;
}

#endif
