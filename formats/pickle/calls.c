/*
 * What calls of known names give: data, or a node that records the call, which the
 * machine's caller interprets. Nothing is called.
 */

#include "formats/pickle/calls.h"

#include <string.h>

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/pickle/machine.h"

/* A node that records a call. */
static struct pickle_node *note_call(struct pickle *pickle, enum pickle_kind kind,
                                     struct pickle_node *callable, struct pickle_node *arguments) {
    struct pickle_node *node = pickle_node(pickle, kind);
    if (node) {
        node->callable = callable;
        node->arguments = arguments;
    }
    return node;
}

static struct pickle_node *bad_call(struct pickle *pickle, struct pickle_node *callable,
                                    struct pickle_node *arguments) {
    if (pickle->mode == PICKLE_SCAN)
        return pickle_misuse(pickle, pickle_text(callable),
                             "it is called with arguments that it does not take")
                   ? note_call(pickle, PICKLE_OBJECT, callable, arguments)
                   : NULL;
    if (pickle->mode == PICKLE_INERT)
        return note_call(pickle, PICKLE_OBJECT, callable, arguments);
    pickle_bad(pickle, "%.*s is called with arguments that it does not take",
               tc_text_shown(pickle_text(callable), 200), callable->text);
    return NULL;
}

/* Adds a list of pairs, or the items of a dict, to a dict. A Counter would count the
 * pairs. */
static bool add_pairs(struct pickle *pickle, struct pickle_node *dict,
                      const struct pickle_node *from, bool counter, bool *fit) {
    *fit = true;
    if (from->kind == PICKLE_DICT)
        return pickle_add_all(pickle, dict, from->items, from->count);
    *fit = (from->kind == PICKLE_LIST || from->kind == PICKLE_TUPLE) && (!counter || !from->count);
    for (size_t i = 0; *fit && i < from->count; i++) {
        const struct pickle_node *pair = from->items[i];
        *fit = pickle_item(pair, 1) && pair->count == 2;
        if (*fit && !pickle_add_all(pickle, dict, pair->items, 2))
            return false;
    }
    return true;
}

/* OrderedDict(), OrderedDict([[key, value], …]), Counter({…}). */
static struct pickle_node *make_dict(struct pickle *pickle, struct pickle_node *callable,
                                     struct pickle_node *arguments, size_t position) {
    const struct pickle_node *from = pickle_item(arguments, position);
    struct pickle_node *dict = pickle_node(pickle, PICKLE_DICT);
    bool counter = callable->global == PICKLE_ORDERED_DICT && callable->value == 1 &&
                   pickle->mode != PICKLE_SCAN;
    bool fit = true;
    if (!dict || (from && !add_pairs(pickle, dict, from, counter, &fit)))
        return NULL;
    if (!fit || arguments->count > position + 1)
        return bad_call(pickle, callable, arguments);
    dict->content = callable;
    if (callable->global == PICKLE_ATTRIBUTE_DICT)
        dict->value = PICKLE_DICT_OF_ATTRIBUTES;
    else if (callable->global == PICKLE_ORDERED_DICT &&
             tc_text_starts(pickle_text(callable), TC_TEXT("collections.")))
        dict->value = PICKLE_DICT_WITH_STATE; /* a defaultdict has no attributes */
    return dict;
}

/* Whether it may be a defaultdict's factory: a class of plain data, which makes a
 * missing value without calling anything else. */
static bool is_factory(const struct pickle *pickle, const struct pickle_node *node) {
    if (node->kind == PICKLE_NONE)
        return true;
    if (node->kind != PICKLE_GLOBAL)
        return false;
    switch ((enum pickle_global)node->global) {
    case PICKLE_ORDERED_DICT:
    case PICKLE_DEFAULT_DICT:
    case PICKLE_ATTRIBUTE_DICT:
    case PICKLE_SET_CLASS:
    case PICKLE_LIST_CLASS:
    case PICKLE_DEQUE:
    case PICKLE_TYPE_CLASS:
        return true;
    default:
        return pickle->mode != PICKLE_SCAN;
    }
}

static struct pickle_node *make_default_dict(struct pickle *pickle, struct pickle_node *callable,
                                             struct pickle_node *arguments) {
    struct pickle_node *first = pickle_item(arguments, 0);
    if (first && !is_factory(pickle, first))
        return bad_call(pickle, callable, arguments);
    struct pickle_node *dict = make_dict(pickle, callable, arguments, 1);
    if (pickle_is(dict, PICKLE_DICT))
        dict->state = first;
    return dict;
}

/* list(), set([…]), deque([…], length), Size([…]), with at most `most` arguments. */
static struct pickle_node *make_sequence(struct pickle *pickle, struct pickle_node *callable,
                                         struct pickle_node *arguments, enum pickle_kind kind,
                                         size_t most) {
    const struct pickle_node *from = pickle_item(arguments, 0);
    struct pickle_node *made = pickle_node(pickle, kind);
    if (arguments->count > most)
        return bad_call(pickle, callable, arguments);
    if (!made || !from)
        return made;
    /* A set has no order that a list of its items could have. */
    if (from->kind != PICKLE_LIST && from->kind != PICKLE_TUPLE &&
        (from->kind != PICKLE_SET || (kind != PICKLE_SET && pickle->mode != PICKLE_SCAN)))
        return bad_call(pickle, callable, arguments);
    return pickle_add_all(pickle, made, from->items, from->count) ? made : NULL;
}

/* set([…]), frozenset([…]). */
static struct pickle_node *make_set(struct pickle *pickle, struct pickle_node *callable,
                                    struct pickle_node *arguments) {
    struct pickle_node *set = make_sequence(pickle, callable, arguments, PICKLE_SET, 1);
    if (pickle_is(set, PICKLE_SET))
        set->value = callable->value;
    return set;
}

/* deque([…], length), where the length is None or a number. Python drops the first items
 * where there are more; no honest file has more. */
static struct pickle_node *make_deque(struct pickle *pickle, struct pickle_node *callable,
                                      struct pickle_node *arguments) {
    const struct pickle_node *most = pickle_item(arguments, 1);
    bool limited = most && most->kind == PICKLE_INT;
    if (most && most->kind != PICKLE_NONE && (!limited || most->integer < 0))
        return bad_call(pickle, callable, arguments);
    struct pickle_node *made = make_sequence(pickle, callable, arguments, PICKLE_LIST, 2);
    if (!pickle_is(made, PICKLE_LIST))
        return made;
    made->value = 1;
    if (!limited)
        return made;
    made->most = (uint64_t)most->integer + 1;
    return made->count < made->most || pickle->mode == PICKLE_SCAN
               ? made
               : bad_call(pickle, callable, arguments);
}

/* torch.Size(sequence of integers), which is a tuple. Its items count against the
 * budget each time, since one tuple may be given again and again. */
static struct pickle_node *make_size(struct pickle *pickle, struct pickle_node *callable,
                                     struct pickle_node *arguments) {
    const struct pickle_node *from = pickle_item(arguments, 0);
    if (!from || arguments->count != 1 || (from->kind != PICKLE_TUPLE && from->kind != PICKLE_LIST))
        return bad_call(pickle, callable, arguments);
    if (!pickle_charge_items(pickle, from->count))
        return NULL;
    for (size_t i = 0; i < from->count; i++)
        if (from->items[i]->kind != PICKLE_INT)
            return bad_call(pickle, callable, arguments);
    struct pickle_node *size = make_sequence(pickle, callable, arguments, PICKLE_TUPLE, 1);
    if (pickle_is(size, PICKLE_TUPLE))
        size->value = 1;
    return size;
}

static bool is_latin1(const struct pickle_node *codec) {
    return pickle_is(codec, PICKLE_TEXT) && (tc_text_equal(pickle_text(codec), TC_TEXT("latin1")) ||
                                             tc_text_equal(pickle_text(codec), TC_TEXT("latin-1")));
}

/* _codecs.encode("…", "latin1"), by which protocol 2 writes bytes. */
static struct pickle_node *make_bytes(struct pickle *pickle, struct pickle_node *callable,
                                      struct pickle_node *arguments) {
    const struct pickle_node *text = pickle_item(arguments, 0);
    if (arguments->count != 2 || !pickle_is(text, PICKLE_TEXT) ||
        (text->surrogates && pickle->mode != PICKLE_SCAN) || !is_latin1(pickle_item(arguments, 1)))
        return bad_call(pickle, callable, arguments);
    struct pickle_node *bytes =
        pickle_charge_text(pickle, text->length) ? pickle_node(pickle, PICKLE_BYTES) : NULL;
    char *made = bytes ? tc_arena_alloc(pickle->arena, text->length + 1, pickle->error) : NULL;
    if (!made)
        return NULL;
    for (size_t at = 0; at < text->length;) {
        uint32_t c = 0;
        at += tc_utf8_length(text->text + at, text->length - at, &c);
        if (c > 0xFF)
            return bad_call(pickle, callable, arguments);
        made[bytes->length++] = (char)c;
    }
    bytes->text = made;
    return bytes;
}

/* bytearray(), bytearray(b"…"), bytearray("…", "latin-1"). */
static struct pickle_node *make_bytearray(struct pickle *pickle, struct pickle_node *callable,
                                          struct pickle_node *arguments) {
    const struct pickle_node *from = pickle_item(arguments, 0);
    struct pickle_node *bytes = NULL;
    if (from && (arguments->count != 1 || from->kind != PICKLE_BYTES))
        bytes = make_bytes(pickle, callable, arguments);
    else if ((bytes = pickle_node(pickle, PICKLE_BYTES))) {
        bytes->text = from ? from->text : "";
        bytes->length = from ? from->length : 0;
        bytes->offset = from ? from->offset : 0;
    }
    if (bytes && bytes->kind == PICKLE_BYTES)
        bytes->array = callable->value != 0;
    return bytes;
}

/* Appends a part of a path as pathlib does: an absolute one replaces those before it,
 * and what names no folder (empty, ".") is left out. `root` is the number of slashes
 * that the path starts with; two have a meaning of their own in POSIX. */
static void add_part(struct tc_buffer *path, size_t *root, struct tc_text part) {
    size_t slashes = 0;
    while (slashes < part.length && part.bytes[slashes] == '/')
        slashes++;
    if (slashes) {
        path->length = 0;
        *root = slashes == 2 ? 2 : 1;
        tc_buffer_add(path, "//", *root);
    }
    for (size_t at = slashes; at < part.length;) {
        const char *from = part.bytes + at;
        const char *slash = memchr(from, '/', part.length - at);
        size_t length = slash ? (size_t)(slash - from) : part.length - at;
        if (length > 1 || (length == 1 && *from != '.')) {
            tc_buffer_add_string(path, path->length > *root ? "/" : "");
            tc_buffer_add(path, from, length);
        }
        at += length + 1;
    }
}

/* PosixPath("a", "b"): the path as text. */
static struct pickle_node *make_path(struct pickle *pickle, struct pickle_node *callable,
                                     struct pickle_node *arguments) {
    struct tc_buffer path = {0};
    if (!pickle_charge_items(pickle, arguments->count))
        return NULL;
    bool ok = true;
    size_t root = 0;
    for (size_t i = 0; i < arguments->count && ok; i++) {
        const struct pickle_node *part = arguments->items[i];
        ok = part->kind == PICKLE_TEXT && !part->surrogates &&
             pickle_charge_text(pickle, part->length);
        if (ok)
            add_part(&path, &root, pickle_text(part));
    }
    if (path.length == 0)
        tc_buffer_add_string(&path, ".");
    struct pickle_node *node = ok ? pickle_node(pickle, PICKLE_TEXT) : NULL;
    if (node && tc_buffer_ok(&path, pickle->error))
        node->text = tc_arena_copy(pickle->arena, path.bytes, path.length, pickle->error);
    if (node) {
        node->length = path.length;
        node->value = 1;
    }
    tc_buffer_release(&path);
    if (!ok && pickle->error->class == TC_OK)
        return bad_call(pickle, callable, arguments);
    return node && node->text ? node : NULL;
}

/* A class of text: the text itself. */
static struct pickle_node *make_text(struct pickle *pickle, struct pickle_node *callable,
                                     struct pickle_node *arguments) {
    const struct pickle_node *text = pickle_item(arguments, 0);
    if (arguments->count != 1 || !pickle_is(text, PICKLE_TEXT))
        return bad_call(pickle, callable, arguments);
    struct pickle_node *made = pickle_node(pickle, PICKLE_TEXT);
    if (made) {
        pickle_become(made, text);
        made->value = 1;
    }
    return made;
}

/* A member of an enumeration: its number. */
static struct pickle_node *make_member(struct pickle *pickle, struct pickle_node *callable,
                                       struct pickle_node *arguments) {
    struct pickle_node *number = pickle_item(arguments, 0);
    return arguments->count == 1 && pickle_is(number, PICKLE_INT)
               ? number
               : bad_call(pickle, callable, arguments);
}

/* numpy.dtype("f4", False, True). */
static struct pickle_node *make_dtype(struct pickle *pickle, struct pickle_node *callable,
                                      struct pickle_node *arguments) {
    struct pickle_node *dtype = note_call(pickle, PICKLE_CALL, callable, arguments);
    if (dtype && pickle->mode == PICKLE_SCAN &&
        !pickle_numpy_descr(dtype, pickle_item(arguments, 0)) &&
        !pickle_misuse(pickle, pickle_text(callable), "a dtype of no kind that files have"))
        return NULL;
    return dtype;
}

/* Whether a class is one that _reconstructor can make from this base: Python's object and
 * dict make no list, set or text. */
static bool has_base(const struct pickle_node *class, bool dict) {
    switch ((enum pickle_global) class->global) {
    case PICKLE_UNKNOWN:
    case PICKLE_KNOWN_UNSUPPORTED:
        return true;
    case PICKLE_ORDERED_DICT:
    case PICKLE_DEFAULT_DICT:
    case PICKLE_ATTRIBUTE_DICT:
        return dict;
    default:
        return !dict &&
               (class->global == PICKLE_NAMESPACE || class->global == PICKLE_RECORD ||
                class->global == PICKLE_SCRIPT_CLASS || class->global == PICKLE_JOBLIB_ARRAY);
    }
}

/* copyreg._reconstructor(class, base, state), by which protocols 0 and 1 make an
 * object. The base is object, or dict: then the object is a dict with these items. */
static struct pickle_node *reconstruct(struct pickle *pickle, struct pickle_node *callable,
                                       struct pickle_node *arguments) {
    struct pickle_node *class = pickle_item(arguments, 0);
    const struct pickle_node *base = pickle_item(arguments, 1);
    struct pickle_node *content = pickle_item(arguments, 2);
    bool known = content && arguments->count == 3 && class->kind == PICKLE_GLOBAL &&
                 class->global != PICKLE_RECONSTRUCTOR && base->kind == PICKLE_GLOBAL;
    bool object = known && base->global == PICKLE_TYPE_CLASS && base->value == 1 &&
                  content->kind == PICKLE_NONE;
    bool dict = known && base->global == PICKLE_ORDERED_DICT && content->kind == PICKLE_DICT &&
                tc_text_ends(pickle_text(base), TC_TEXT(".dict")) &&
                class->global != PICKLE_SCRIPT_CLASS;
    if (!object && !dict)
        return bad_call(pickle, callable, arguments);
    if (pickle->mode != PICKLE_SCAN && !has_base(class, dict))
        return bad_call(pickle, callable, arguments);
    if (pickle->mode != PICKLE_INERT && class->global != PICKLE_UNKNOWN && !pickle_is_class(class))
        return bad_call(pickle, callable, arguments);
    struct pickle_node *made = pickle_node(pickle, PICKLE_TUPLE);
    bool filled = made && dict && class->global != PICKLE_UNKNOWN;
    if (!made || (filled && !pickle_add(pickle, made, content)))
        return NULL;
    struct pickle_node *node = pickle_call(pickle, class, made);
    if (node && dict && !filled && node->kind == PICKLE_OBJECT && !node->content)
        node->content = content;
    return node;
}

static struct pickle_node *refuse_call(struct pickle *pickle, struct pickle_node *callable,
                                       struct pickle_node *arguments) {
    bool known = callable->global != PICKLE_UNKNOWN && callable->global != PICKLE_KNOWN_UNSUPPORTED;
    if (pickle->mode == PICKLE_SCAN && known)
        return bad_call(pickle, callable, arguments); /* it may only be named */
    if (pickle->mode != PICKLE_STRICT || callable->global == PICKLE_KNOWN_UNSUPPORTED)
        return note_call(pickle, PICKLE_OBJECT, callable, arguments);
    pickle_unsafe(pickle, "the pickle calls %.*s, which is nothing to call",
                  tc_text_shown(pickle_text(callable), 200), callable->text);
    return NULL;
}

bool pickle_is_class(const struct pickle_node *global) {
    switch ((enum pickle_global)global->global) {
    case PICKLE_ORDERED_DICT:
    case PICKLE_DEFAULT_DICT:
    case PICKLE_ATTRIBUTE_DICT:
    case PICKLE_SET_CLASS:
    case PICKLE_LIST_CLASS:
    case PICKLE_DEQUE:
    case PICKLE_BYTEARRAY:
    case PICKLE_SIZE:
    case PICKLE_SCRIPT_CLASS:
    case PICKLE_NAMESPACE:
    case PICKLE_RECORD:
    case PICKLE_PATH:
    case PICKLE_TEXT_CLASS:
    case PICKLE_JOBLIB_ARRAY:
        return true;
    default:
        return false;
    }
}

/* Records a call; a scan checks its arguments. */
static struct pickle_node *keep_call(struct pickle *pickle, enum pickle_kind kind,
                                     struct pickle_node *callable, struct pickle_node *arguments) {
    const char *wrong =
        pickle->mode == PICKLE_SCAN ? pickle_check_arguments(pickle, callable, arguments) : NULL;
    if (pickle->error->class != TC_OK)
        return NULL;
    if (wrong && !pickle_misuse(pickle, pickle_text(callable), wrong))
        return NULL;
    return note_call(pickle, kind, callable, arguments);
}

/* Calls that stay calls, with their arguments; all others are refused. */
static struct pickle_node *keep_or_refuse(struct pickle *pickle, struct pickle_node *callable,
                                          struct pickle_node *arguments) {
    switch ((enum pickle_global)callable->global) {
    case PICKLE_NAMESPACE:
    case PICKLE_RECORD:
        return arguments->count && pickle->mode != PICKLE_SCAN
                   ? bad_call(pickle, callable, arguments)
                   : keep_call(pickle, PICKLE_OBJECT, callable, arguments);
    case PICKLE_SCRIPT_CLASS:
    case PICKLE_JOBLIB_ARRAY:
        return keep_call(pickle, PICKLE_OBJECT, callable, arguments);
    case PICKLE_COMPLEX:
    case PICKLE_DEVICE:
    case PICKLE_LAYOUT:
    case PICKLE_REBUILD:
    case PICKLE_REBUILD_V2:
    case PICKLE_REBUILD_V3:
    case PICKLE_REBUILD_PARAMETER:
    case PICKLE_REBUILD_SPARSE:
    case PICKLE_REBUILD_QUANTIZED:
    case PICKLE_REBUILD_FROM_TYPE:
    case PICKLE_NUMPY_SCALAR:
    case PICKLE_NUMPY_RECONSTRUCT:
    case PICKLE_NUMPY_FROMBUFFER:
    case PICKLE_LOAD_FROM_BYTES:
        return keep_call(pickle, PICKLE_CALL, callable, arguments);
    default:
        return refuse_call(pickle, callable, arguments);
    }
}

struct pickle_node *pickle_call(struct pickle *pickle, struct pickle_node *callable,
                                struct pickle_node *arguments) {
    if (callable->kind != PICKLE_GLOBAL || arguments->kind != PICKLE_TUPLE)
        return note_call(pickle, PICKLE_OBJECT, callable,
                         arguments); /* not reached in strict mode */
    struct pickle_node *first = pickle_item(arguments, 0);
    switch ((enum pickle_global)callable->global) {
    case PICKLE_ORDERED_DICT:
    case PICKLE_ATTRIBUTE_DICT:
        return make_dict(pickle, callable, arguments, 0);
    case PICKLE_DEFAULT_DICT:
        return make_default_dict(pickle, callable, arguments);
    case PICKLE_SET_CLASS:
        return make_set(pickle, callable, arguments);
    case PICKLE_LIST_CLASS:
        return make_sequence(pickle, callable, arguments, PICKLE_LIST, 1);
    case PICKLE_DEQUE:
        return make_deque(pickle, callable, arguments);
    case PICKLE_SIZE:
        return make_size(pickle, callable, arguments);
    case PICKLE_SCRIPT_LIST:
        return arguments->count == 1 && pickle_is(first, PICKLE_LIST)
                   ? first
                   : bad_call(pickle, callable, arguments);
    case PICKLE_SCRIPT_TAG:
        return arguments->count == 2 ? first : bad_call(pickle, callable, arguments);
    case PICKLE_ENCODE:
        return make_bytes(pickle, callable, arguments);
    case PICKLE_BYTEARRAY:
        return make_bytearray(pickle, callable, arguments);
    case PICKLE_PATH:
        return make_path(pickle, callable, arguments);
    case PICKLE_TEXT_CLASS:
        return make_text(pickle, callable, arguments);
    case PICKLE_RECONSTRUCTOR:
        return reconstruct(pickle, callable, arguments);
    case PICKLE_NUMPY_DTYPE:
        return make_dtype(pickle, callable, arguments);
    case PICKLE_ENUM:
        return make_member(pickle, callable, arguments);
    default:
        return keep_or_refuse(pickle, callable, arguments);
    }
}
