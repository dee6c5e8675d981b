/*
 * A scanner of the Python literal in an .npy header, which is never evaluated,
 * and what it says of an array's type (npy_descr.c).
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
    uint64_t base; /* of the text in the file */
    unsigned version;
    struct tc_error *error;
};

/* Fails; returns false. */
bool npy_bad(struct npy_scanner *scanner, const char *what);
/* The next character that is no space; NUL at the end. */
char npy_peek(struct npy_scanner *scanner);
bool npy_take(struct npy_scanner *scanner, char c);
/* Passes over a word that is there; false where it is not. */
bool npy_scan_word(struct npy_scanner *scanner, const char *word);
bool npy_scan_bool(struct npy_scanner *scanner, bool *value);
/* A quoted string without escapes; a slice of the text. */
bool npy_scan_string(struct npy_scanner *scanner, struct tc_text *string);
/* A name, which may have escapes, as UTF-8 behind what is in `name` already.
 * What UTF-8 can't hold, a half of a surrogate pair, stays escaped, and counts. */
bool npy_scan_name(struct npy_scanner *scanner, struct tc_buffer *name, size_t *surrogates);

/* A tuple of dimensions. Those beyond NPY_MAX_RANK are counted, not kept. */
struct npy_shape {
    uint64_t sizes[NPY_MAX_RANK];
    uint64_t rank;
    uint64_t count; /* elements */
};
bool npy_scan_shape(struct npy_scanner *scanner, struct npy_shape *shape);

/* What a descr stands for. The fields are from malloc, and not yet an array's. */
struct npy_leaf {
    char *name; /* with its dot; malloc's */
    size_t name_length;
    char skipped[160]; /* empty: it is a tensor */
    const char *hint;
    char descr[24]; /* of text that is kept as bytes */
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
    size_t surrogates; /* names that have some */
    bool seen;
    bool structured;
    bool objects;
    bool unmeasured; /* an unknown type among them */
};

bool npy_scan_descr(struct npy_scanner *scanner, const struct tc_format_options *options,
                    struct npy_descr *descr);
void npy_descr_release(struct npy_descr *descr);

/* The bytes of an element of text, '<U10' or '|S5' as numpy writes them; false
 * where the text is none. */
bool npy_text_size(struct tc_text descr, uint64_t *bytes);
/* The code of a dtype, without its byte order. */
const char *npy_dtype_code(enum tc_dtype dtype);

#endif
