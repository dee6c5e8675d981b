/*
 * A scanner of the Python literal in an .npy header (literal.c), which is parsed
 * and never evaluated, and of the array's type in it (descr.c). A scanner's
 * functions fill its error where they fail.
 */
#ifndef TCONV_FORMATS_NUMPY_LITERAL_H
#define TCONV_FORMATS_NUMPY_LITERAL_H

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/tensor/dtype.h"
#include "formats/numpy/npy.h"

struct npy_scanner {
    const char *text;
    size_t length;
    size_t at;
    uint64_t base; /* where the text starts in the file, for messages */
    unsigned version;
    struct tc_error *error;
};

/* Fills the error with what is wrong, at the scanner's place; returns false. */
bool npy_bad(struct npy_scanner *scanner, const char *what);
/* The next character that is not a space, which stays; NUL at the end. */
char npy_peek(struct npy_scanner *scanner);
/* Passes over this character, or this word, if it comes next; false, without an
 * error, if not. */
bool npy_take(struct npy_scanner *scanner, char c);
bool npy_scan_word(struct npy_scanner *scanner, const char *word);
bool npy_scan_bool(struct npy_scanner *scanner, bool *value);
/* A quoted string without escapes; a slice of the text. */
bool npy_scan_string(struct npy_scanner *scanner, struct tc_text *string);
/* A quoted name, which may have escapes, appended to `name` as UTF-8. A lone
 * surrogate, which UTF-8 can't hold, stays as its escape and is counted. */
bool npy_scan_name(struct npy_scanner *scanner, struct tc_buffer *name, size_t *surrogates);

/* A tuple of dimensions. Those beyond NPY_MAX_RANK are counted, not kept. */
struct npy_shape {
    uint64_t sizes[NPY_MAX_RANK];
    uint64_t rank;
    uint64_t count; /* elements */
};
bool npy_scan_shape(struct npy_scanner *scanner, struct npy_shape *shape);

/* A type that is not a record: of the whole array, or of one field of a record
 * (at any depth). An npy_field is made of it once the array's shape is known. */
struct npy_leaf {
    char *name; /* what follows the array's name, with its dot; from malloc */
    size_t name_length;
    char skipped[160]; /* why it is not a tensor; empty: it is one */
    const char *hint;
    char descr[24]; /* the type of text that is kept as bytes */
    struct npy_shape shape;
    uint64_t stride[NPY_MAX_RANK];
    uint64_t column;
    uint64_t span;
    uint64_t start;
    uint8_t dtype;
    bool swap;
    bool strided;
};

struct npy_descr {
    struct npy_leaf *leaves;
    size_t count;
    size_t capacity;
    uint64_t itemsize;
    size_t surrogates; /* how many lone surrogates the fields' names have */
    bool seen;
    bool structured;
    bool objects;
    bool unmeasured; /* some type is unknown, and so is the size of a record */
};

bool npy_scan_descr(struct npy_scanner *scanner, const struct tc_format_options *options,
                    struct npy_descr *descr);
void npy_descr_release(struct npy_descr *descr);

/* The size of an element of a text type as numpy writes it: '<U10' or '|S5'.
 * False where `descr` is not a text type. */
bool npy_text_size(struct tc_text descr, uint64_t *bytes);
/* numpy's code of a dtype ("f4"), without its byte order. */
const char *npy_dtype_code(enum tc_dtype dtype);

#endif
