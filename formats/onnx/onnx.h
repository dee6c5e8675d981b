/*
 * Reads ONNX's tensors, for the backends of models (onnx.c, and ot.c whose files may
 * be models) and of single tensors (pb.c). tensor.c reads one TensorProto, sparse.c a
 * SparseTensorProto, graph.c finds them in a model. Texts, places and shapes are the reader's
 * arena's. onnx_read of a sequential tensor runs in one thread at a time, of any other in several.
 */
#ifndef TCONV_FORMATS_ONNX_ONNX_H
#define TCONV_FORMATS_ONNX_ONNX_H

#include "core/base/error.h"
#include "core/base/limits.h"
#include "core/base/name_map.h"
#include "core/base/text.h"
#include "core/format/backend.h"
#include "core/format/reader.h"
#include "core/io/input.h"
#include "core/tensor/dtype.h"
#include "core/tensor/metadata.h"
#include "core/tensor/table.h"
#include "formats/protobuf/typed.h"
#include "formats/protobuf/wire.h"
#include "formats/refused.h"

enum onnx_kind {
    ONNX_RAW,     /* bytes of a file, as they are */
    ONNX_TYPED,   /* numbers in a repeated field */
    ONNX_MEMORY,  /* bytes that the reader made: the shape of a sparse tensor, as a tensor */
    ONNX_INDICES, /* of a sparse tensor: [nnz, ndim] or flat in the file, read as [ndim, nnz] */
};

/* Where a tensor's bytes come from. A tensor's cookie is its place's number. */
struct onnx_place {
    enum onnx_kind kind;
    struct tc_input *input;
    uint64_t offset;
    struct typed typed;
    const unsigned char *memory;
    /* Of ONNX_INDICES. */
    const struct onnx_place *stored; /* the indices as they are in the file */
    const uint64_t *shape;           /* of the sparse tensor */
    unsigned rank;
    uint64_t entries;
    bool flat; /* one linear index for each entry, not one for each dimension */
};

struct onnx {
    struct tc_reader *reader;
    struct wire_source source;
    struct typed_reader typed;
    struct onnx_place **places;
    size_t count;
    size_t capacity;
    /* Files with external data, by their location: its number is a position in `files`. */
    struct tc_input_pool pool;
    bool pooled; /* the pool is initialised */
    struct tc_name_map locations;
    struct tc_input **files;
    size_t nodes; /* operators of the graphs, which are left out */
    struct refused refused;
    /* Tensors with values outside their type's range, and the first of them. */
    size_t wrapped;
    struct tc_text first_wrapped;
    /* The sparse indices that were transposed last, which are kept. */
    const struct onnx_place *transposed;
    unsigned char *indices;
};

/* What a TensorProto says of its tensor. */
struct onnx_tensor {
    struct tc_text name;
    struct tc_metadata *metadata;
    enum tc_dtype dtype;
    unsigned rank;
    uint64_t shape[TC_MAX_RANK];
    uint64_t nbytes;
    struct onnx_place place;
};

/* Whether external data may lie at this path: only below the model's folder, so
 * no "..", no absolute path, no drive letter. */
bool onnx_location_is_below(struct tc_text location);

void onnx_init(struct onnx *onnx, struct tc_reader *reader);
void onnx_release(struct onnx *onnx);

/* Parses a TensorProto, opens the file with its external data, and checks sizes. A
 * tensor that tconv can't hold (text, an unknown type) fails with TC_UNSUPPORTED;
 * tensor->name is filled then too, where it has one. */
bool onnx_parse_tensor(struct onnx *onnx, struct wire message, struct onnx_tensor *tensor,
                       struct tc_error *error);
/* Adds the tensor to the table under this name, which must outlive the table. */
bool onnx_add_tensor(struct onnx *onnx, struct tc_text name, const struct onnx_tensor *tensor,
                     struct tc_error *error);
/* Adds a SparseTensorProto as three tensors: indices, values and shape. */
bool onnx_add_sparse(struct onnx *onnx, struct wire message, struct tc_text prefix,
                     struct tc_text name, struct tc_error *error);
/* Called once all tensors are added: adds the notes for the user (nodes left out,
 * values out of range), and fails where only values that were refused are there. */
bool onnx_finish(struct onnx *onnx, struct tc_error *error);
/* A StringStringEntryProto: a message of a key and a value. */
bool onnx_read_entry(struct onnx *onnx, struct wire message, struct tc_text *key,
                     struct tc_text *value, struct tc_error *error);

/* Adds all tensors of a model, which fills the whole input. */
bool onnx_read_model(struct onnx *onnx, struct tc_error *error);

/* A backend's read, extent and close, where the reader's state is a struct onnx. */
bool onnx_reader_read(struct tc_reader *reader, const struct tc_tensor *tensor, uint64_t offset,
                      void *buffer, size_t length, struct tc_error *error);
bool onnx_reader_extent(struct tc_reader *reader, const struct tc_tensor *tensor,
                        struct tc_extent *extent);
void onnx_reader_close(struct tc_reader *reader);

bool onnx_read(struct onnx *onnx, const struct tc_tensor *tensor, uint64_t offset, void *buffer,
               size_t length, struct tc_error *error);
bool onnx_extent(struct onnx *onnx, const struct tc_tensor *tensor, struct tc_extent *extent);

/* A backend's probes: 0 to 100. */
int onnx_probe_model(const struct tc_probe *probe);
int onnx_probe_tensor(const struct tc_probe *probe);

#define ONNX_DTYPES                                                                                \
    (TC_SET(TC_BOOL) | TC_SET_INTEGERS | TC_SET(TC_F16) | TC_SET(TC_BF16) | TC_SET(TC_F32) |       \
     TC_SET(TC_F64) | TC_SET(TC_C64) | TC_SET(TC_C128) | TC_SET_F8 | TC_SET(TC_U4) |               \
     TC_SET(TC_I4) | TC_SET(TC_F4) | TC_SET(TC_F6_E2M3) | TC_SET(TC_F6_E3M2))
/* ONNX's number of a dtype (TensorProto.DataType); 0: it has none. */
int onnx_data_type(enum tc_dtype dtype);

#endif
