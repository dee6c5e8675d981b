/*
 * What .npy and .npz share: the header of an array, its fields, and the stream
 * of their elements in C order and little-endian.
 *
 * An array is one tensor. A structured array, whose elements are records, is one
 * tensor for each field. A field of text, dates, objects or anything else but
 * numbers is not a tensor; npy_field.skipped then says why.
 *
 * Header and list are used by one thread. Reading is as the contract has it: a
 * sequential tensor from one thread at a time, any other from all.
 */
#ifndef TCONV_FORMATS_NUMPY_NPY_H
#define TCONV_FORMATS_NUMPY_NPY_H

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/text.h"
#include "core/format/backend.h"
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
/* numpy refuses a header of more than 10,000 bytes. */
#define NPY_MOST_ALIGNMENT UINT64_C(8192)
/* Metadata of a tensor of bytes that was an array of text: that array's type. */
#define NPY_DESCR_KEY "numpy.descr"

/* A field of an array, which is a tensor or is left out. All its memory is the
 * reader's arena's. */
struct npy_field {
    struct tc_text name;    /* what follows the array's name, with its dot */
    const char *skipped;    /* why it is not a tensor; NULL: it is one */
    const char *hint;       /* what a user may do about it; NULL: nothing */
    struct tc_text descr;   /* the type of text that is kept as bytes; empty: not text */
    const uint64_t *shape;  /* the array's dimensions, then its own */
    const uint64_t *stride; /* of its own dimensions: bytes in the column */
    uint64_t nbytes;
    /* The field's elements lie in the bytes [column, column + span) of a record. */
    uint64_t column;
    uint64_t span;
    uint64_t start; /* of the first element, from `column` on */
    uint8_t dtype;
    uint8_t rank;
    bool swap;    /* big-endian */
    bool strided; /* there are gaps between its elements in a record */
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
    bool unmeasured; /* the length of the data is not known: objects, an unknown type */
};

/* Reads and checks a header through `fetch`. `size` is that of the file or zip
 * member, `base` its place in the input, for messages. Damage is an error; an
 * array that is not a tensor is none. The caller checks what follows the data. */
bool npy_header_read(struct tc_reader *reader, tc_fetch *fetch, void *context, uint64_t size,
                     uint64_t base, struct npy_header *header, struct tc_error *error);

/* The header as np.save writes it, with the magic bytes. A tensor of bytes whose
 * metadata says that it was an array of text gets that type again. */
/* With `writer`, the header of a file of its own, which is as long as --align asks for. */
bool npy_header_write(struct tc_buffer *text, const struct tc_item *item,
                      const struct tc_writer *writer, struct tc_error *error);
/* Whether the header holds the tensor's metadata, as it does for bytes that were
 * an array of text: a backend's holds_metadata. */
bool npy_holds_metadata(const struct tc_item *item);

/* The arrays of a file, as tensors of its table. */
struct npy_array {
    struct npy_header header;
    const void *owner; /* for the backend's use */
    uint64_t base;     /* of the header in the file */
    bool packed;       /* compressed: can be read forwards only */
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

/* Adds the tensors of an array to the reader's table, and reports what is left
 * out. The name must outlive the table. */
bool npy_list_add(struct npy_list *list, struct tc_reader *reader, const struct npy_array *array,
                  struct tc_text name, struct tc_error *error);
/* Adds the tensors in an array of objects, where the user asked for them. Its
 * pickle lies at [at, end) of `memory`, or where that is NULL of the file. */
bool npy_list_objects(struct npy_list *list, struct tc_reader *reader, struct tc_text name,
                      const unsigned char *memory, uint64_t at, uint64_t end,
                      struct tc_error *error);
/* Whether a tensor is from an array of objects, so that torch_read reads it. */
static inline bool npy_is_object(const struct tc_tensor *tensor) {
    return tensor->cookie >= TORCH_FIRST_OBJECT;
}
/* Fails where the file has nothing but what was left out. */
bool npy_list_finish(struct npy_list *list, struct tc_reader *reader, struct tc_error *error);
void npy_list_release(struct npy_list *list);

/* The state of reading a sequential tensor: one at a time. All zero at first. */
struct npy_stream {
    const struct npy_array *array; /* whose records are in the spool */
    struct tc_spool spool;
    uint64_t rows; /* records in a tile of the spool */
    const struct npy_field *field;
    struct tc_view_reader view_reader;
    bool viewing;
    tc_fetch *fetch;
    void *context;
};

/* Whether reading a tensor needs a stream that lives from call to call. Any other
 * is read by any thread with an empty stream. */
bool npy_is_sequential(const struct npy_tensor *tensor);
/* Where its elements lie as they are, but not in C order: the view of the array's data that it is.
 */
bool npy_strided(const struct npy_tensor *tensor, struct tc_view *view);
/* Whether the file holds the tensor's C-order little-endian bytes in one run. */
bool npy_is_raw(const struct npy_tensor *tensor);
/* Reads bytes of the tensor's C-order little-endian stream. `fetch` gives the
 * records' bytes as they are stored, from offset 0 of the first record. */
bool npy_stream_read(struct npy_stream *stream, const struct npy_tensor *tensor, tc_fetch *fetch,
                     void *context, uint64_t offset, void *buffer, size_t length,
                     struct tc_error *error);
void npy_stream_release(struct npy_stream *stream);

#endif
