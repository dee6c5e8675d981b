/*
 * An array's type: a string such as '<f4', or the list of the fields of its records:
 *     [('a', '<f4'), ('b', '>i4', (3,)), ('c', [('x', '<f2'), …], (2,)), ('', '|V3'), …]
 * A field has a name (or a title and a name), a type, which may be a list of fields
 * again, and perhaps dimensions. A void type ('|V3') without a name is padding.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/format_option.h"
#include "core/tensor/dtype.h"
#include "formats/numpy/literal.h"
#include "formats/numpy/npy.h"
#include "formats/numpy/options.h"

#define MOST_DEPTH 32u
/* How many fields of records in an array in a record are read: each takes a pass over
 * all of the data, element by element. */
#define MOST_STRIDED 16u

static const struct {
    const char *code;
    enum tc_dtype dtype;
} codes[] = {
    {"b1", TC_BOOL}, {"u1", TC_U8},  {"i1", TC_I8},  {"u2", TC_U16},   {"i2", TC_I16},
    {"u4", TC_U32},  {"i4", TC_I32}, {"u8", TC_U64}, {"i8", TC_I64},   {"f2", TC_F16},
    {"f4", TC_F32},  {"f8", TC_F64}, {"c8", TC_C64}, {"c16", TC_C128},
};
#define CODES (sizeof codes / sizeof *codes)

const char *npy_dtype_code(enum tc_dtype dtype) {
    for (size_t i = 0; i < CODES; i++)
        if (codes[i].dtype == dtype)
            return codes[i].code;
    return "";
}

/* The type without its byte order. */
static struct tc_text code_of(struct tc_text descr) {
    size_t skip = descr.length && strchr("|<>=", descr.bytes[0]) ? 1 : 0;
    return (struct tc_text){descr.bytes + skip, descr.length - skip};
}

/* The size of an element, from a letter and a number of bytes ("V3"); for the letter U
 * it is a number of characters. */
static bool read_size(struct tc_text code, uint64_t *bytes) {
    uint64_t number = 0;
    for (size_t i = 1; i < code.length; i++) {
        if (code.bytes[i] < '0' || code.bytes[i] > '9' || i > 10)
            return false;
        number = number * 10 + (uint64_t)(code.bytes[i] - '0');
    }
    *bytes = code.bytes[0] == 'U' ? number * 4 : number;
    return code.length > 1;
}

bool npy_text_size(struct tc_text descr, uint64_t *bytes) {
    struct tc_text code = code_of(descr);
    if (descr.length < 3 || code.length == descr.length || code.bytes[1] == '0' ||
        !read_size(code, bytes))
        return false;
    return code.bytes[0] == 'S'
               ? descr.bytes[0] == '|'
               : code.bytes[0] == 'U' && (descr.bytes[0] == '<' || descr.bytes[0] == '>');
}

/* The dtype of elements of void type, where `named` (--npy-void) has their size:
 * ml_dtypes saves its types without their names. */
static enum tc_dtype void_dtype(struct tc_text code, enum tc_dtype named) {
    if (named == TC_NONE || tc_dtype_packed(named))
        return TC_NONE;
    char expected[16];
    snprintf(expected, sizeof expected, "V%u", tc_dtype_bits(named) / 8);
    bool matches = tc_text_equal(code, tc_text_of(expected)) ||
                   (tc_dtype_bits(named) == 8 && tc_text_equal(code, TC_TEXT("f1")));
    return matches ? named : TC_NONE;
}

static enum tc_dtype number_dtype(struct tc_text code, enum tc_dtype named_void) {
    for (size_t i = 0; i < CODES; i++)
        if (tc_text_equal(code, tc_text_of(codes[i].code)))
            return codes[i].dtype;
    return void_dtype(code, named_void);
}

/* What elements are that are not numbers; NULL: unknown. */
static const char *other_kind(char letter) {
    switch (letter) {
    case 'S':
    case 'U':
        return "text";
    case 'M':
        return "dates";
    case 'm':
        return "spans of time";
    default:
        return NULL;
    }
}

static void explain_skipped(struct npy_leaf *leaf, struct tc_text descr, struct tc_text code) {
    const char *kind = other_kind(code.length ? code.bytes[0] : '\0');
    /* Without the width, so that all of a kind are reported in one line. */
    if (kind)
        snprintf(leaf->skipped, sizeof leaf->skipped, "dtype '%c' is not supported (%s)",
                 code.bytes[0], kind);
    else
        snprintf(leaf->skipped, sizeof leaf->skipped, "dtype '%.*s' is not supported",
                 tc_text_shown(descr, 40), descr.bytes);
    if (kind && strcmp(kind, "text") == 0)
        leaf->hint = "--strings=bytes keeps it as bytes";
    else if (tc_text_equal(code, TC_TEXT("V2")))
        leaf->hint = "name the type it holds, e.g. --npy-void BF16";
    else if (tc_text_equal(code, TC_TEXT("V1")) || tc_text_equal(code, TC_TEXT("f1")))
        leaf->hint = "name the type it holds, e.g. --npy-void F8_E4M3";
}

/* Text becomes bytes: an element of n bytes is a dimension of that length. */
static void keep_text(struct npy_leaf *leaf, struct tc_text descr, uint64_t bytes) {
    leaf->dtype = TC_U8;
    memcpy(leaf->descr, descr.bytes, descr.length);
    leaf->shape.sizes[0] = bytes;
    leaf->shape.rank = 1;
    leaf->shape.count = bytes;
    leaf->stride[0] = 1;
}

/* Whether it is 'M8' or 'm8' with a unit such as [ns] or [25s/4]. With a comma it
 * would be a list of types to numpy. */
static bool is_date(struct tc_text code) {
    if (code.length < 2 || (code.bytes[0] != 'M' && code.bytes[0] != 'm') || code.bytes[1] != '8')
        return false;
    if (code.length == 2)
        return true;
    size_t last = code.length - 1;
    for (size_t i = 3; i < last; i++) {
        char lower = code.bytes[i] | 0x20;
        if (!(lower >= 'a' && lower <= 'z') && !(lower >= '0' && lower <= '9') && lower != '/')
            return false;
    }
    return last > 2 && code.bytes[2] == '[' && code.bytes[last] == ']';
}

/* Text is kept if the user asks for it, and in a file that tconv has just written and
 * reads back to compare. */
static bool keeps_text(const struct tc_format_options *options) {
    return options->unpublished ||
           tc_option_choice(&options->settings, &npy_strings_option) == NPY_STRINGS_BYTES;
}

/* Fills a leaf from its type. Where the size of that is unknown, so is the array's. */
static void read_type(struct npy_descr *into, struct npy_leaf *leaf, struct tc_text descr,
                      const struct tc_format_options *options) {
    struct tc_text code = code_of(descr);
    enum tc_dtype dtype = number_dtype(code, tc_option_dtype(&options->settings, &npy_void_option));
    char letter = code.length ? code.bytes[0] : '\0';
    uint64_t text;
    leaf->shape.count = 1;
    if (dtype != TC_NONE) {
        leaf->dtype = (uint8_t)dtype;
        leaf->span = tc_dtype_bits(dtype) / 8;
        leaf->swap = descr.bytes[0] == '>' && tc_dtype_component(dtype) > 1;
        return;
    }
    into->objects |= letter == 'O' || letter == 'T';
    if (keeps_text(options) && descr.length < sizeof leaf->descr && npy_text_size(descr, &text)) {
        leaf->span = text;
        keep_text(leaf, descr, text);
        return;
    }
    explain_skipped(leaf, descr, code);
    if (is_date(code))
        leaf->span = 8;
    else if (!letter || !strchr("SUVfciub", letter) || !read_size(code, &leaf->span))
        into->unmeasured = true;
}

static struct npy_leaf *add_leaf(struct npy_scanner *scanner, struct npy_descr *descr,
                                 const struct tc_buffer *name) {
    if (descr->count == descr->capacity) {
        size_t capacity = descr->capacity ? descr->capacity * 2 : 1;
        struct npy_leaf *leaves = reallocarray(descr->leaves, capacity, sizeof *leaves);
        if (!leaves) {
            tc_fail_memory(scanner->error);
            return NULL;
        }
        descr->leaves = leaves;
        descr->capacity = capacity;
    }
    struct npy_leaf *leaf = &descr->leaves[descr->count];
    memset(leaf, 0, sizeof *leaf);
    leaf->name = malloc(name->length + 1);
    if (!leaf->name) {
        tc_fail_memory(scanner->error);
        return NULL;
    }
    if (name->length)
        memcpy(leaf->name, name->bytes, name->length);
    leaf->name_length = name->length;
    descr->count++;
    return leaf;
}

/* Puts the dimensions of the field that a leaf is in before its own. `size` is that
 * of one element of the field; `single`: the element is the leaf and nothing else. */
static void wrap_leaf(struct npy_leaf *leaf, const struct npy_shape *shape, uint64_t size,
                      bool single) {
    uint64_t rank = leaf->shape.rank + shape->rank;
    if (rank > NPY_MAX_RANK) {
        snprintf(leaf->skipped, sizeof leaf->skipped, "more than %u dimensions", NPY_MAX_RANK);
        leaf->shape.rank = rank;
        return;
    }
    memmove(leaf->shape.sizes + shape->rank, leaf->shape.sizes,
            leaf->shape.rank * sizeof *leaf->shape.sizes);
    memmove(leaf->stride + shape->rank, leaf->stride, leaf->shape.rank * sizeof *leaf->stride);
    uint64_t stride = size;
    for (uint64_t i = shape->rank; i > 0; i--) {
        leaf->shape.sizes[i - 1] = shape->sizes[i - 1];
        leaf->stride[i - 1] = stride;
        stride *= shape->sizes[i - 1];
    }
    leaf->shape.rank = rank;
    leaf->strided |= !single && shape->rank > 0;
}

/* A list of fields that is being scanned. */
struct frame {
    size_t prefix; /* length of the name of the field whose type it is */
    size_t first;  /* its first leaf */
    uint64_t size; /* bytes of the fields so far */
    bool comma;    /* a comma was there, or it is the start: a field may follow */
};

struct fields {
    struct npy_scanner *scanner;
    const struct tc_format_options *options;
    struct npy_descr *descr;
    struct tc_buffer name;
    struct frame frames[MOST_DEPTH];
    unsigned depth;
    size_t strided; /* how many leaves are strided */
};

/* Scans what follows a field's type: its dimensions, if it has some, and ')'. The
 * type's leaves are those from `first` on, and have `size` bytes together. */
static bool end_field(struct fields *fields, size_t first, uint64_t size, bool nested) {
    struct npy_scanner *scanner = fields->scanner;
    struct npy_descr *descr = fields->descr;
    struct frame *frame = &fields->frames[fields->depth - 1];
    struct npy_shape shape = {.count = 1};
    uint64_t total;
    if (npy_take(scanner, ',') && npy_peek(scanner) == '(') {
        if (!npy_scan_shape(scanner, &shape))
            return false;
        npy_take(scanner, ',');
    }
    if (!npy_take(scanner, ')'))
        return npy_bad(scanner, "expected ')' behind a field");
    if (!tc_mul(size, shape.count, &total) || total > INT64_MAX)
        return npy_bad(scanner, "a field's size overflows");
    for (size_t i = first; i < descr->count; i++) {
        struct npy_leaf *leaf = &descr->leaves[i];
        bool strided = leaf->strided;
        wrap_leaf(leaf, &shape, size, !nested);
        if (nested && shape.rank) {
            leaf->start += leaf->column;
            leaf->column = 0;
            leaf->span = total;
        } else if (!nested) {
            leaf->span = total;
        }
        leaf->column += frame->size;
        fields->strided += leaf->strided && !strided;
        if (leaf->strided && fields->strided > MOST_STRIDED)
            snprintf(leaf->skipped, sizeof leaf->skipped,
                     "one of more than %u fields of records in an array in a record", MOST_STRIDED);
    }
    if (!tc_add(frame->size, total, &frame->size) || frame->size > INT64_MAX)
        return npy_bad(scanner, "a record's size overflows");
    frame->comma = npy_take(scanner, ',');
    return true;
}

/* Scans a name, or a title and a name; the name is appended to that of the field
 * around it. */
static bool scan_field_name(struct fields *fields, bool *unnamed) {
    struct npy_scanner *scanner = fields->scanner;
    size_t surrogates = 0;
    fields->name.length = fields->frames[fields->depth - 1].prefix;
    tc_buffer_add_string(&fields->name, ".");
    size_t start = fields->name.length;
    bool titled = npy_take(scanner, '(');
    if (!npy_scan_name(scanner, &fields->name, &surrogates))
        return false;
    if (titled) {
        fields->name.length = start;
        surrogates = 0;
        if (!npy_take(scanner, ','))
            return npy_bad(scanner, "expected ',' behind a field's title");
        if (!npy_scan_name(scanner, &fields->name, &surrogates))
            return false;
        npy_take(scanner, ',');
        if (!npy_take(scanner, ')'))
            return npy_bad(scanner, "expected ')' behind a field's name");
    }
    fields->descr->surrogates += surrogates > 0;
    *unnamed = !titled && fields->name.length == start;
    return npy_take(scanner, ',') || npy_bad(scanner, "expected ',' behind a field's name");
}

static bool scan_simple(struct fields *fields, bool unnamed) {
    struct npy_descr *descr = fields->descr;
    size_t first = descr->count;
    struct tc_text type;
    if (!npy_scan_string(fields->scanner, &type))
        return false;
    struct npy_leaf *leaf = add_leaf(fields->scanner, descr, &fields->name);
    if (!leaf)
        return false;
    read_type(descr, leaf, type, fields->options);
    uint64_t size = leaf->span;
    struct tc_text code = code_of(type);
    if (unnamed && code.length && code.bytes[0] == 'V') { /* padding */
        free(leaf->name);
        descr->count--;
    }
    return end_field(fields, first, size, false);
}

static bool scan_field(struct fields *fields) {
    struct npy_scanner *scanner = fields->scanner;
    bool unnamed = false;
    if (!fields->frames[fields->depth - 1].comma)
        return npy_bad(scanner, "expected ',' or ']'");
    if (!npy_take(scanner, '('))
        return npy_bad(scanner, "a field is no tuple");
    if (!scan_field_name(fields, &unnamed))
        return false;
    if (!npy_take(scanner, '['))
        return scan_simple(fields, unnamed);
    if (fields->depth == MOST_DEPTH)
        return npy_bad(scanner, "nested too deeply");
    fields->frames[fields->depth++] =
        (struct frame){.prefix = fields->name.length, .first = fields->descr->count, .comma = true};
    return true;
}

static bool scan_fields(struct fields *fields) {
    fields->frames[fields->depth++] = (struct frame){.comma = true};
    for (;;) {
        struct frame inner = fields->frames[fields->depth - 1];
        if (!npy_take(fields->scanner, ']')) {
            if (!scan_field(fields))
                return false;
            continue;
        }
        fields->depth--;
        if (fields->depth == 0) {
            fields->descr->itemsize = inner.size;
            return true;
        }
        if (!end_field(fields, inner.first, inner.size, true))
            return false;
    }
}

bool npy_scan_descr(struct npy_scanner *scanner, const struct tc_format_options *options,
                    struct npy_descr *descr) {
    struct fields fields = {.scanner = scanner, .options = options, .descr = descr};
    struct tc_text type;
    descr->seen = true;
    if (npy_take(scanner, '[')) {
        descr->structured = true;
        bool ok = scan_fields(&fields);
        tc_buffer_release(&fields.name);
        return ok;
    }
    if (!npy_scan_string(scanner, &type))
        return false;
    struct npy_leaf *leaf = add_leaf(scanner, descr, &fields.name);
    if (!leaf)
        return false;
    read_type(descr, leaf, type, options);
    descr->itemsize = leaf->span;
    return true;
}

void npy_descr_release(struct npy_descr *descr) {
    for (size_t i = 0; i < descr->count; i++)
        free(descr->leaves[i].name);
    free(descr->leaves);
    *descr = (struct npy_descr){0};
}
