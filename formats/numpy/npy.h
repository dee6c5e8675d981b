/*
 * What .npy and .npz share: the header of an array, its fields, and the stream
 * of their elements in C order and little-endian.
 *
 * An array is one tensor, or where its elements are records (a structured
 * array) one a field. A field of text, dates, objects or anything else that is
 * no number is none: it has a reason why.
 */
#ifndef TCONV_FORMATS_NUMPY_NPY_H
#define TCONV_FORMATS_NUMPY_NPY_H

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/reader.h"
#include "core/io/spool.h"
#include "core/plan/plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/strided_view.h"
#include "core/tensor/table.h"
#include "formats/refused.h"
#include "formats/torch/torch.h"

#define NPY_DTYPES                                                                                 \
    (TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_F32) | TC_SET(TC_F64) |        \
     TC_SET(TC_C64) | TC_SET(TC_C128))
#define NPY_MAX_RANK TC_MAX_RANK
/* The metadata of a tensor of bytes that was an array of text: its descr. */
#define NPY_DESCR_KEY "numpy.descr"

/* One tensor of an array, or what is none. All its memory is the arena's. */
struct npy_field {
    struct tc_text name;    /* what follows the array's name, with its dot */
    const char *skipped;    /* why it is no tensor; NULL: it is one */
    const char *hint;       /* what a user may do about it; NULL: nothing */
    struct tc_text descr;   /* of text that is kept as bytes; empty: it is none */
    const uint64_t *shape;  /* the array's dimensions, then its own */
    const uint64_t *stride; /* of its own dimensions: bytes in the column */
    uint64_t nbytes;
    /* The part of a record in which all its elements lie. */
    uint64_t column;
    uint64_t span;
    uint64_t start; /* of the first element in that part */
    uint8_t dtype;
    uint8_t rank;
    bool swap;
    bool strided; /* its elements do not fill the part one behind the other */
};

struct npy_header {
    struct npy_field *fields;
    size_t field_count;
    const uint64_t *shape; /* of the array */
    uint64_t count;        /* records */
    uint64_t itemsize;     /* bytes of a record */
    uint64_t nbytes;       /* of all records */
    uint64_t data;         /* where they start */
    unsigned rank;
    bool structured;
    bool fortran;
    bool objects;    /* what follows the header is a pickle */
    bool unmeasured; /* how long the data is can't be known: objects, an unknown type */
};

/* Reads and checks a header through `fetch`; `size` is the file's or member's,
 * `base` where it lies in the input, for messages. Damage is an error; an array
 * that is no tensor is not. What follows the data is the caller's to judge. */
bool npy_header_read(struct tc_reader *reader, tc_fetch *fetch, void *context, uint64_t size,
                     uint64_t base, struct npy_header *header, struct tc_error *error);

/* The text that np.save writes, prefix included. Bytes that were text, by their
 * metadata, are text again. */
bool npy_header_write(struct tc_buffer *text, const struct tc_item *item, struct tc_error *error);
/* Whether the tensor's metadata is in the header: bytes that were text. */
bool npy_holds_metadata(const struct tc_item *item);

/* The arrays of a file, as tensors of its table. */
struct npy_array {
    struct npy_header header;
    const void *owner; /* the backend's own */
    uint64_t base;     /* of the header in the file */
    bool packed;       /* can be read forwards only */
};

struct npy_tensor {
    const struct npy_array *array;
    const struct npy_field *field;
};

struct npy_list {
    struct npy_tensor *tensors; /* by a tensor's cookie */
    size_t count;
    size_t capacity;
    struct refused refused;
    struct torch *objects; /* tensors in arrays of objects; NULL: there are none */
};

/* Adds the tensors of an array of this name, which must outlive the table, and
 * tells what is left out. */
bool npy_list_add(struct npy_list *list, struct tc_reader *reader, const struct npy_array *array,
                  struct tc_text name, struct tc_error *error);
/* The tensors in an array of objects, where the user asked for them: its pickle
 * is in memory, or where that is NULL in the file. */
bool npy_list_objects(struct npy_list *list, struct tc_reader *reader, struct tc_text name,
                      const unsigned char *memory, uint64_t at, uint64_t end,
                      struct tc_error *error);
/* Whether a tensor is one of those, which torch_read reads. */
static inline bool npy_is_object(const struct tc_tensor *tensor) {
    return tensor->cookie >= TORCH_FIRST_OBJECT;
}
/* Fails where nothing but what was left out was there. */
bool npy_list_finish(struct npy_list *list, struct tc_reader *reader, struct tc_error *error);
void npy_list_release(struct npy_list *list);

/* Reads one tensor at a time. */
struct npy_stream {
    const struct npy_array *array; /* whose records are in the spool */
    struct tc_spool spool;
    uint64_t rows; /* records of a tile of it */
    const struct npy_field *field;
    struct tc_view_reader view_reader;
    bool gathering;
    tc_fetch *fetch;
    void *context;
};

/* Whether a tensor needs a stream of its own; else any thread may read it with
 * an empty one. */
bool npy_is_sequential(const struct npy_tensor *tensor);
/* Whether the file has the tensor's bytes as they are. */
bool npy_is_raw(const struct npy_tensor *tensor);
/* Bytes of the C-order little-endian stream; `fetch` gives the records' bytes
 * as stored, from offset 0. */
bool npy_stream_read(struct npy_stream *stream, const struct npy_tensor *tensor, tc_fetch *fetch,
                     void *context, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error);
void npy_stream_release(struct npy_stream *stream);

#endif
