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
 * place, and a list may come to hold itself. Nothing here recurses.
 */
#ifndef TCONV_FORMATS_PICKLE_PICKLE_H
#define TCONV_FORMATS_PICKLE_PICKLE_H

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
    PICKLE_DICT, /* key, value, key, value, …; a key may come again */
    PICKLE_SET,
    PICKLE_GLOBAL,  /* `text` is "module.name" */
    PICKLE_CALL,    /* `callable` with `arguments`, understood by whoever reads the result */
    PICKLE_OBJECT,  /* an instance of `callable`, a class that is not understood */
    PICKLE_STORAGE, /* `index` of a storage that a persistent id names */
};

/* Names that mean something here. */
enum pickle_global {
    PICKLE_UNKNOWN,
    PICKLE_KNOWN_UNSUPPORTED, /* a kind of tensor that can't be read, but is no danger */
    PICKLE_SCRIPT_CLASS,      /* a class of a TorchScript archive */
    PICKLE_SCRIPT_LIST,
    PICKLE_SCRIPT_TAG,
    PICKLE_ORDERED_DICT,
    PICKLE_DEFAULT_DICT,
    PICKLE_SET_CLASS,
    PICKLE_LIST_CLASS,
    PICKLE_BYTEARRAY,
    PICKLE_COMPLEX,
    PICKLE_TYPE_CLASS,     /* a class that is named alone; `value` is 1 for object */
    PICKLE_ATTRIBUTE_DICT, /* a dict whose items are attributes too */
    PICKLE_DEQUE,
    PICKLE_NAMESPACE, /* an object that is its attributes */
    PICKLE_PATH,
    PICKLE_TEXT_CLASS,
    PICKLE_RECONSTRUCTOR,
    PICKLE_LOAD_FROM_BYTES, /* a storage or tensor in a torch file of its own: where `nested` */
    PICKLE_JOBLIB_ARRAY,    /* its bytes follow its state; where `joblib` */
    PICKLE_ENCODE,
    PICKLE_SIZE,
    PICKLE_DEVICE,
    PICKLE_LAYOUT,
    PICKLE_DTYPE,         /* `value` is the tc_dtype */
    PICKLE_STORAGE_CLASS, /* likewise; TC_NONE: untyped bytes */
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
    uint8_t value;       /* of a global: see there; of PICKLE_BOOL; of a dict: it may have state */
    bool open : 1;       /* a walk is inside it */
    bool raw : 1;        /* text that stood as bytes */
    bool surrogates : 1; /* text that has lone surrogates, which stand here as \\udXXX */
    bool array : 1;      /* bytes that are a bytearray in Python, which can change */
    bool frozen : 1;     /* a state was given to it already */
    bool settled : 1;    /* of a dict: each key is there once */
    bool seen : 1;       /* for the caller: its bytes were looked into */
    uint32_t count;      /* items; a dict's keys and values counted each */
    uint64_t at;         /* of its opcode, in the file */
    union {
        int64_t integer;
        double real;
        uint64_t index;
        const char *text;
        struct pickle_node **items;
        struct pickle_node *callable;
    };
    union {
        uint64_t length;               /* of text and bytes */
        uint64_t capacity;             /* of items */
        struct pickle_node *arguments; /* a tuple; of a call */
    };
    union {
        uint64_t offset;           /* of bytes in the file */
        struct pickle_node *state; /* given by BUILD; NULL: none */
    };
    struct pickle_node *content; /* of an object: the dict or list put into it; of a tuple: what it
                                  * names as a persistent id; NULL: none */
};

enum pickle_mode {
    PICKLE_STRICT, /* an unknown global refuses the file */
    PICKLE_INERT,  /* its objects are PICKLE_OBJECT */
    PICKLE_SCAN,   /* and whatever else is refused goes on where it can */
};

struct pickle_memo;

/* What pickles may cost, counted over all that share it: a caller that runs
 * many machines gives them one. All zero at first. */
struct pickle_budget {
    uint64_t steps;  /* opcodes */
    uint64_t items;  /* put into lists, tuples, dicts and sets, copies of them too */
    uint64_t text;   /* bytes read or made, but for those left in the file */
    uint64_t nested; /* pickles in bytes of pickles, counted by whoever runs them */
};

/* Makes of a persistent id what it stands for. */
typedef bool pickle_persistent(void *context, const struct pickle_node *id,
                               struct pickle_node *node, struct tc_error *error);

struct pickle {
    /* The caller's. */
    struct tc_input *input;      /* where the pickle lies, */
    const unsigned char *memory; /* or its bytes, where the input has them packed */
    uint64_t at;                 /* the next opcode: in the input, or in memory */
    uint64_t end;                /* of what may belong to the pickle */
    enum pickle_mode mode;
    bool script; /* classes of TorchScript are allowed */
    bool nested; /* bytes for torch.storage._load_from_bytes are read by the caller */
    bool joblib; /* arrays of joblib's dumps are: an object whose content is its bytes */
    bool keys;   /* persistent ids are keys, numbers or text, as in torch's tar files */
    void *context;
    /* Each may be NULL. A global was named; something would be called, at an
     * opcode's place; a persistent id. */
    bool (*on_global)(void *context, const struct pickle_node *global, struct tc_error *error);
    bool (*on_call)(void *context, const struct pickle_node *callable,
                    const struct pickle_node *arguments, uint64_t at, struct tc_error *error);
    pickle_persistent *persistent;
    /* A name, a call, a state or an item is used as no honest file does: what is
     * wrong, and the name it is done with (empty: none). Only in a scan, which
     * goes on; any other mode refuses the file. */
    bool (*on_misuse)(void *context, const char *what, struct tc_text name, uint64_t at,
                      struct tc_error *error);
    /* A known wrapper of joblib has got its state; the bytes of its array follow
     * at `at`, which the function may move forward, up to `end`. */
    bool (*on_build)(struct pickle *pickle, struct pickle_node *object);
    struct pickle_budget *budget; /* NULL: one of its own */

    /* What it found, over all its pickles. */
    bool named; /* a name that Python could import was reached */
    /* Where the next pickle starts for loaders that read a frame whole, though
     * this one's STOP stood inside; 0: where `at` stands. In a scan. */
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
    bool skips;         /* what does not fit into a frame is read from behind it */
    bool forked;        /* where that would have made a difference */
    bool plain;         /* arrays of joblib's are not passed over: any other loader's way */
    bool arrays;        /* where that would have made a difference */
    uint64_t steps;
    uint64_t names;       /* reached that could be imported */
    uint64_t array_names; /* up to the first array of joblib's */
    uint64_t first_step;  /* of this pickle */
    uint64_t array_steps; /* up to the first array of joblib's */
    uint64_t persistents; /* ids so far */
    struct pickle_node **stack;
    size_t depth;
    size_t stack_capacity;
    size_t *marks;
    size_t mark_count;
    size_t mark_capacity;
    unsigned depth_of_arrays;         /* machines around this one, for arrays of objects */
    uint64_t charged;                 /* to the arena, for memory that is not its own */
    struct pickle_node *constants[3]; /* None, False, True */
    struct pickle_memo *memo;
    bool stopped;
    const char *odd; /* what a scan passed over, as some loader might; NULL: nothing */
};

void pickle_init(struct pickle *pickle, struct tc_arena *arena, const struct tc_limits *limits,
                 struct tc_error *error);
void pickle_release(struct pickle *pickle);

/* For callbacks and for what calls stand for. */
struct pickle_node *pickle_node(struct pickle *pickle, enum pickle_kind kind);
/* Adds to a list, tuple, set or dict. */
bool pickle_add(struct pickle *pickle, struct pickle_node *to, struct pickle_node *item);
bool pickle_add_all(struct pickle *pickle, struct pickle_node *to, struct pickle_node **items,
                    size_t count);
bool pickle_bad(struct pickle *pickle, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool pickle_unsupported(struct pickle *pickle, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool pickle_unsafe(struct pickle *pickle, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What no honest file does: told in a scan, which goes on; unsafe elsewhere. */
bool pickle_misuse(struct pickle *pickle, struct tc_text name, const char *what);

/* globals.c: what a name means, and what calling it gives. */
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
/* Of UTF-8, the arena's already; lone surrogates are escaped. */
struct pickle_node *pickle_unicode(struct pickle *pickle, struct tc_text bytes);
bool pickle_latin1(struct pickle *pickle, struct tc_text bytes, struct tc_text *text);
/* A number as Python's int() reads text in this base (0: as the prefix says),
 * with C's octal numbers too where asked for; *large: 63 bits can't hold it. */
bool pickle_read_integer(struct tc_text text, unsigned base, bool octal, bool *negative,
                         uint64_t *value, bool *large);

static inline struct tc_text pickle_text(const struct pickle_node *node) {
    return (struct tc_text){node->text, node->length};
}

static inline bool pickle_is(const struct pickle_node *node, enum pickle_kind kind) {
    return node && node->kind == kind;
}

/* The i-th of a tuple or list; NULL where it is none or has it not. */
static inline struct pickle_node *pickle_item(const struct pickle_node *node, size_t i) {
    bool sequence = pickle_is(node, PICKLE_TUPLE) || pickle_is(node, PICKLE_LIST);
    return sequence && i < node->count ? node->items[i] : NULL;
}

/* Whether it is a call of this function. */
static inline bool pickle_calls(const struct pickle_node *node, enum pickle_global global) {
    return pickle_is(node, PICKLE_CALL) && node->callable->global == global;
}

#endif
